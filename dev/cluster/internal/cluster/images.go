package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/seatrial/seatrial/dev/cluster/internal/image"
)

// packImages writes the archive of the images, made of this machine's busybox, to path.
func packImages(ctx context.Context, busybox, path string) error {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return fmt.Errorf("read busybox: %w", err)
	}
	applets, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("ask busybox for its applets: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("make the archive of the images: %w", err)
	}
	defer file.Close()
	if err := image.Write(file, program, strings.Fields(string(applets))); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write the archive of the images: %w", err)
	}
	return nil
}
