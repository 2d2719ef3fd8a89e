// Package process starts processes that never outlive this one.
package process

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts cmd so that the kernel kills it as soon as this process dies, however it dies. It waits for it too:
// the channel is closed when it has ended, and its ProcessState then tells how.
func Start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL

	started := make(chan error)
	done := make(chan struct{})
	go func() {
		// To the kernel a child's parent is the thread that started it: this one has to stay until the child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // the ProcessState says the same
		close(done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return done, nil
}
