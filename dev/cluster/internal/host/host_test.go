package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindSaysWhatIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Find(t.Context(), "log", func([]string) { t.Error("there is no apt-get to install with") })
	require.ErrorContains(t, err, "this machine lacks containerd, containerd-shim-runc-v2, ctr, ")
	require.ErrorContains(t, err, "a static busybox: install them")
	require.ErrorContains(t, err, "set KUBECONFIG")
}

// An apt-get that notes what it was asked for, and installs nothing.
func TestFindInstalls(t *testing.T) {
	folder := t.TempDir()
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	asked := filepath.Join(folder, "asked")
	script := "#!" + shell + "\necho \"$*\" >> " + asked + "\necho out of disk\n"
	require.NoError(t, os.WriteFile(filepath.Join(folder, "apt-get"), []byte(script), 0o755))
	t.Setenv("PATH", folder)

	var packages []string
	log := filepath.Join(folder, "log")
	_, err = Find(t.Context(), log, func(wanted []string) { packages = wanted })

	require.ErrorContains(t, err, "but this machine still lacks containerd, ")
	require.Subset(t, packages, []string{"containerd", "busybox-static"})
	said, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Regexp(t, `(?s) update\n.* install -y --no-install-recommends containerd .*busybox-static\n$`, string(said))
	kept, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(kept), "out of disk")
}

func TestStatic(t *testing.T) {
	t.Parallel()
	require.False(t, static("/bin/sh"), "Debian's shell has a loader")
	require.False(t, static("/etc/passwd"))
	require.False(t, static("/no/such/file"))
}
