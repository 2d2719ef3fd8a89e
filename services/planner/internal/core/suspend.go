package core

import (
	"fmt"
	"time"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// suspend lets the open command finish, and nothing be commanded after it, until somebody resumes. Requests are accepted
// meanwhile, and wait.
func (d *decision) suspend() {
	r := d.admit()
	d.done(r, d.turn(r, true))
}

// resume gives out what was held back, and lets what waits begin.
func (d *decision) resume() {
	r := d.admit()
	d.done(r, d.turn(r, false))
	if d.suspended() {
		return
	}
	if a := d.state.Active; a != nil && held(a) {
		if a.TransientSince != nil { // the time of the suspension does not count
			a.TransientSince = d.timestamp()
		}
		d.command()
	}
	d.promote()
}

// turn suspends or resumes, unless a newer request has said otherwise, and says what came of it.
func (d *decision) turn(r *pb.Request, suspended bool) string {
	s := d.state
	before := s.Suspension
	is := map[bool]string{true: "suspended", false: "not suspended"}
	switch {
	case r.Sequence < before.GetSequence():
		return fmt.Sprintf("a newer request came first: %s is %s", s.Release, is[before.Suspended])
	case before.GetSuspended() == suspended:
		s.Suspension = &pb.Suspension{Suspended: suspended, Request: before.GetRequest(), Since: before.GetSince(), Sequence: r.Sequence}
		if suspended {
			return fmt.Sprintf("%s is %s already", s.Release, suspendedBy(before))
		}
		return s.Release + " was not suspended"
	}
	s.Suspension = &pb.Suspension{Suspended: suspended, Request: r.Id, Sequence: r.Sequence, Since: d.timestamp()}
	if suspended {
		return s.Release + " is suspended: the open command finishes, and nothing is commanded until somebody resumes"
	}
	return fmt.Sprintf("%s goes on; it was %s", s.Release, suspendedBy(before))
}

func (d *decision) suspended() bool { return d.state.Suspension.GetSuspended() }

func suspendedBy(s *pb.Suspension) string {
	return fmt.Sprintf("suspended by %s since %s", s.GetRequest(), s.GetSince().AsTime().Format(time.RFC3339))
}

// held says that the next command of the active request was held back.
func held(a *pb.Active) bool {
	return a.GetPhase() != pb.PhaseResolving && a.GetOpen() == nil && a.GetRetryAt() == nil
}
