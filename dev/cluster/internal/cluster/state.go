package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// nameOr returns the name, or a unique one if it is empty.
func nameOr(name string) (string, error) {
	if name == "" {
		random := make([]byte, 4)
		_, _ = rand.Read(random) // it never fails
		return hex.EncodeToString(random), nil
	}
	if !namePattern.MatchString(name) {
		return "", fmt.Errorf("%q is no name for a cluster: use up to 40 lower-case letters, digits and dashes", name)
	}
	return name, nil
}

// state is the folder of a cluster's files.
type state struct {
	path      string
	temporary bool
	lock      *os.File // the folder itself, if it was chosen: two clusters must not share it
}

// openState makes the folder; one that was chosen by someone may have an earlier cluster's files, which go.
func openState(dir, name string) (state, error) {
	if dir == "" {
		path, err := os.MkdirTemp("", "seatrial-cluster-"+name+"-")
		if err != nil {
			return state{}, fmt.Errorf("make a folder for the state: %w", err)
		}
		return state{path: path, temporary: true}, node.Reset(path)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return state{}, fmt.Errorf("find the folder for the state: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return state{}, fmt.Errorf("make the folder for the state: %w", err)
	}
	lock, err := os.Open(path)
	if err != nil {
		return state{}, fmt.Errorf("open the folder for the state: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return state{}, fmt.Errorf("another cluster keeps its state in %s: choose another --dir", path)
	}
	return state{path: path, lock: lock}, node.Reset(path)
}

// close removes the folder if nobody chose it.
func (s state) close() error {
	if s.temporary {
		if err := os.RemoveAll(s.path); err != nil {
			return fmt.Errorf("remove the state: %w", err)
		}
		return nil
	}
	return s.lock.Close()
}
