package cgroup

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// It needs root, as all that this package does.
func TestMakeAndRemove(t *testing.T) {
	t.Parallel()
	name := "seatrial-test-" + strconv.Itoa(os.Getpid())
	require.NoError(t, Make(name))
	t.Cleanup(func() { _ = Remove(name) })
	groups, err := filepath.Glob(filepath.Join(root, "memory", name))
	if unified() {
		groups, err = filepath.Glob(filepath.Join(root, name))
	}
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.NoError(t, os.MkdirAll(filepath.Join(groups[0], "pods", "one"), 0o755))

	require.NoError(t, Make(name), "that it is there is no error")
	require.NoError(t, Remove(name))
	require.NoDirExists(t, groups[0])
	require.NoError(t, Remove(name), "that it is gone is none either")
}

func TestRemoveOfNoName(t *testing.T) {
	t.Parallel()
	require.NoError(t, Remove(""))
}
