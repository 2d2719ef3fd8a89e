// Package host sees to what a node needs from the machine that it runs on.
package host

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pluginFolders are where distributions put the CNI plugins: Debian's choice, then everyone else's.
var pluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// systemFolders have runc, and are missing in the PATH of many who became root by su.
const systemFolders = ":/usr/local/sbin:/usr/sbin:/sbin"

// Programs is where a machine has what a node needs.
type Programs struct {
	SearchPath string // the PATH that they need
	Containerd string
	Ctr        string
	Busybox    string // static, so that it can be a whole image
	Plugins    string // the folder of the CNI plugins
}

// ErrIncapable says that this machine has no apt-get and lacks what a node needs.
var ErrIncapable = errors.New("a real node cannot run here")

// requirement is a thing that must be here, and the Debian package that brings it.
type requirement struct {
	what, debian string
	find         func() bool
}

// Find returns the programs. What is missing it installs where there is apt-get, after it called installing with
// the names of the packages; log is the file that keeps what apt-get said.
func Find(ctx context.Context, log string, installing func(packages []string)) (Programs, error) {
	programs := Programs{SearchPath: os.Getenv("PATH") + systemFolders}
	missing := check(&programs)
	if len(missing) == 0 {
		return programs, nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return Programs{}, fmt.Errorf("%w: this machine lacks %s: install them (on Debian and Ubuntu this happens by "+
			"itself), or set KUBECONFIG to use a cluster of your own", ErrIncapable, strings.Join(names(missing), ", "))
	}
	packages := packagesOf(missing)
	installing(packages)
	if err := install(ctx, log, packages); err != nil {
		return Programs{}, err
	}
	if missing = check(&programs); len(missing) > 0 {
		return Programs{}, fmt.Errorf("apt-get installed %s, but this machine still lacks %s: see %s",
			strings.Join(packages, ", "), strings.Join(names(missing), ", "), log)
	}
	return programs, nil
}

// check fills in what is here and returns the rest.
func check(programs *Programs) []requirement {
	inPath := func(name string, found *string) func() bool {
		return func() bool {
			path := lookPath(name, programs.SearchPath)
			if found != nil {
				*found = path
			}
			return path != ""
		}
	}
	return slices.DeleteFunc([]requirement{
		{"containerd", "containerd", inPath("containerd", &programs.Containerd)},
		{"containerd-shim-runc-v2", "containerd", inPath("containerd-shim-runc-v2", nil)},
		{"ctr", "containerd", inPath("ctr", &programs.Ctr)},
		{"runc", "runc", inPath("runc", nil)},
		{"the CNI plugins bridge, host-local and loopback", "containernetworking-plugins", func() bool {
			programs.Plugins = pluginFolder()
			return programs.Plugins != ""
		}},
		{"mount", "mount", inPath("mount", nil)},
		{"iptables", "iptables", inPath("iptables", nil)},
		{"a static busybox", "busybox-static", func() bool {
			return inPath("busybox", &programs.Busybox)() && static(programs.Busybox)
		}},
	}, func(r requirement) bool { return r.find() })
}

// Beside finds an executable that is built beside this one: in the same folder, or else in PATH.
func Beside(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the folder of this program: %w", err)
	}
	folder := filepath.Dir(self)
	if path := lookPath(name, folder+string(filepath.ListSeparator)+os.Getenv("PATH")); path != "" {
		return path, nil
	}
	return "", fmt.Errorf("%s is neither in %s, beside this program, nor in PATH: build it with `make .bin/%s`",
		name, folder, name)
}

// lookPath finds a program, or returns nothing.
func lookPath(name, searchPath string) string {
	for _, folder := range filepath.SplitList(searchPath) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path
		}
	}
	return ""
}

func pluginFolder() string {
	for _, folder := range pluginFolders {
		if !slices.ContainsFunc([]string{"bridge", "host-local", "loopback"}, func(plugin string) bool {
			_, err := os.Stat(filepath.Join(folder, plugin))
			return err != nil
		}) {
			return folder
		}
	}
	return ""
}

// static tells whether a program needs no loader: then it can run in an image that has nothing else.
func static(path string) bool {
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return !slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

func install(ctx context.Context, log string, packages []string) error {
	output, err := os.Create(log)
	if err != nil {
		return fmt.Errorf("keep what apt-get says: %w", err)
	}
	defer output.Close()
	for _, args := range [][]string{
		{"update"},
		append([]string{"install", "-y", "--no-install-recommends"}, packages...),
	} {
		// Another apt-get may be at work, on a new machine often its own updates.
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // killed, it would leave packages half installed
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = output, output
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("apt-get %s: %w: see %s, or install by hand: %s",
				strings.Join(args, " "), err, log, strings.Join(packages, " "))
		}
	}
	return nil
}

func names(missing []requirement) []string {
	var all []string
	for _, r := range missing {
		all = append(all, r.what)
	}
	return all
}

func packagesOf(missing []requirement) []string {
	var all []string
	for _, r := range missing {
		if !slices.Contains(all, r.debian) {
			all = append(all, r.debian)
		}
	}
	return all
}
