package core

import (
	"cmp"
	"fmt"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// noProven ends the reason of a request that is not rolled back because there is nothing to go back to.
const noProven = "no proven revision to go back to"

// startRollback goes back to the revision that the request names, or to the newest proven one before the current.
func (d *decision) startRollback() {
	a := d.state.Active
	to := a.Request.GetToRevision()
	var target *pb.ChartRevision
	switch known := d.revision(to); {
	case d.state.Running == nil:
		d.failure = &pb.Failure{
			Class:  pb.ClassRejected,
			Reason: fmt.Sprintf("nothing runs at %s that Seatrial has deployed", d.state.Release),
			Next:   "deploy a chart first",
		}
	case to == 0:
		if target = d.provenBefore(); target == nil {
			d.failure = &pb.Failure{
				Class: pb.ClassRejected,
				Reason: fmt.Sprintf("%s: no proven revision before the current one has other content than revision %d, which runs",
					d.state.Release, d.state.Running.GetHelmRevision()),
				Next: "name the revision (toRevision), or deploy a chart",
			}
		}
	case known.GetStanding() == pb.StandingBad:
		d.failure = &pb.Failure{
			Class:  pb.ClassRejected,
			Reason: fmt.Sprintf("revision %d of %s has failed before", to, d.state.Release),
			Next:   "choose another revision, or deploy its chart with force",
		}
	case known != nil:
		target = d.whole(known.Content)
	default:
		target = &pb.ChartRevision{HelmRevision: to}
	}
	if target == nil {
		d.reject()
		return
	}
	a.Requested = target
	d.goBack(target)
}

// rollBack puts back what is known to be good, because of the failure of the input; it settles with the other result
// where there is no such thing.
func (d *decision) rollBack(target *pb.ChartRevision, otherwise string) {
	a := d.state.Active
	if target == nil {
		d.failure.Reason = also(d.failure.Reason, noProven)
		d.settle(otherwise, otherwise+": "+d.failure.Reason, d.failure)
		return
	}
	a.Failure = d.failure
	if !d.giveWay() {
		d.goBack(target)
	}
}

func (d *decision) goBack(target *pb.ChartRevision) {
	d.state.Active.RollbackTarget = bare(target)
	d.enter(pb.PhaseRollingBack)
	d.command()
}

// rolledBack is the end of a rollback that nobody asked for. One that was asked for is tested, unless it went to proven
// content: that keeps its proof.
func (d *decision) rolledBack() {
	a := d.state.Active
	a.Open = nil
	a.Deployed = d.learnDone(a.RollbackTarget)
	kept := d.inherit()
	if a.Failure == nil { // asked for: what was remembered of the target was not all
		asked := a.Requested
		a.Requested = copied(d.state.Running)
		a.Requested.HelmRevision = asked.GetHelmRevision()
		a.Requested.ManifestDigest = cmp.Or(asked.GetManifestDigest(), a.Requested.ManifestDigest)
	}
	what := fmt.Sprintf("%s is back as revision %d", title(a.Deployed), a.Deployed.HelmRevision)
	switch {
	case a.Failure != nil && kept:
		d.settle(pb.ResultRolledBack, "rolled back: "+also(a.Failure.Reason, what+", proven"), a.Failure)
	case a.Failure != nil:
		d.settle(pb.ResultRolledBack, "rolled back: "+also(a.Failure.Reason, what+", not proven"), a.Failure)
	case kept:
		d.settle(pb.ResultProven, what+", proven as before", nil)
	default:
		d.testDeployed()
	}
}

// target returns where a rollback goes that nobody asked for: to the last proven content; else to the newest revision
// deployed before this generation that is not known to be bad; nil if there is none. The content of except is none.
func (d *decision) target(except *pb.ChartRevision) *pb.ChartRevision {
	before := d.state.Active.Request.GetGeneration()
	return d.newest(func(r *pb.RevisionRecord) bool {
		return proven(r) && !same(r.Content, except)
	}, func(r *pb.RevisionRecord) bool {
		return r.Standing != pb.StandingBad && r.Generation < before && !same(r.Content, except)
	})
}

// provenBefore returns the newest proven content before what runs: not what runs under another number.
func (d *decision) provenBefore() *pb.ChartRevision {
	running := d.state.Running
	return d.newest(func(r *pb.RevisionRecord) bool {
		return proven(r) && r.Content.GetHelmRevision() < running.GetHelmRevision() && !same(r.Content, running)
	})
}
