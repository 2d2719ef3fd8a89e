package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seatrial/seatrial/dev/cluster/internal/cluster"
	"github.com/seatrial/seatrial/dev/cluster/internal/process"
)

// grace is how long a command may go on without its cluster.
const grace = 10 * time.Second

// runInCluster runs the command in a cluster of its own. The error is an exitError if the command ended by itself.
func runInCluster(ctx context.Context, options cluster.Options, args []string) error {
	if _, err := exec.LookPath(args[0]); err != nil {
		return err // before anything is started
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	starting, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := cluster.Start(starting, options)
	if err != nil {
		return err
	}
	defer func() {
		if stopped := c.Stop(); stopped != nil { // it does not change what the command has achieved
			fmt.Fprintln(os.Stderr, "seatrial-cluster: end the cluster:", stopped)
		}
	}()

	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), kubeconfigVariable+"="+c.Kubeconfig(), auditLogVariable+"="+c.AuditLog(),
		"NO_PROXY="+noProxy(c.Address().String()))
	ended, err := process.Start(cmd)
	if err != nil {
		return fmt.Errorf("run %s: %w", args[0], err)
	}
	for {
		select {
		case <-ended:
			return codeOf(cmd.ProcessState)
		case s := <-signals:
			if s == os.Interrupt && inForeground() {
				continue // the terminal has told the command already; a second time would mean: hurry
			}
			_ = cmd.Process.Signal(s) // it may just have ended
		case <-c.Down():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(grace):
				_ = cmd.Process.Kill()
				<-ended
			}
			return c.Err()
		}
	}
}

// noProxy is NO_PROXY with the API server added: no proxy knows the way to it.
func noProxy(address string) string {
	for _, variable := range []string{"NO_PROXY", "no_proxy"} {
		if present := os.Getenv(variable); present != "" {
			return present + "," + address
		}
	}
	return address
}

// codeOf is the command's exit code, as a shell gives it.
func codeOf(state *os.ProcessState) error {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitError(128 + int(status.Signal()))
	}
	if code := state.ExitCode(); code != 0 {
		return exitError(code)
	}
	return nil
}

// inForeground tells whether a terminal sends its signals to this process, and so to the command too.
func inForeground() bool {
	group, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
