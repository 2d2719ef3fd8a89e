package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// kernelSettings are what the kubelet sets for the whole machine, with the values that it wants.
var kernelSettings = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// arrangeMounts gives the mount namespace file systems of its own wherever programs write to fixed paths, so that
// this machine's stay as they are. The folder of the state appears at home.
func arrangeMounts(config Config) error {
	// By its descriptor it can be reached even when a mount covers its path.
	folder, err := os.Open(config.State)
	if err != nil {
		return fmt.Errorf("open the folder of the state: %w", err)
	}
	defer folder.Close()
	state := fmt.Sprintf("/proc/self/fd/%d", folder.Fd())

	for _, mount := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		// Cut off from the machine's mounts; then shared, as volumes that propagate mounts among pods ask for.
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"", "/", "", unix.MS_REC | unix.MS_SHARED},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{filepath.Join(state, podLogsFolder), "/var/log", "", unix.MS_BIND},
		{filepath.Join(state, libFolder), "/var/lib", "", unix.MS_BIND},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := unix.Mount(mount.source, mount.target, mount.kind, mount.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", mount.target, err)
		}
	}
	if err := os.Mkdir(home, 0o700); err != nil {
		return fmt.Errorf("make the place of the state: %w", err)
	}
	if err := unix.Mount(state, home, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", home, err)
	}
	if config.Played {
		return nil // no kubelet and no containerd, which look at what follows
	}
	if err := cover("/etc/resolv.conf", inConfig("resolv.conf")); err != nil {
		return err
	}
	return coverKernelSettings()
}

// coverKernelSettings lets the kubelet read what it wants to read, from files that only this namespace sees.
func coverKernelSettings() error {
	for name, value := range kernelSettings {
		file := "/run/" + strings.ReplaceAll(name, "/", ".")
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			return fmt.Errorf("cover a setting of the kernel: %w", err)
		}
		if err := cover("/proc/sys/"+name, file); err != nil {
			return err
		}
	}
	return nil
}

// cover puts a file over another one, if there is one.
func cover(target, file string) error {
	if _, err := os.Stat(target); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s over %s: %w", file, target, err)
	}
	return nil
}
