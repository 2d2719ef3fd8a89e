package core

import (
	"fmt"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// giveWay settles the active request `superseded` if somebody has cancelled it, or a newer one waits for a new state, and
// it is at a boundary: no mutation of it is running. A running test is cancelled. It reports whether it did so. Each
// transition asks it before it goes on with something new.
func (d *decision) giveWay() bool {
	a := d.state.Active
	if a == nil || a.Open != nil && a.Phase != pb.PhaseTesting {
		return false
	}
	by, why := d.state.Waiting, "a newer request wants a new state"
	if len(a.Cancels) > 0 {
		by, why = a.Cancels[0], "its request was cancelled"
	}
	if by == nil {
		return false
	}
	message := supersededBy(by) + ": " + d.leftBehind()
	if a.Open != nil {
		a.Verdict = pb.VerdictCancelled
		o := d.aboutCommand(pb.KindTested, "tests cancelled by "+by.Verb+" "+by.Id)
		o.TestRun = &pb.TestRun{
			Verdict:        pb.VerdictCancelled,
			HelmRevision:   d.state.Running.GetHelmRevision(),
			ManifestDigest: d.state.Running.GetManifestDigest(),
			Attempt:        attempt(a),
			StartedAt:      a.Open.StartedAt,
			EndedAt:        d.timestamp(),
			Selection:      a.Request.GetTest().GetFilters(),
			Reason:         why,
		}
		d.end(o)
	}
	d.settleAs(&pb.Settlement{Result: pb.ResultSuperseded, SupersededBy: by.Id}, message, a.Failure)
	return true
}

// supersededBy begins the last word on a request that gives way.
func supersededBy(by *pb.Request) string {
	how := "superseded by "
	if by.Verb == pb.VerbCancel {
		how = "cancelled by "
	}
	return how + by.Verb + " " + by.Id
}

// leftBehind says how the active request leaves the release when it gives way.
func (d *decision) leftBehind() string {
	a, revision := d.state.Active, d.state.Running.GetHelmRevision()
	switch {
	case a.Verdict != "":
		return fmt.Sprintf("revision %d deployed, tests %s, not rolled back", revision, spoken[a.Verdict])
	case a.Failure != nil:
		return "not rolled back after: " + a.Failure.Reason
	case a.Deployed != nil:
		return fmt.Sprintf("revision %d deployed, not tested", revision)
	case a.Phase == pb.PhaseTesting:
		return fmt.Sprintf("revision %d not tested", revision)
	case a.Phase != pb.PhaseResolving && a.TransientTries+a.InterruptedTries > 0:
		return "its last try failed and was not repeated"
	default:
		return "nothing was changed"
	}
}

// supersedeWaiting says the last word on a request that waits, or that came late.
func (d *decision) supersedeWaiting(r, newer *pb.Request) {
	message := "superseded: a newer request came first; nothing was changed"
	if newer != nil {
		message = supersededBy(newer) + ": nothing was changed"
	}
	d.lastWord(r, &pb.Settlement{Result: pb.ResultSuperseded, SupersededBy: newer.GetId()}, message, nil)
}
