// Package claim keeps what the clusters of this machine hold, so that two never take the same and what a killed one
// left is found.
//
// Each running cluster holds a lock on a record of its own. The kernel drops the lock with the process, however it
// ends: a record without a lock is a dead cluster's.
package claim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seatrial/seatrial/dev/cluster/internal/cgroup"
	"github.com/seatrial/seatrial/dev/cluster/internal/link"
)

// Registry is the folder of the records.
type Registry string

// Machine is the registry of root's clusters. It is gone after a reboot, as is all that its records speak of, except
// temporary folders.
const Machine Registry = "/run/seatrial-cluster"

// Mine is the registry of this user's clusters.
func Mine() Registry {
	if os.Geteuid() == 0 {
		return Machine
	}
	folder := os.Getenv("XDG_RUNTIME_DIR")
	if folder == "" {
		return Registry(filepath.Join(os.TempDir(), fmt.Sprintf("seatrial-cluster-%d", os.Geteuid())))
	}
	return Registry(filepath.Join(folder, "seatrial-cluster"))
}

const (
	suffix   = ".json"
	lockBeat = 20 * time.Millisecond
)

// Record is what a cluster leaves behind if it is killed.
type Record struct {
	Cgroup    string `json:"cgroup,omitempty"`
	Interface string `json:"interface,omitempty"`
	Temporary string `json:"temporary,omitempty"` // the folder of its state, unless someone chose it
}

// ErrRunning says that the name is taken.
var ErrRunning = errors.New("a cluster of this name is running")

// Claim is the record of one living cluster.
type Claim struct {
	registry Registry
	file     *os.File
}

// Lock waits until no other cluster is choosing what it takes, and returns the function that lets the next one.
func (r Registry) Lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(string(r), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the running clusters: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(string(r), "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of all clusters: %w", err)
	}
	// Another cluster may hold it for minutes, while it installs programs: the wait must end with ctx.
	tick := time.NewTicker(lockBeat)
	defer tick.Stop()
	for {
		locked, err := tryLock(file)
		if locked {
			return func() { file.Close() }, nil
		}
		if err == nil {
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-tick.C:
				continue
			}
		}
		file.Close()
		return nil, fmt.Errorf("take the lock of all clusters: %w", err)
	}
}

// Take makes the record of a new cluster. The caller holds the lock.
func (r Registry) Take(name string, record Record) (*Claim, error) {
	file, err := os.OpenFile(filepath.Join(string(r), name+suffix), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the record of the cluster: %w", err)
	}
	if locked, err := tryLock(file); !locked {
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("lock the record of the cluster: %w", err)
		}
		return nil, fmt.Errorf("%w: %s: choose another --name", ErrRunning, name)
	}
	claim := &Claim{registry: r, file: file}
	if err := claim.Update(record); err != nil {
		return nil, errors.Join(err, claim.Abandon())
	}
	return claim, nil
}

// Update writes the record anew.
func (c *Claim) Update(record Record) error {
	encoded, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode the record of the cluster: %w", err)
	}
	if err := c.file.Truncate(0); err != nil {
		return fmt.Errorf("write the record of the cluster: %w", err)
	}
	if _, err := c.file.WriteAt(encoded, 0); err != nil {
		return fmt.Errorf("write the record of the cluster: %w", err)
	}
	return nil
}

// Release removes the record of a cluster that left nothing.
func (c *Claim) Release() error {
	defer c.file.Close()
	// Else another of the same name could take the record between its removal here and the end of its lock.
	unlock, err := c.registry.Lock(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(c.file.Name()); err != nil {
		return fmt.Errorf("remove the record of the cluster: %w", err)
	}
	return nil
}

// Abandon leaves the record to the next cluster, which will remove what it speaks of.
func (c *Claim) Abandon() error {
	return c.file.Close()
}

// Sweep removes what dead clusters left, and tells of how many. The caller holds the lock.
func (r Registry) Sweep() (int, error) {
	records, err := filepath.Glob(filepath.Join(string(r), "*"+suffix))
	if err != nil {
		return 0, fmt.Errorf("list the records of the clusters: %w", err)
	}
	swept := 0
	var failed []error
	for _, path := range records {
		dead, err := sweep(path)
		if err != nil {
			name := strings.TrimSuffix(filepath.Base(path), suffix)
			failed = append(failed, fmt.Errorf("remove what the dead cluster %s left: %w", name, err))
		} else if dead {
			swept++
		}
	}
	return swept, errors.Join(failed...)
}

// sweep removes what the record speaks of, if its cluster is dead.
func sweep(path string) (dead bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	if locked, err := tryLock(file); !locked {
		return false, err
	}
	var record Record
	// A record that was not written yet speaks of nothing.
	if err := json.NewDecoder(file).Decode(&record); err == nil {
		if err := record.remove(); err != nil {
			return false, err
		}
	}
	return true, os.Remove(path)
}

func (r Record) remove() error {
	err := cgroup.Remove(r.Cgroup)
	if r.Interface != "" {
		err = errors.Join(err, link.Remove(r.Interface))
	}
	if r.Temporary != "" {
		err = errors.Join(err, os.RemoveAll(r.Temporary))
	}
	return err
}

// tryLock tells whether it got the lock of the file, which ends when the file is closed.
func tryLock(file *os.File) (locked bool, err error) {
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
