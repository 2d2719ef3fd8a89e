// Package debian takes programs out of Debian's packages, with all that they need to run, without installing them.
package debian

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNone says that this machine does not get its software from Debian or Ubuntu.
var ErrNone = errors.New("there is no apt-get")

// Fetch downloads the packages and all that they depend on, and unpacks them into the folder root. Nothing of the
// machine's own packages is touched, nor any script of a package run.
func Fetch(ctx context.Context, root string, packages ...string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return ErrNone
	}
	archives, err := os.MkdirTemp("", "seatrial-debian-")
	if err != nil {
		return fmt.Errorf("make a folder for the packages: %w", err)
	}
	defer os.RemoveAll(archives)
	if err := os.Mkdir(filepath.Join(archives, "partial"), 0o755); err != nil {
		return fmt.Errorf("make a folder for the packages: %w", err)
	}
	arguments := []string{
		"install", "-q", "-y", "--download-only", "--no-install-recommends",
		"-o", "Dir::Cache::archives=" + archives,
		"-o", "Dir::State::status=/dev/null", // as if nothing was installed
		"-o", "Debug::NoLocking=1",
		"-o", "APT::Sandbox::User=root",
	}
	if err := run(ctx, "apt-get", append(arguments, packages...)...); err != nil {
		// On a new machine the lists of packages are missing, on others they may be old.
		if err := run(ctx, "apt-get", "update", "-q"); err != nil {
			return err
		}
		if err := run(ctx, "apt-get", append(arguments, packages...)...); err != nil {
			return err
		}
	}
	all, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return fmt.Errorf("list the packages: %w", err)
	}
	for _, archive := range all {
		if err := run(ctx, "dpkg-deb", "--extract", archive, root); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, name string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, output)
	}
	return nil
}

// Needs lists what the program at a path in root needs: its loader and its libraries, and theirs. It maps the path
// that each has in an image to the file in root.
func Needs(root, program string) (map[string]string, error) {
	files := map[string]string{}
	folders, err := libraryFolders(root)
	if err != nil {
		return nil, err
	}
	var add func(path string) error
	add = func(path string) error {
		if _, known := files[path]; known {
			return nil
		}
		source := filepath.Join(root, path)
		file, err := elf.Open(source)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		defer file.Close()
		files[path] = source
		if err := addLoader(file, root, files); err != nil {
			return err
		}
		libraries, err := file.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("read which libraries %s needs: %w", path, err)
		}
		for _, library := range libraries {
			found := slices.IndexFunc(folders, func(folder string) bool {
				_, err := os.Stat(filepath.Join(root, folder, library))
				return err == nil
			})
			if found < 0 {
				return fmt.Errorf("%s needs %s, which no package brings", path, library)
			}
			if err := add(filepath.Join(folders[found], library)); err != nil {
				return err
			}
		}
		return nil
	}
	return files, add(program)
}

// addLoader adds the program that loads this one, which packages may have by another path than programs say.
func addLoader(file *elf.File, root string, files map[string]string) error {
	for _, part := range file.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, part.Filesz)
		if _, err := part.ReadAt(name, 0); err != nil {
			return fmt.Errorf("read the name of the loader: %w", err)
		}
		path := strings.TrimRight(string(name), "\x00")
		source := filepath.Join(root, path)
		if target, err := os.Readlink(source); err == nil && filepath.IsAbs(target) {
			source = filepath.Join(root, target)
		}
		files[path] = source
	}
	return nil
}

// libraryFolders are those of the loader, such as /lib/x86_64-linux-gnu.
func libraryFolders(root string) ([]string, error) {
	var folders []string
	for _, pattern := range []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, fmt.Errorf("list the folders of libraries: %w", err)
		}
		for _, folder := range found {
			folders = append(folders, strings.TrimPrefix(folder, root))
		}
	}
	if len(folders) == 0 {
		return nil, fmt.Errorf("%s: %w", filepath.Join(root, "lib"), fs.ErrNotExist)
	}
	return folders, nil
}
