package node

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// Event is what the first process tells the one outside, a line of JSON each on its standard output.
type Event struct {
	Step    string        `json:"step,omitempty"` // what begins now
	Up      bool          `json:"up,omitempty"`   // everything was started
	Failure *ProgramError `json:"failure,omitempty"`
}

// Steps is the number of events with a step, PlayedSteps that with a node that KWOK plays.
const (
	Steps       = 7
	PlayedSteps = 4
)

// ProgramError ends the cluster.
type ProgramError struct {
	Program string `json:"program,omitempty"` // the one whose log tells more
	Message string `json:"message"`
}

func (f *ProgramError) Error() string { return f.Message }

// events writes Events, for several goroutines.
type events struct {
	mu  sync.Mutex
	out io.Writer
}

func (e *events) send(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := json.NewEncoder(e.out).Encode(event); err != nil {
		fmt.Fprintln(os.Stderr, "tell the process outside:", err) // it is dead then, and this one soon
	}
}

func (e *events) step(text string) { e.send(Event{Step: text}) }
