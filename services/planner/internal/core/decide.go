// Package core decides what happens to a release. It is pure: no clock, no I/O, no randomness. The same state, time,
// jitter and input give the same step, byte for byte. All policy of the planner is here and nowhere else.
//
// Read it in this order: decide.go and input.go (what goes in and out), table.go (what an input does in which phase),
// then the transitions, each file one concept: accept, supersede, cancel, suspend, deploy, test, rollback, uninstall,
// settle; the commands: command, retry, watchdog; what is remembered of a release: memory, proof, quarantine; and what
// people may see of that: view.
package core

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// ErrInvalidTransition is returned for an input that can never come in the present phase: it is wrong, not late. The
// state stays as it is, and the same input gives the same error again.
var ErrInvalidTransition = errors.New("invalid transition")

// Step is what Decide decided.
type Step struct {
	// State is the new state, to be written by compare-and-set before anything else happens. Its outbox is then worked
	// off in this very order, each entry being harmless to repeat:
	//
	//   - end: write the ledger row of the command as done with this outcome, unless it is done already, and delete the
	//     command's message.
	//   - outcome: publish it.
	//   - settled: publish it, and note it in seatrial-requests.
	//   - command: publish it to its worker, then the outcome `commanded`. CommandTaken, if its subject is taken.
	//
	// Then the outbox is cleared. What is still in the outbox of the state that Decide is given stays in front.
	State *pb.ReleaseState

	// Changed says that State differs from the state that was given; else nothing needs to be written.
	Changed bool

	// Resolve is the request whose chart must be fetched now; ChartResolved tells how it went. Resolving gives it again
	// after a restart.
	Resolve *pb.Request
}

// Decide returns what follows from the input. The given state is not changed; nil or an empty one is a release that was
// never heard of. jitter, in 0..1, shortens pauses. The error is ErrInvalidTransition.
func Decide(p Policy, state *pb.ReleaseState, now time.Time, jitter float64, in Input) (Step, error) {
	if state == nil {
		state = &pb.ReleaseState{}
	}
	d := &decision{policy: p, now: now, jitter: jitter, state: proto.CloneOf(state)}
	s := d.read(in)
	t, ok := transitions[edge{phase(d.state), s}]
	if !ok {
		return Step{}, fmt.Errorf("%w: release %s is %s: %q", ErrInvalidTransition, d.state.Release, phase(d.state), s)
	}
	t.do(d)
	d.forget()
	return Step{State: d.state, Changed: !proto.Equal(d.state, state), Resolve: d.resolve}, nil
}

// decision is one call of Decide: what it was given, and the new state in the making. The transitions are its methods.
type decision struct {
	policy Policy
	now    time.Time
	jitter float64
	state  *pb.ReleaseState

	// What the input holds; the rest is nil.
	request *pb.Request
	chart   *pb.ChartRevision
	outcome *pb.Outcome
	failure *pb.Failure
	number  uint32

	resolve *pb.Request
}

// ignore is the transition of what is known, stale or not due: nothing happens.
func (d *decision) ignore() {}
