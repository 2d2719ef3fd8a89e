package core

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// startTest tests what runs.
func (d *decision) startTest() {
	a := d.state.Active
	if d.state.Running == nil {
		d.failure = &pb.Failure{
			Class:  pb.ClassRejected,
			Reason: fmt.Sprintf("nothing runs at %s that Seatrial has deployed", d.state.Release),
			Next:   "deploy a chart first",
		}
		d.reject()
		return
	}
	a.Requested = proto.CloneOf(d.state.Running)
	a.Request.Generation = d.revision(a.Requested.HelmRevision).GetGeneration()
	d.enter(pb.PhaseTesting)
	d.command()
}

// testsPassed proves what was tested.
func (d *decision) testsPassed() {
	d.endRun(pb.VerdictPassed)
	d.prove("tests passed")
}

// noTests proves a chart that has none, unless some are required. Tests that were all filtered out prove nothing.
func (d *decision) noTests() {
	a := d.state.Active
	d.endRun(pb.VerdictNoTests)
	switch {
	case len(d.outcome.GetTestRun().GetTests()) > 0:
		d.hold("the filters choose none of its tests", "choose at least one test, or ask for the release to be tested")
	case a.Request.GetTest().GetRequired():
		d.hold("it has no tests, and the request requires some", "add tests to the chart")
	default:
		d.prove("the chart has no tests")
	}
}

// testsFailed does what onFailure says, once the attempts that the request has bought are used up.
func (d *decision) testsFailed() {
	a := d.state.Active
	verdict := d.outcome.GetTestRun().GetVerdict()
	d.endRun(verdict)
	a.Attempt++
	if a.Attempt < a.Request.GetTest().GetAttempts() {
		if !d.giveWay() {
			d.command()
		}
		return
	}
	d.failure = d.testFailure(verdict)
	a.FailedRevision = d.state.Running.GetHelmRevision()
	d.disprove(verdict)
	if a.Request.GetVerb() != pb.VerbTest {
		d.quarantine(d.failure.Reason)
	}
	d.afterTests(a.Request.GetTest().GetOnFailure())
}

// testsErrored is about tests that could not be run, which says nothing about what was deployed.
func (d *decision) testsErrored() {
	a := d.state.Active
	d.endRun(pb.VerdictErrored)
	a.ErrorAttempt++
	// A run that failed for good would end in the same way: its filter names an unknown test, its record is not what it was.
	if d.outcome.GetFailure().GetClass() != pb.ClassFailed && a.ErrorAttempt < a.Request.GetTest().GetErrorAttempts() {
		if !d.giveWay() {
			d.command()
		}
		return
	}
	d.failure = d.testFailure(pb.VerdictErrored)
	d.afterTests(a.Request.GetTest().GetOnError())
}

// testInterrupted tests again, with a new command: there is no verdict yet. If testers keep dying over it, the tests
// could not be run.
func (d *decision) testInterrupted() {
	if d.doAgain() {
		return
	}
	d.endRun(pb.VerdictErrored)
	d.afterTests(d.state.Active.Request.GetTest().GetOnError())
}

// testsCancelled is about a run that somebody else than a newer request has stopped.
func (d *decision) testsCancelled() {
	d.endRun(pb.VerdictCancelled)
	if !d.giveWay() {
		d.hold("its tests were cancelled", "ask for the release to be tested")
	}
}

// endRun notes the verdict of the command that is no longer open.
func (d *decision) endRun(verdict string) {
	d.state.Active.Open = nil
	d.state.Active.Verdict = verdict
}

// afterTests goes back, takes away or holds, with the failure of the input.
func (d *decision) afterTests(policy string) {
	a := d.state.Active
	if policy == pb.OnFailureUninstall {
		if a.FirstInstall {
			d.takeAway()
			return
		}
		policy = pb.OnFailureRollback
	}
	if policy == pb.OnFailureRollback {
		target := d.target(d.state.Running)
		if target != nil {
			a.FailedRevision = d.state.Running.GetHelmRevision()
		}
		d.rollBack(target, pb.ResultHeld)
		return
	}
	d.settle(pb.ResultHeld, "held: "+d.failure.Reason, d.failure)
}

// hold settles what runs as deployed, but not proven.
func (d *decision) hold(why, next string) {
	f := &pb.Failure{Class: pb.ClassFailed, Reason: d.subject() + " is not proven: " + why, Next: next}
	d.settle(pb.ResultHeld, "held: "+f.Reason, f)
}

// spoken are the verdicts in sentences about tests.
var spoken = map[string]string{
	pb.VerdictFailed:    "failed",
	pb.VerdictTimedOut:  "timed out",
	pb.VerdictErrored:   "could not be run",
	pb.VerdictCancelled: "were cancelled",
}

// testFailure says which tests the verdict comes from.
func (d *decision) testFailure(verdict string) *pb.Failure {
	run := d.outcome.GetTestRun()
	var names []string
	for _, t := range run.GetTests() {
		if t.GetPhase() == verdict {
			names = append(names, t.GetName())
		}
	}
	reason := fmt.Sprintf("tests of %s %s", d.subject(), spoken[verdict])
	if len(names) > 0 {
		reason += " (" + strings.Join(names, ", ") + ")"
	}
	if why := run.GetReason(); why != "" {
		reason += ": " + why
	}
	next := d.failure.GetNext()
	if next == "" {
		next = fmt.Sprintf("read the logs in the outcome tested of command %d", d.outcome.GetNumber())
	}
	return &pb.Failure{Class: pb.ClassFailed, Reason: cut(reason, maxReason), Next: next}
}

// subject names what runs, for people.
func (d *decision) subject() string {
	running := d.state.Running
	return fmt.Sprintf("revision %d (%s) of %s", running.GetHelmRevision(), title(running), d.state.Release)
}

// title names a chart for people.
func title(c *pb.ChartRevision) string {
	return strings.TrimSpace(c.GetName() + " " + c.GetVersion())
}
