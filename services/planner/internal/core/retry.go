package core

import (
	"fmt"
	"time"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// tryAgain pauses after a transient failure, then the phase's work is done again: the chart fetched, or a new command
// given out. With the budget spent the request has failed.
func (d *decision) tryAgain() {
	a, p := d.state.Active, d.policy
	d.learnFailed()
	a.TransientTries++
	if a.TransientSince == nil {
		a.TransientSince = d.timestamp()
	}
	next := d.after(d.pause(a.TransientTries))
	if a.TransientTries >= p.TransientTries || next.AsTime().Sub(a.TransientSince.AsTime()) > p.TransientBudget {
		d.failure.Reason = also(d.failure.Reason, fmt.Sprintf("given up after %d tries", a.TransientTries))
		d.fail()
		return
	}
	if !d.giveWay() {
		a.RetryAt = next
	}
}

// pause returns the pause after the given number of tries.
func (d *decision) pause(tries int32) time.Duration {
	pause := d.policy.BackoffMin
	for ; tries > 1 && pause < d.policy.BackoffMax; tries-- {
		pause *= 2
	}
	pause = min(pause, d.policy.BackoffMax)
	return pause - time.Duration(d.jitter*float64(pause)/2)
}

// interrupted does it again, with a new command, within its budget.
func (d *decision) interrupted() {
	if !d.doAgain() {
		d.fail()
	}
}

// doAgain gives the phase's command out again at once, under a new number, after its worker died. It reports false once
// that has happened too often; the failure of the input then says so.
func (d *decision) doAgain() bool {
	a := d.state.Active
	kind := commandOf[a.Phase]
	d.learnFailed()
	a.InterruptedTries++
	if a.InterruptedTries < d.policy.InterruptedTries {
		if !d.giveWay() {
			d.command()
		}
		return true
	}
	reason := fmt.Sprintf("the %s of %s was interrupted %d times", kind, d.state.Release, a.InterruptedTries)
	if last := d.failure.GetReason(); last != "" {
		reason += "; the last time: " + last
	}
	d.failure = &pb.Failure{
		Class:   pb.ClassInterrupted,
		Reason:  cut(reason, maxReason),
		Next:    "find out why the workers die or lose their leases, then ask again",
		Mutated: kind != pb.CommandTest,
	}
	return false
}
