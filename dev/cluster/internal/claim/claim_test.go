package claim

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestANameIsTakenOnce(t *testing.T) {
	t.Parallel()
	registry := Registry(t.TempDir())
	first, err := registry.Take("name", Record{})
	require.NoError(t, err)
	_, err = registry.Take("name", Record{})
	require.ErrorIs(t, err, ErrRunning)
	require.NoError(t, first.Release())
	next, err := registry.Take("name", Record{})
	require.NoError(t, err)
	require.NoError(t, next.Release())
}

func TestSweepRemovesWhatTheDeadLeft(t *testing.T) {
	t.Parallel()
	registry := Registry(t.TempDir())
	take := func(name string) (*Claim, string) {
		state := filepath.Join(t.TempDir(), "state")
		require.NoError(t, os.MkdirAll(filepath.Join(state, "logs"), 0o700))
		claimed, err := registry.Take(name, Record{Interface: "no-such-link"})
		require.NoError(t, err)
		require.NoError(t, claimed.Update(Record{Temporary: state}))
		return claimed, state
	}
	dead, left := take("dead")
	require.NoError(t, dead.Abandon())
	alive, kept := take("alive")
	// It was killed before it wrote its record.
	require.NoError(t, os.WriteFile(filepath.Join(string(registry), "empty.json"), nil, 0o600))

	swept, err := registry.Sweep()
	require.NoError(t, err)
	require.Equal(t, 2, swept)
	require.NoDirExists(t, left)
	require.DirExists(t, kept)

	swept, err = registry.Sweep()
	require.NoError(t, err)
	require.Zero(t, swept)
	require.NoError(t, alive.Release())
}

func TestLockLetsOneInAtATime(t *testing.T) {
	t.Parallel()
	registry := Registry(t.TempDir())
	unlock, err := registry.Lock(t.Context())
	require.NoError(t, err)

	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = registry.Lock(impatient)
	require.ErrorIs(t, err, context.Canceled)

	unlock()
	unlock, err = registry.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}
