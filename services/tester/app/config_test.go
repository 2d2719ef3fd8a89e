package app_test

import (
	"bytes"
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/services/tester/app"
)

func TestTheDefaultsAreValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, app.Defaults().Validate())
}

func TestWrongSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		change func(*app.Config)
		want   string
	}{
		{"of every service", func(c *app.Config) { c.Instance = "" }, "--instance"},
		{"no cluster", func(c *app.Config) { c.Cluster = "" }, "--cluster"},
		{"a pool that no subject can hold", func(c *app.Config) { c.Pool = "a pool" }, "--pool"},
		{"no grace", func(c *app.Config) { c.StuckGrace = 0 }, "--stuck-grace"},
		{"no time for logs", func(c *app.Config) { c.LogTimeout = -1 }, "--log-timeout"},
		{"no time to clean up", func(c *app.Config) { c.CleanUpTimeout = 0 }, "--clean-up-timeout"},
		{"no slot", func(c *app.Config) { c.Slots = 0 }, "slots 0"},
		{"a fraction of a second", func(c *app.Config) { c.LeaseTTL = 1500 * time.Millisecond }, "lease TTL 1.5s"},
		{"requests longer than half of the lease", func(c *app.Config) { c.RequestTimeout = 31 * time.Second }, "request time-out 31s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cfg := app.Defaults()
			row.change(&cfg)
			err := app.Run(t.Context(), cfg)
			require.ErrorIs(t, err, service.ErrUsage)
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestTheProgramSaysWhatItCanBeTold(t *testing.T) {
	t.Parallel()
	help, err := child("--help").Output()
	require.NoError(t, err)
	require.Contains(t, string(help), "Usage: seatrial-tester [flags]")
	for _, flag := range []string{"nats-url", "cluster", "pool", "kubeconfig", "slots", "lease-ttl", "request-timeout", "stuck-grace", "log-timeout", "clean-up-timeout"} {
		require.Contains(t, string(help), "  --"+flag)
	}
	require.Contains(t, string(help), "$SEATRIAL_STUCK_GRACE")

	var stderr bytes.Buffer
	wrong := child("--stuck-grace", "0s")
	wrong.Stderr = &stderr
	exit, ok := errors.AsType[*exec.ExitError](wrong.Run())
	require.True(t, ok)
	require.Equal(t, 2, exit.ExitCode())
	require.Contains(t, stderr.String(), "--stuck-grace 0s: must be positive")
}
