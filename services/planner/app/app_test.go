package app_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/app"
)

var web = subject.Release{Cluster: "local", Namespace: "shop", Name: "web"}

const soon = 30 * time.Second

// start runs a planner in this process, and returns its HTTP address when it is ready and what stops it.
func start(t *testing.T, url, name string) (http string, stop func() error) {
	t.Helper()
	cfg := app.Defaults()
	cfg.NATS.URL = url
	cfg.Instance = name
	cfg.HTTPAddr = "127.0.0.1:0"
	cfg.Log = kittest.Logger(t)
	listening := make(chan net.Addr, 1)
	cfg.Listening = func(addr net.Addr) { listening <- addr }
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- app.Run(ctx, cfg) }()
	t.Cleanup(cancel)
	http = fmt.Sprintf("http://%s", <-listening)
	require.Eventually(t, func() bool { return status(t, http+"/readyz") == 200 }, soon, 10*time.Millisecond)
	return http, func() error {
		cancel()
		return <-done
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0
	}
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

// pack returns a packaged chart of these files.
func pack(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

func ask(t *testing.T, conn *bus.Conn, verb, body string) (code string, data []byte) {
	t.Helper()
	msg, err := conn.NC.Request(subject.API(verb, web), []byte(body), soon)
	require.NoError(t, err)
	return msg.Header.Get(micro.ErrorCodeHeader), msg.Data
}

func TestPlannersTakeARequestFromItsUploadToItsCommand(t *testing.T) {
	t.Parallel()
	server := kittest.Provisioned(t, bus.DefaultLayout())
	conn := kittest.Connect(t, server.URL)
	first, stopFirst := start(t, server.URL, "first")
	_, stopSecond := start(t, server.URL, "second")
	require.Equal(t, 200, status(t, first+"/healthz"))
	require.Equal(t, 200, status(t, first+"/metrics"))

	archive := pack(t, map[string]string{
		"web/Chart.yaml":        "apiVersion: v2\nname: web\nversion: 1.0.0\nappVersion: \"7\"\nannotations:\n  commit_sha: abc123\n",
		"web/templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: web\n",
	})
	require.NoError(t, conn.PutObject(t.Context(), subject.ObjectsUploads, "web-1.0.0.tgz", archive))
	code, data := ask(t, conn, "deploy", `{"id": "missing", "chart": {"object": "web-0.9.0.tgz"}}`)
	require.Empty(t, code, string(data))
	code, data = ask(t, conn, "wait", `{"request": "missing"}`)
	require.Empty(t, code, string(data))
	var waited pb.WaitAnswer
	require.NoError(t, wire.Unmarshal(nil, data, &waited))
	require.Equal(t, pb.ResultRejected, waited.GetSettled().GetSettlement().GetResult())
	require.Contains(t, waited.GetSettled().GetFailure().GetReason(), "web-0.9.0.tgz")
	require.Contains(t, waited.GetSettled().GetFailure().GetNext(), "nats object put --name web-0.9.0.tgz seatrial-uploads")

	code, data = ask(t, conn, "deploy", `{"id": "good", "chart": {"object": "web-1.0.0.tgz"}}`)
	require.Empty(t, code, string(data))
	var known pb.GetAnswer
	require.Eventually(t, func() bool {
		code, data := ask(t, conn, "get", ``)
		require.Empty(t, code, string(data))
		require.NoError(t, wire.Unmarshal(nil, data, &known))
		return known.GetActive().GetCommand() != nil
	}, soon, 10*time.Millisecond)
	requested := known.GetActive().GetRequested()
	require.Equal(t, "web", requested.GetName())
	require.Equal(t, "1.0.0", requested.GetVersion())
	require.Equal(t, "7", requested.GetAppVersion())
	require.Equal(t, map[string]string{"commit_sha": "abc123"}, requested.GetAnnotations())
	stored, err := conn.GetObject(t.Context(), subject.ObjectsCharts, requested.GetDigest(), 1<<20)
	require.NoError(t, err)
	require.Equal(t, archive, stored)

	require.NoError(t, stopFirst())
	code, data = ask(t, conn, "get", ``)
	require.Empty(t, code, "the other one is still there: %s", data)
	require.NoError(t, stopSecond())
}

func TestWithoutProvisioningAPlannerSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	cfg := app.Defaults()
	cfg.NATS.URL = kittest.NATS(t).URL
	cfg.HTTPAddr = ""
	cfg.Log = kittest.Logger(t)
	err := app.Run(t.Context(), cfg)
	require.ErrorContains(t, err, "seatrial-provision")
}

func TestConfigReportsAllThatIsWrong(t *testing.T) {
	t.Parallel()
	require.NoError(t, app.Defaults().Validate())
	cfg := app.Defaults()
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	cfg.Flags(fs)
	require.NoError(t, fs.Parse([]string{
		"--clusters", "a, b", "--pools", "a/slow,c/fast", "--slots", "0", "--take-over", "-1s", "--max-test-timeout", "0",
		"--transient-tries", "0", "--instance", "", "--fetch-timeout", "0", "--verify-charts", "always",
	}))
	err := cfg.Validate()
	require.ErrorIs(t, err, service.ErrUsage)
	for _, says := range []string{
		`--pools "c/fast": want cluster/pool, with one of the clusters a, b`, "--slots 0", "--take-over -1s", "--max-test-timeout 0s",
		"--transient-tries 0", "--instance", "--fetch-timeout 0s", "--verify-charts always: needs --keyring",
	} {
		require.ErrorContains(t, err, says)
	}
	cfg = app.Defaults()
	cfg.Clusters = nil
	require.ErrorContains(t, cfg.Validate(), "--clusters names none")
	require.Error(t, fs.Parse([]string{"--transient-tries", "many"}))
	require.Error(t, fs.Parse([]string{"--verify-charts", "sometimes"}))
	cfg = app.Defaults()
	cfg.Charts.RegistryAuth = `{"auths": "s3cret"}`
	err = cfg.Validate()
	require.ErrorContains(t, err, "$DOCKER_AUTH_CONFIG is no Docker config.json")
	require.NotContains(t, err.Error(), "s3cret")
}
