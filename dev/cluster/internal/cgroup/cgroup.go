// Package cgroup makes the control group under which a cluster's pods run, in either version of the kernel's interface.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const root = "/sys/fs/cgroup"

// Make makes the group in the hierarchy of every controller. Kubelet wants it there before it starts.
func Make(name string) error {
	if unified() {
		return makeUnified(name)
	}
	controllers, err := mounted(unix.CGROUP_SUPER_MAGIC)
	if err != nil {
		return err
	}
	if len(controllers) == 0 {
		return errors.New("no cgroup controller is mounted in " + root + ": a node cannot run here")
	}
	for _, hierarchy := range controllers {
		group := filepath.Join(hierarchy, name)
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the cgroup: %w", err)
		}
		// A new cpuset is empty, and no process may enter it then.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			all, err := os.ReadFile(filepath.Join(hierarchy, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read the CPUs and memory of this machine: %w", err)
			}
			if err := os.WriteFile(filepath.Join(group, file), all, 0); err != nil {
				return fmt.Errorf("give the cgroup its CPUs and memory: %w", err)
			}
		}
	}
	return nil
}

// makeUnified makes the group in version 2, and hands down to it the controllers that a node needs.
func makeUnified(name string) error {
	group := filepath.Join(root, name)
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the cgroup: %w", err)
	}
	for _, folder := range []string{root, group} {
		file := filepath.Join(folder, "cgroup.subtree_control")
		if err := os.WriteFile(file, []byte("+cpu +cpuset +memory +pids"), 0); err != nil {
			return fmt.Errorf("hand down the cgroup controllers cpu, cpuset, memory and pids: %w", err)
		}
	}
	return nil
}

// Remove removes the group and those below it, which are empty once the cluster's processes are gone: the kernel
// may take a moment for that. A group that is not there is no error.
func Remove(name string) error {
	if name == "" {
		return nil // not all groups of this machine
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := removeOnce(name)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove the cgroups of the cluster: %w", err)
		case <-tick.C:
		}
	}
}

func removeOnce(name string) error {
	hierarchies := []string{root}
	if !unified() {
		var err error
		// Besides the controllers of version 1 a machine may have version 2 mounted, and runc uses it as well.
		if hierarchies, err = mounted(unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC); err != nil {
			return err
		}
	}
	for _, top := range hierarchies {
		var groups []string
		err := filepath.WalkDir(filepath.Join(top, name), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && entry.IsDir() {
				groups = append(groups, path)
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, group := range slices.Backward(groups) { // the lowest first
			if err := unix.Rmdir(group); err != nil && !errors.Is(err, unix.ENOENT) {
				return &fs.PathError{Op: "rmdir", Path: group, Err: err}
			}
		}
	}
	return nil
}

// unified tells whether the kernel's control groups are mounted in version 2.
func unified() bool {
	var info unix.Statfs_t
	return unix.Statfs(root, &info) == nil && info.Type == unix.CGROUP2_SUPER_MAGIC
}

// mounted lists where file systems of these types are mounted below the root.
func mounted(types ...int64) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list the cgroup controllers: %w", err)
	}
	var all []string
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		var info unix.Statfs_t
		if entry.IsDir() && unix.Statfs(path, &info) == nil && slices.Contains(types, info.Type) {
			all = append(all, path)
		}
	}
	return all, nil
}
