package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"
)

const (
	// patience is how long a program may take until it answers; on a busy machine the API server takes the longest.
	patience = 2 * time.Minute
	// beat is how often it is asked.
	beat = 25 * time.Millisecond
)

// supervisor starts the programs of the cluster, which all run until it ends.
type supervisor struct {
	died chan *ProgramError // the first to end by itself
}

// component starts this executable as one of the components.
func (s *supervisor) component(name string, flags []string) error {
	return s.start(name, &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{name}, flags...)})
}

// companion starts the executable that is built beside this one.
func (s *supervisor) companion(name string, flags []string) error {
	return s.start(name, &exec.Cmd{Path: companionPath, Args: append([]string{name}, flags...)})
}

func (s *supervisor) start(name string, cmd *exec.Cmd) error {
	log, err := os.Create(Log(home, name))
	if err != nil {
		return fmt.Errorf("make the log of %s: %w", name, err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = cmd.Wait() // its state says the same
		select {
		case s.died <- &ProgramError{Program: name, Message: fmt.Sprintf("%s ended: %s", name, cmd.ProcessState)}:
		default:
		}
	}()
	return nil
}

// wait waits until the program of that name answers.
func wait(ctx context.Context, name string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return &ProgramError{Program: name, Message: fmt.Sprintf("%s did not answer within %s: %v", name, patience, err)}
		case <-tick.C:
		}
	}
}
