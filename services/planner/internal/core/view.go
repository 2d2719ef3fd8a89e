package core

import (
	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// View returns what people may see of the state.
func View(state *pb.ReleaseState) *pb.GetAnswer {
	state = proto.CloneOf(state)
	v := &pb.GetAnswer{
		Release:     state.GetRelease(),
		Generation:  state.GetGeneration(),
		Active:      active(state.GetActive()),
		Waiting:     state.GetWaiting().GetId(),
		WaitingTest: state.GetWaitingTest().GetId(),
		Running:     state.GetRunning(),
		Proven:      state.GetProven(),
		Revisions:   state.GetRevisions(),
		Quarantine:  state.GetQuarantine(),
	}
	if s := state.GetSuspension(); s.GetSuspended() {
		v.Suspended = s
	}
	return v
}

func active(a *pb.Active) *pb.ActiveView {
	if a == nil {
		return nil
	}
	v := &pb.ActiveView{
		Request:   a.GetRequest().GetId(),
		Verb:      a.GetRequest().GetVerb(),
		Phase:     a.GetPhase(),
		Requested: a.GetRequested(),
		Command:   a.GetOpen(),
	}
	if v.Command != nil {
		v.Command.Quarantined = nil // it stands in the quarantine
	}
	for _, cancel := range a.GetCancels() {
		v.CancelledBy = append(v.CancelledBy, cancel.GetId())
	}
	return v
}

// List returns what stands in a list about the release, nil if there is nothing to tell: nobody has asked for it to be
// there, nor suspended it.
func List(state *pb.ReleaseState) *pb.ListedRelease {
	v := View(state)
	if v.Generation == 0 && v.Running == nil && v.Suspended == nil {
		return nil
	}
	l := &pb.ListedRelease{
		Release:     v.Release,
		Active:      v.Active,
		Waiting:     v.Waiting,
		WaitingTest: v.WaitingTest,
		Suspended:   v.Suspended,
	}
	if l.Active.GetRequested() != nil {
		l.Active.Requested = bare(l.Active.Requested)
	}
	if v.Running == nil {
		return l
	}
	l.Running = &pb.RevisionRecord{}
	for _, r := range v.Revisions {
		if r.GetContent().GetHelmRevision() == v.Running.GetHelmRevision() {
			l.Running = r
		}
	}
	l.Running.Content = bare(v.Running)
	return l
}
