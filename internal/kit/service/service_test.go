package service

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

const (
	patience = 10 * time.Second
	tick     = 5 * time.Millisecond
)

var errBroken = errors.New("broken")

// quiet is a configuration without HTTP and log.
func quiet() Config {
	cfg := Defaults("quiet")
	cfg.HTTPAddr = ""
	cfg.Log = slog.New(slog.DiscardHandler)
	return cfg
}

func get(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(data)
}

func wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestHTTPTellsTheStateOfTheService(t *testing.T) {
	t.Parallel()
	cfg := quiet()
	cfg.HTTPAddr = "127.0.0.1:0"
	addresses := make(chan string, 1)
	cfg.Listening = func(a net.Addr) { addresses <- a.String() }

	var broken atomic.Bool
	setUp, drain, done := make(chan struct{}), make(chan struct{}), make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		done <- Run(ctx, cfg, func(_ context.Context, s *Service) error {
			s.Check("nats", func() error { return nil })
			s.Check("bucket", func() error {
				if broken.Load() {
					return errBroken
				}
				return nil
			})
			s.Metrics.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "seatrial_own_total"}))
			s.Go("work", func(ctx context.Context) error {
				<-ctx.Done()
				<-drain
				return nil
			})
			<-setUp
			return nil
		})
	}()
	address := <-addresses
	readyz := func(code int, lines string) {
		t.Helper()
		require.Eventually(t, func() bool {
			gotCode, gotLines := get(t, address, "/readyz")
			return gotCode == code && gotLines == lines
		}, patience, tick)
	}

	readyz(http.StatusServiceUnavailable, "service: starting\nnats: ok\nbucket: ok\n")
	code, body := get(t, address, "/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)

	close(setUp)
	readyz(http.StatusOK, "service: ready\nnats: ok\nbucket: ok\n")
	broken.Store(true)
	readyz(http.StatusServiceUnavailable, "service: ready\nnats: ok\nbucket: failed: broken\n")
	broken.Store(false)

	code, body = get(t, address, "/metrics")
	require.Equal(t, http.StatusOK, code)
	for _, metric := range []string{"go_goroutines", "process_open_fds", "seatrial_own_total"} {
		require.Contains(t, body, metric)
	}

	stop()
	readyz(http.StatusServiceUnavailable, "service: stopping\nnats: ok\nbucket: ok\n")
	close(drain)
	require.NoError(t, <-done)
}

func TestTheFirstErrorStopsAll(t *testing.T) {
	t.Parallel()
	var order []string
	err := Run(t.Context(), quiet(), func(_ context.Context, s *Service) error {
		for _, name := range []string{"first", "second"} {
			s.Defer(name, func(ctx context.Context) error {
				order = append(order, name)
				return ctx.Err()
			})
		}
		s.Go("waits", wait)
		s.Go("fails", func(context.Context) error { return errBroken })
		return nil
	})
	require.ErrorIs(t, err, errBroken)
	require.EqualError(t, err, "fails: broken")
	require.Equal(t, []string{"second", "first"}, order, "in reverse, with a living context")
}

func TestAPartThatEndsByItselfIsAnError(t *testing.T) {
	t.Parallel()
	err := Run(t.Context(), quiet(), func(_ context.Context, s *Service) error {
		s.Go("tired", func(context.Context) error { return nil })
		return nil
	})
	require.ErrorIs(t, err, ErrEnded)
	require.EqualError(t, err, "tired ended by itself")
}

func TestAFailedSetupStopsWhatItStarted(t *testing.T) {
	t.Parallel()
	var stopped, deferred bool
	err := Run(t.Context(), quiet(), func(_ context.Context, s *Service) error {
		s.Defer("close", func(context.Context) error {
			deferred = stopped
			return nil
		})
		s.Go("work", func(ctx context.Context) error {
			<-ctx.Done()
			stopped = true
			return nil
		})
		return errBroken
	})
	require.ErrorIs(t, err, errBroken)
	require.True(t, deferred, "after the part has returned")
}

func TestBeingToldToStopIsNoError(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]func(ctx context.Context, s *Service) error{
		"while it works":  func(_ context.Context, s *Service) error { s.Go("work", wait); return nil },
		"while it starts": func(ctx context.Context, _ *Service) error { return wait(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			err := Run(ctx, quiet(), func(ctx context.Context, s *Service) error {
				s.Defer("flush", func(ctx context.Context) error { return ctx.Err() })
				stop()
				return setup(ctx, s)
			})
			require.NoError(t, err, "and what is deferred has a living context")
		})
	}
}

func TestErrorsWhileDrainingAreTold(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	err := Run(ctx, quiet(), func(_ context.Context, s *Service) error {
		s.Go("work", func(ctx context.Context) error {
			<-ctx.Done()
			return errBroken
		})
		s.Defer("drain", func(context.Context) error { return io.ErrClosedPipe })
		stop()
		return nil
	})
	require.EqualError(t, err, "work: broken\ndrain: io: read/write on closed pipe")
}

func TestAPartThatHangsIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		err := Run(ctx, quiet(), func(_ context.Context, s *Service) error {
			s.Go("hangs", func(context.Context) error {
				<-hang
				return nil
			})
			s.Go("stops", wait)
			stop()
			return nil
		})
		require.ErrorIs(t, err, ErrStuck)
		require.EqualError(t, err, "hangs: did not stop in time (35s)")
		close(hang)
	})
}

func TestFlagsWinOverVariables(t *testing.T) {
	for _, row := range []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{name: "default", want: "nats://127.0.0.1:4222"},
		{name: "as in the NATS tools", env: map[string]string{"NATS_URL": "a"}, want: "a"},
		{name: "our own name first", env: map[string]string{"NATS_URL": "a", "SEATRIAL_NATS_URL": "b"}, want: "b"},
		{name: "a flag wins", env: map[string]string{"SEATRIAL_NATS_URL": "b"}, args: []string{"--nats-url=c"}, want: "c"},
		{name: "an empty variable is not set", env: map[string]string{"SEATRIAL_NATS_URL": "", "NATS_URL": ""}, want: "nats://127.0.0.1:4222"},
	} {
		t.Run(row.name, func(t *testing.T) {
			for variable, value := range row.env {
				t.Setenv(variable, value)
			}
			cfg := Defaults("planner")
			fs := flag.NewFlagSet("planner", flag.ContinueOnError)
			cfg.Flags(fs)
			require.NoError(t, parse(fs, row.args))
			require.Equal(t, row.want, cfg.NATS.URL)
			require.Equal(t, "seatrial-planner", cfg.NATS.Name)
			require.Equal(t, "_INBOX_planner", cfg.NATS.InboxPrefix)
		})
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		format LogFormat
		want   string
	}{
		{LogJSON, `"level":"WARN","msg":"loud","service":"quiet","instance":"one","n":1}`},
		{LogText, `level=WARN msg=loud service=quiet instance=one n=1`},
	} {
		t.Run(string(row.format), func(t *testing.T) {
			t.Parallel()
			cfg := quiet()
			cfg.Instance, cfg.LogLevel, cfg.LogFormat = "one", slog.LevelWarn, row.format
			var out bytes.Buffer
			log := NewLogger(cfg, &out)
			log.Info("silent")
			log.Warn("loud", "n", 1)
			require.Contains(t, out.String(), row.want)
			require.NotContains(t, out.String(), "silent")
		})
	}
}
