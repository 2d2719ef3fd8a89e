package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// temporary begins the names of the folders that are thrown away.
const temporary = "seatrial-up-"

// state is the folder of what the system keeps while it runs, or longer. A lock on it says that it is in use: the kernel
// drops it with the process, however that ends.
type state struct {
	path      string
	temporary bool
	lock      *os.File
}

// openState takes the folder dir; without a name it makes one that is thrown away by close, and removes those of
// processes that were killed.
func openState(dir string) (*state, error) {
	s := &state{path: dir, temporary: dir == ""}
	var err error
	if s.temporary {
		sweep()
		s.path, err = os.MkdirTemp("", temporary)
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make the folder of the state: %w", err)
	}
	s.lock, err = lock(s.path)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("another one is running on the state in %s: stop it, or choose another --state", s.path)
	}
	if err != nil {
		return nil, fmt.Errorf("take the folder of the state: %w", err)
	}
	return s, nil
}

// close gives the folder up.
func (s *state) close() error {
	defer s.lock.Close()
	if !s.temporary {
		return nil
	}
	if err := os.RemoveAll(s.path); err != nil {
		return fmt.Errorf("throw the state away: %w", err)
	}
	return nil
}

// sweep removes the temporary folders that nobody uses any more. What cannot be removed stays for the next time.
func sweep() {
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), temporary+"*")) // the pattern is a good one
	for _, path := range left {
		if held, err := lock(path); err == nil {
			_ = os.RemoveAll(path)
			_ = held.Close()
		}
	}
}

// lock opens a folder and locks it; EWOULDBLOCK says that somebody else has it.
func lock(path string) (*os.File, error) {
	folder, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = folder.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return folder, nil
}
