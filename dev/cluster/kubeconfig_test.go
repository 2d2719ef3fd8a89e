package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	ours   = "apiVersion: v1\nkind: Config\ncontexts:\n- name: seatrial\n  context: {cluster: seatrial, user: seatrial-admin}\n"
	theirs = "apiVersion: v1\nkind: Config\ncontexts:\n- name: production\n  context: {cluster: production, user: me}\n"
)

func TestPublishReplacesOnlyItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	require.NoError(t, os.WriteFile(source, []byte(ours), 0o600))
	target := filepath.Join(dir, "target")

	_, err := publish(source, target)
	require.NoError(t, err)
	remove, err := publish(source, target)
	require.NoError(t, err, "a killed cluster left it")
	remove()
	require.NoFileExists(t, target)

	require.NoError(t, os.WriteFile(target, []byte(theirs), 0o600))
	_, err = publish(source, target)
	require.ErrorContains(t, err, "has contexts of other clusters: choose another --kubeconfig")
	kept, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, theirs, string(kept))
}
