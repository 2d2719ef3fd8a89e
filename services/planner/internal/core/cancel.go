package core

import (
	"fmt"
	"strings"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// maxCancels is how many can wait for one request: their last words are told at once, in one outbox.
const maxCancels = 4

// cancel stops the request that it names, or all that were asked for before it: what waits at once, the active one at its
// next boundary. It is done when they are settled.
func (d *decision) cancel() {
	r, s := d.admit(), d.state
	named := r.GetCancels()
	meant := func(known *pb.Request) bool {
		return known != nil && (known.Id == named || named == "" && known.Sequence < r.Sequence)
	}
	if a := s.Active; meant(a.GetRequest()) && len(a.Cancels) == maxCancels {
		reason := fmt.Sprintf("%d cancels of %s %s wait already for its command to end", maxCancels, a.Request.Verb, a.Request.Id)
		d.lastWord(r, &pb.Settlement{Result: pb.ResultRejected}, "rejected: "+reason, &pb.Failure{
			Class: pb.ClassRejected, Reason: reason, Next: "nothing: the first of them stops it",
		})
		return
	}
	if named == "" && r.Sequence > s.Cancellation.GetSequence() {
		s.Cancellation = &pb.Cancellation{Request: r.Id, Sequence: r.Sequence}
	}
	var dropped []string
	for _, waiting := range []**pb.Request{&s.Waiting, &s.WaitingTest} {
		if known := *waiting; meant(known) {
			d.supersedeWaiting(known, r)
			*waiting = nil
			dropped = append(dropped, known.Verb+" "+known.Id)
		}
	}
	switch {
	case meant(s.Active.GetRequest()):
		s.Active.Cancels = append(s.Active.Cancels, r)
		d.giveWay()
	case len(dropped) > 0:
		d.done(r, "cancelled: "+strings.Join(dropped, ", "))
	case named != "":
		d.lastWord(r, &pb.Settlement{Result: pb.ResultRejected}, "rejected: "+d.notOpen(named), &pb.Failure{
			Class:  pb.ClassRejected,
			Reason: d.notOpen(named),
			Next:   "ask seatrial.api.wait for its last word, or seatrial.api.get for what is active and what waits",
		})
	default:
		d.done(r, fmt.Sprintf("nothing to cancel: of %s nothing that was asked for before is active or waits", s.Release))
	}
}

// notOpen says that a request cannot be cancelled, and what could be.
func (d *decision) notOpen(id string) string {
	s := d.state
	var open []string
	for _, r := range []*pb.Request{s.Active.GetRequest(), s.Waiting, s.WaitingTest} {
		if r != nil {
			open = append(open, r.Verb+" "+r.Id)
		}
	}
	known := "nothing is"
	if len(open) > 0 {
		known = "those are " + strings.Join(open, ", ")
	}
	return fmt.Sprintf("request %s is neither active nor waiting at %s; %s", id, s.Release, known)
}

// cancelled says the last word on the `cancel`s of a request that is settled now.
func (d *decision) cancelled(a *pb.Active, result string) {
	for _, r := range a.Cancels {
		what := a.Request.GetVerb() + " " + a.Request.GetId()
		if result == pb.ResultSuperseded {
			d.done(r, "cancelled: "+what)
		} else {
			d.done(r, fmt.Sprintf("%s had come to its end before it could be stopped: %s", what, result))
		}
	}
}

// done says the last word on a request that changes no more than what the planner knows.
func (d *decision) done(r *pb.Request, message string) {
	d.lastWord(r, &pb.Settlement{Result: pb.ResultDone}, message, nil)
}
