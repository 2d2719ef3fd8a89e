package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/seatrial/seatrial/dev/cluster/internal/debian"
	"github.com/seatrial/seatrial/dev/cluster/internal/image"
	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

// packImages writes the archives of the images into the folder of the state.
func packImages(ctx context.Context, busybox, state string, told *progress) error {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return fmt.Errorf("read busybox: %w", err)
	}
	listed, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("ask busybox for its applets: %w", err)
	}
	applets := strings.Fields(string(listed))
	if err := write(node.Images(state), func(w io.Writer) error { return image.Write(w, program, applets) }); err != nil {
		return err
	}
	cached, err := debianImages(ctx, program, applets, told)
	if err != nil && ctx.Err() == nil {
		told.note("no images of curl and nginx: %v", err) // few need them, and this machine may be on its own
		return nil
	}
	if err != nil {
		return err
	}
	return write(node.DebianImages(state), func(w io.Writer) error {
		file, err := os.Open(cached)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(w, file)
		return err
	})
}

// debianAge is how long images made of Debian's packages are good: to ask which versions there are takes seconds.
const debianAge = 30 * 24 * time.Hour

// debianImages finds the archive of the images that are made of Debian's packages in this user's cache, or makes it.
func debianImages(ctx context.Context, busybox []byte, applets []string, told *progress) (string, error) {
	caches, err := os.UserCacheDir()
	if err != nil {
		caches = "/var/cache" // without a home it is a service's
	}
	path := filepath.Join(caches, "seatrial-cluster", "images.tar")
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) < debianAge {
		return path, nil
	}
	told.note("fetching %s from Debian", strings.Join(image.DebianPackages, ", "))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make the cache of images: %w", err)
	}
	root, err := os.MkdirTemp("", "seatrial-root-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the packages: %w", err)
	}
	defer os.RemoveAll(root)
	if err := debian.Fetch(ctx, root, image.DebianPackages...); err != nil {
		return "", err
	}
	return path, write(path, func(w io.Writer) error { return image.WriteDebian(w, busybox, applets, root) })
}

// write writes a file aside first, so that nobody sees half of it.
func write(path string, content func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("make the archive of the images: %w", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err := content(file); err != nil {
		return fmt.Errorf("write the archive of the images: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write the archive of the images: %w", err)
	}
	return os.Rename(file.Name(), path)
}
