package core

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// accept takes the newest request for a new state. It takes the place of whatever waits and is older.
func (d *decision) accept() {
	r := d.admit()
	d.state.NewestSequence = r.Sequence
	if w := d.state.Waiting; w != nil {
		d.supersedeWaiting(w, r)
	}
	if w := d.state.WaitingTest; w != nil && w.Sequence < r.Sequence {
		d.supersedeWaiting(w, r)
		d.state.WaitingTest = nil
	}
	d.state.Waiting = r
	if !d.giveWay() {
		d.promote()
	}
}

// acceptTest takes a `test`, which waits behind the active request and behind the one that waits for a new state.
func (d *decision) acceptTest() {
	r := d.admit()
	if w := d.state.WaitingTest; w != nil {
		d.supersedeWaiting(w, r)
	}
	d.state.WaitingTest = r
	d.promote()
}

// acceptLate takes a request that a newer one has overtaken on its way: what counts is the order in which people asked.
func (d *decision) acceptLate() {
	r := d.admit()
	overtaken := func(known *pb.Request) bool {
		return known.GetSequence() > r.Sequence && (known.Verb != pb.VerbTest || known == d.state.WaitingTest && r.Verb == pb.VerbTest)
	}
	var newer *pb.Request // nil if it is settled already
	for _, known := range []*pb.Request{d.state.Waiting, d.state.Active.GetRequest(), d.state.WaitingTest} {
		if newer == nil && overtaken(known) {
			newer = known
		}
	}
	if c := d.state.Cancellation; newer == nil && r.Sequence < c.GetSequence() {
		newer = &pb.Request{Verb: pb.VerbCancel, Id: c.Request}
	}
	d.supersedeWaiting(r, newer)
}

// admit tells that the input's request is accepted, and returns it as it is kept.
func (d *decision) admit() *pb.Request {
	r := proto.CloneOf(d.request)
	message := r.Verb + " accepted"
	if wantsState(r.Verb) {
		d.state.Generation++
		r.Generation = d.state.Generation
		message = fmt.Sprintf("%s accepted as generation %d", r.Verb, r.Generation)
	} else {
		r.Generation = d.revision(d.state.Running.GetHelmRevision()).GetGeneration()
	}
	if a := d.state.Active; a != nil {
		message += fmt.Sprintf("; %s %s is active", a.Request.GetVerb(), a.Request.GetId())
	}
	if d.suspended() {
		message += fmt.Sprintf("; %s is %s", d.state.Release, suspendedBy(d.state.Suspension))
	}
	d.tell(d.about(r, pb.KindAccepted, message))
	return r
}

// refuse says the last word on a request that cannot be accepted as it stands.
func (d *decision) refuse() {
	d.lastWord(d.request, &pb.Settlement{Result: pb.ResultRejected}, "rejected: "+d.failure.GetReason(), d.failure)
}

// promote makes active what waits, if nothing is active and the release is not suspended: first the request that wants a
// new state, then the test.
func (d *decision) promote() {
	s := d.state
	var r *pb.Request
	switch {
	case s.Active != nil || d.suspended():
		return
	case s.Waiting != nil:
		r, s.Waiting = s.Waiting, nil
	case s.WaitingTest != nil:
		r, s.WaitingTest = s.WaitingTest, nil
	default:
		return
	}
	s.Active = &pb.Active{Request: r, FirstInstall: s.Running == nil}
	d.outcome, d.failure = nil, nil // those were about the request before
	switch r.Verb {
	case pb.VerbDeploy:
		d.startDeploy()
	case pb.VerbRollback:
		d.startRollback()
	case pb.VerbUninstall:
		d.startUninstall()
	case pb.VerbTest:
		d.startTest()
	}
}
