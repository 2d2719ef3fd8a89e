package core

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// startDeploy begins with the chart: from its digest on, what is tested is what is deployed.
func (d *decision) startDeploy() {
	a := d.state.Active
	a.Phase = pb.PhaseResolving
	a.ResolveDeadline = d.after(d.policy.ResolveTimeout)
	d.fetch()
}

// fetch has the chart fetched, for the first time or again.
func (d *decision) fetch() {
	d.state.Active.RetryAt = nil
	d.resolve = d.state.Active.Request
}

// Resolving returns the request whose chart is being fetched, nil if there is none. Any planner that comes upon the
// state, after a restart or a crash, fetches it again.
func Resolving(s *pb.ReleaseState) *pb.Request {
	if a := s.GetActive(); a.GetPhase() == pb.PhaseResolving && a.RetryAt == nil {
		return a.Request
	}
	return nil
}

// unresolved gives up on a chart that was not there in time.
func (d *decision) unresolved() {
	d.failure = &pb.Failure{
		Class:  pb.ClassTransient,
		Reason: fmt.Sprintf("the chart of %s could not be fetched within %s", d.state.Release, span(d.policy.ResolveTimeout)),
		Next:   "check that the chart's source can be reached from the planner, then ask again",
	}
	d.fail()
}

// deploy sends the resolved chart to an executor, unless the planner itself can see that it failed here before.
func (d *decision) deploy() {
	a := d.state.Active
	a.Requested = proto.CloneOf(d.chart)
	a.ResolveDeadline, a.RetryAt = nil, nil
	if q := d.quarantined("", fingerprint(a)); q != nil && !a.Request.GetForce() {
		d.failure = &pb.Failure{
			Class:  pb.ClassRejected,
			Reason: fmt.Sprintf("%s with these values and options is in quarantine on %s: %s", title(a.Requested), d.state.Release, failedBefore(q)),
			Next:   liftable,
		}
		d.reject()
		return
	}
	d.enter(pb.PhaseDeploying)
	d.command()
}

// deployed goes on to the tests.
func (d *decision) deployed() {
	a, m := d.state.Active, d.outcome.GetMutation()
	a.Open = nil
	d.startedAnew(m.GetHelmRevision())
	a.Deployed = d.learnDone(a.Requested)
	a.QuarantineKey = m.GetQuarantineKey()
	d.remember(a.Deployed, pb.StandingUnproven, "")
	d.testDeployed()
}

// testDeployed tests what the active request has just put there, unless its tests are switched off.
func (d *decision) testDeployed() {
	a := d.state.Active
	switch {
	case !a.Request.GetTest().GetEnabled():
		d.settle(pb.ResultDeployed, fmt.Sprintf("%s deployed as revision %d; tests are switched off", title(a.Deployed), a.Deployed.HelmRevision), nil)
	case d.giveWay():
	default:
		d.enter(pb.PhaseTesting)
		d.command()
	}
}

// inputsFailed is about inputs that cannot be deployed: nothing was mutated, so there is nothing to roll back.
func (d *decision) inputsFailed() {
	d.quarantine(d.failure.Reason)
	if d.state.Running != nil {
		d.failure.Reason = also(d.failure.Reason, "what ran before still runs")
	}
	d.fail()
}

// upgradeFailed is about an install or upgrade that failed half-way.
func (d *decision) upgradeFailed() {
	d.learnFailed()
	d.quarantine(d.failure.Reason)
	d.undoUpgrade()
}

// deployInterrupted does it again, with a new command: nothing is decided when a worker dies. If they keep dying over
// it, it has failed, but that says nothing against the inputs.
func (d *decision) deployInterrupted() {
	if !d.doAgain() {
		d.undoUpgrade()
	}
}

// undoUpgrade goes back to what is known to be good, if upgrade.onFailure says so and there is any.
func (d *decision) undoUpgrade() {
	a := d.state.Active
	a.FailedRevision = d.outcome.GetMutation().GetHelmRevision()
	if a.Request.GetUpgrade().GetOnFailure() != pb.OnFailureRollback {
		d.fail()
		return
	}
	d.rollBack(d.target(nil), pb.ResultFailed)
}
