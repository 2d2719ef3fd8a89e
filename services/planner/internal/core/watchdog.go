package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// NextTick returns the next deadline that stands in the state, and whether there is one. It may lie in the past.
func NextTick(p Policy, s *pb.ReleaseState) (time.Time, bool) {
	at, _, ok := nextDeadline(p, s)
	return at, ok
}

// nextDeadline returns the first deadline that stands in the state, and what is due then.
func nextDeadline(p Policy, s *pb.ReleaseState) (at time.Time, due signal, ok bool) {
	consider := func(when time.Time, what signal) {
		if !ok || when.Before(at) {
			at, due, ok = when, what, true
		}
	}
	stands := func(when *timestamppb.Timestamp, what signal) {
		if when != nil {
			consider(when.AsTime(), what)
		}
	}
	a := s.GetActive()
	stands(a.GetResolveDeadline(), dueResolve)
	stands(a.GetRetryAt(), dueRetry)
	if open := a.GetOpen(); open != nil {
		stands(open.PublishAt, duePublish)
		silent := silentSince(a)
		if !open.Noworker {
			consider(silent.Add(p.NoWorkerAfter), dueNoWorker)
		}
		consider(silent.Add(p.WithdrawAfter), dueWithdraw)
	}
	return at, due, ok
}

// silentSince returns the time from which on the open command should have had a word: when it was given out, or its
// workers were last seen to be busy with others or, once one of them has it, when the time ends that the command itself
// allows.
func silentSince(a *pb.Active) time.Time {
	open := a.Open
	if open.StartedAt == nil {
		return cmp.Or(open.AttendedAt, open.IssuedAt).AsTime()
	}
	allowed := a.Request.GetUpgrade().GetTimeout()
	switch open.Kind {
	case pb.CommandTest:
		allowed = a.Request.GetTest().GetDeadline()
	case pb.CommandUninstall:
		allowed = uninstallOptions(a).GetTimeout()
	}
	d, _ := time.ParseDuration(allowed) // a request has been checked when it comes here
	return open.StartedAt.AsTime().Add(d)
}

// noteWorker notes that a worker has the command. A later holder's word counts anew, as does the end of a wait.
func (d *decision) noteWorker() {
	open := d.state.Active.Open
	open.StartedAt = d.timestamp()
	open.Noworker = false
}

// waitInLine notes that the command waits for its turn.
func (d *decision) waitInLine() {
	open := d.state.Active.Open
	open.AttendedAt = d.timestamp()
	open.Noworker = false
}

// noWorker tells that nobody has said a word on the command.
func (d *decision) noWorker() {
	open := d.state.Active.Open
	open.Noworker = true
	o := d.aboutCommand(pb.KindNoWorker, "")
	if at := cmp.Or(open.StartedAt, open.AttendedAt); at != nil {
		o.Id += fmt.Sprintf("/%d", at.Seconds) // it can happen to each holder, and after each time that there was one
	}
	o.Failure = d.silence()
	o.Message = o.Failure.Reason
	d.tell(o)
}

// withdraw gives up on the command. Whoever still works on it can no longer finish it.
func (d *decision) withdraw() {
	open := d.state.Active.Open
	d.failure = d.silence()
	o := d.aboutCommand(pb.KindWithdrawn, "withdrawn: "+d.failure.Reason)
	o.Failure = brief(d.failure)
	if d.state.Active.Failure == nil && open.StartedAt == nil {
		d.failure.Reason = also(d.failure.Reason, d.leftBehind())
	}
	d.end(o)
	d.fail()
}

// silence says what is known of a command that nobody has said a word on for too long.
func (d *decision) silence() *pb.Failure {
	open := d.state.Active.Open
	who := worker(d.state)
	if open.StartedAt != nil {
		return &pb.Failure{
			Class:   pb.ClassInterrupted,
			Reason:  fmt.Sprintf("the %s has started command %d (%s) of %s, and has not finished it in time", who, open.Number, open.Kind, d.state.Release),
			Next:    "check that the " + who + " runs; what it has left behind may be half done",
			Mutated: open.Kind != pb.CommandTest,
		}
	}
	return &pb.Failure{
		Class:  pb.ClassTransient,
		Reason: fmt.Sprintf("no %s has taken command %d (%s) of %s for %s", who, open.Number, open.Kind, d.state.Release, span(d.now.Sub(silentSince(d.state.Active)))),
		Next:   "check that the " + who + " runs and can read its commands",
	}
}

// span writes a duration for people: 10m, not 10m0s.
func span(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	return s
}
