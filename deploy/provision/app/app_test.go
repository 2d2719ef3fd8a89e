package app_test

import (
	"flag"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/deploy/provision/app"
	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/service"
)

// configured returns the configuration that the arguments ask for.
func configured(t *testing.T, args ...string) app.Config {
	t.Helper()
	cfg := app.Defaults()
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	cfg.Flags(fs)
	require.NoError(t, fs.Parse(args))
	return cfg
}

func TestFlagsMakeTheLayout(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want bus.Layout
	}{
		"nothing said": {nil, bus.DefaultLayout()},
		"everything": {
			[]string{"--clusters", "local, prod", "--pools=prod/gpu,local/big,prod/arm", "--replicas=3", "--ack-wait=1m"},
			bus.Layout{
				Clusters: []bus.Cluster{{Name: "local", Pools: []string{"big"}}, {Name: "prod", Pools: []string{"gpu", "arm"}}},
				Replicas: 3, AckWait: time.Minute,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := configured(t, row.args...).Layout()
			require.NoError(t, err)
			require.Equal(t, row.want, got)
		})
	}
}

func TestWrongSettingsAreToldBeforeAnythingIsDone(t *testing.T) {
	for name, row := range map[string]struct{ args, want string }{
		"pool of an unknown cluster": {"--pools=prod/gpu", `--pools "prod/gpu": want cluster/pool, with one of the clusters local`},
		"pool without a cluster":     {"--pools=gpu", `--pools "gpu"`},
		"pool without a name":        {"--pools=local/", `--pools "local/"`},
		"no cluster":                 {"--clusters=,", "no cluster is named"},
		"invalid cluster":            {"--clusters=a_b", `cluster "a_b"`},
		"two replicas":               {"--replicas=2", "replicas 2"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configured(t, row.args)
			cfg.NATS.URL = "nats://127.0.0.1:1"
			err := app.Run(t.Context(), cfg)
			require.ErrorIs(t, err, service.ErrUsage)
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestRunProvisionsAndThenChangesNothing(t *testing.T) {
	s := kittest.NATS(t)
	cfg := configured(t, "--nats-url", s.URL, "--clusters=prod", "--pools=prod/gpu")
	var said strings.Builder
	cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
	require.NoError(t, app.Run(t.Context(), cfg))
	require.Contains(t, said.String(), "consumer=tester-prod__gpu")
	said.Reset()
	require.NoError(t, app.Run(t.Context(), cfg))
	require.Len(t, slices.Collect(strings.Lines(said.String())), 1)
	require.Contains(t, said.String(), "all streams, buckets and consumers are as they should be")
}

func TestRunWaitsForNATSNoLongerThanItMay(t *testing.T) {
	s := kittest.NATS(t)
	s.Stop()
	cfg := configured(t, "--nats-url", s.URL, "--timeout=10ms")
	cfg.Log = kittest.Logger(t)
	err := app.Run(t.Context(), cfg)
	require.ErrorContains(t, err, "not done in 10ms")
	require.ErrorContains(t, err, s.URL)
	require.NoError(t, s.Start())
}
