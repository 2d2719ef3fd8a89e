package core

import (
	"cmp"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Input is one thing that happened to a release. Inputs may be repeated and come late and in any order: what is stale is
// ignored by rule. Decide does not change the messages in them.
type Input interface{ input() }

// RequestReceived is a request that is well formed, with its defaults filled in and within the operator's caps. Its
// Generation is not set yet. Its Fingerprint covers inline values and options, not the chart: Decide adds the chart's
// digest once it is known. It is empty where something else decides the result as well. A request that was settled
// before must not come again: the caller looks that up in seatrial-requests, after it has flushed the outbox.
type RequestReceived struct{ Request *pb.Request }

// RequestRejected is a request that cannot be accepted as it stands, and why. Of the request only id, release, verb,
// sequence and traceparent are read. Where the id is what is wrong (it was used before with another body), the refusal
// must come under the id seq-<sequence>: the request that has the id has its own last word. As above, one that was
// settled before must not come again.
type RequestRejected struct {
	Request *pb.Request
	Failure *pb.Failure
}

// ChartResolved ends the fetching of a request's chart: either Chart (name, version, app version, digest, annotations)
// or Failure is set. A transient failure is tried again within its budget.
type ChartResolved struct {
	RequestID string
	Chart     *pb.ChartRevision
	Failure   *pb.Failure
}

// OutcomeReceived is an outcome about the release, from whomever; the planner's own are ignored.
type OutcomeReceived struct{ Outcome *pb.Outcome }

// CommandTaken says that a command in the outbox could not be published because its subject is still taken by another
// one. It leaves the outbox and is tried again at a tick, so that nothing behind it waits.
type CommandTaken struct{ Number uint32 }

// Tick says that time has passed. One tick handles one deadline: NextTick may then lie in the past again. A tick at
// which nothing is due changes nothing.
type Tick struct {
	// Attended: who would take the open command is there, and busy with the commands of other releases.
	Attended bool
}

func (RequestReceived) input() {}
func (RequestRejected) input() {}
func (ChartResolved) input()   {}
func (OutcomeReceived) input() {}
func (CommandTaken) input()    {}
func (Tick) input()            {}

// signal is what an input means to a release: with the phase it selects the transition.
type signal string

const (
	requestNewest  signal = "request: newest" // wants a new state, and is newer than any before it
	requestLate    signal = "request: late"   // would have yielded to a newer one, or a cancel, that came before it
	requestTest    signal = "request: test"   // tests what runs when its turn comes
	requestCancel  signal = "request: cancel"
	requestSuspend signal = "request: suspend"
	requestResume  signal = "request: resume"
	requestForgive signal = "request: forgive"
	requestKnown   signal = "request: known"        // was accepted before
	requestRefused signal = "request: refused"      // is not acceptable
	requestIDTaken signal = "request: id in use"    // is refused under the id of another one, which is active or waits
	requestUnknown signal = "request: unknown verb" // belongs to no row of the table, as the one before

	chartResolved signal = "chart: resolved"
	chartFailed   signal = "chart: failed " // + class
	chartLate     signal = "chart: late"    // of a request that is no longer resolving

	outcome     signal = "outcome: "           // + kind; see the table for what follows
	outcomeLate signal = "outcome: late"       // about no open command
	outcomeOwn  signal = "outcome: of planner" // told by the planner itself

	commandTaken signal = "command: subject taken"

	dueNothing  signal = "due: nothing"
	dueResolve  signal = "due: chart"
	dueRetry    signal = "due: next try"
	duePublish  signal = "due: publish again"
	dueNoWorker signal = "due: no worker"
	dueWithdraw signal = "due: withdraw"
	dueAttended signal = "due: workers are busy" // in place of these two

	// The kinds that come with a class or a verdict, which follows.
	deployFailed    signal = outcome + pb.KindDeployFailed + " "
	rollbackFailed  signal = outcome + pb.KindRollbackFailed + " "
	uninstallFailed signal = outcome + pb.KindUninstallFailed + " "
	tested          signal = outcome + pb.KindTested + " "
)

// untouched is the class `failed` of a mutation that was refused before anything was mutated.
const untouched = "untouched"

// read takes the input into the decision and returns what it means.
func (d *decision) read(in Input) signal {
	switch in := in.(type) {
	case RequestReceived:
		d.request = in.Request
		d.state.Release = cmp.Or(d.state.Release, in.Request.GetRelease())
		return d.readRequest()
	case RequestRejected:
		d.request, d.failure = in.Request, brief(in.Failure)
		d.state.Release = cmp.Or(d.state.Release, in.Request.GetRelease())
		if d.knows(in.Request.GetId()) {
			return requestIDTaken
		}
		return requestRefused
	case ChartResolved:
		d.chart, d.failure = in.Chart, brief(in.Failure)
		switch a := d.state.Active; {
		case a.GetPhase() != pb.PhaseResolving || a.GetRequest().GetId() != in.RequestID:
			return chartLate
		case in.Failure == nil && in.Chart != nil:
			return chartResolved
		default:
			return chartFailed + signal(in.Failure.GetClass())
		}
	case OutcomeReceived:
		d.outcome, d.failure = in.Outcome, brief(in.Outcome.GetFailure())
		return d.readOutcome()
	case CommandTaken:
		d.number = in.Number
		return commandTaken
	case Tick:
		if at, due, ok := nextDeadline(d.policy, d.state); ok && !at.After(d.now) {
			if in.Attended && (due == dueNoWorker || due == dueWithdraw) && d.state.Active.Open.StartedAt == nil {
				return dueAttended
			}
			return due
		}
		return dueNothing
	}
	return ""
}

func (d *decision) readRequest() signal {
	r, s := d.request, d.state
	switch verb, sequence := r.GetVerb(), r.GetSequence(); {
	case d.knows(r.GetId()):
		return requestKnown
	case immediate[verb] != "":
		return immediate[verb]
	case verb == pb.VerbTest && sequence < max(s.NewestSequence, s.WaitingTest.GetSequence(), s.Cancellation.GetSequence()):
		return requestLate
	case verb == pb.VerbTest:
		return requestTest
	case !wantsState(verb):
		return requestUnknown
	case sequence < max(s.NewestSequence, s.Cancellation.GetSequence()):
		return requestLate
	case sequence == s.NewestSequence:
		return requestKnown
	default:
		return requestNewest
	}
}

// immediate are the requests that wait for no turn: they change no more than what the planner knows.
var immediate = map[string]signal{
	pb.VerbCancel: requestCancel, pb.VerbSuspend: requestSuspend, pb.VerbResume: requestResume, pb.VerbForgive: requestForgive,
}

// wantsState says that requests of this verb want a new state of the release.
func wantsState(verb string) bool {
	return verb == pb.VerbDeploy || verb == pb.VerbRollback || verb == pb.VerbUninstall
}

func (d *decision) readOutcome() signal {
	o, open := d.outcome, d.state.Active.GetOpen()
	switch kind := o.GetKind(); {
	case o.GetService() == service:
		return outcomeOwn
	case open == nil || o.GetNumber() != open.Number || o.GetRequest() != d.state.Active.Request.GetId():
		return outcomeLate
	case kind == pb.KindTested:
		return tested + signal(o.GetTestRun().GetVerdict())
	case kind == pb.KindDeployFailed:
		return deployFailed.as(d.failure)
	case kind == pb.KindRollbackFailed:
		return rollbackFailed.as(d.failure)
	case kind == pb.KindUninstallFailed:
		return uninstallFailed.as(d.failure)
	default:
		return outcome + signal(kind)
	}
}

// as adds the class of a failed mutation, or makes it the outcome `interrupted` that it is.
func (s signal) as(f *pb.Failure) signal {
	switch class := f.GetClass(); {
	case class == pb.ClassInterrupted:
		return outcome + pb.KindInterrupted
	case class == pb.ClassFailed && !f.Mutated:
		return s + untouched
	default:
		return s + signal(class)
	}
}

// knows says that a request with the id is active or waiting, or is a cancel of the active one.
func (d *decision) knows(id string) bool {
	open := []*pb.Request{d.state.Active.GetRequest(), d.state.Waiting, d.state.WaitingTest}
	for _, r := range append(open, d.state.Active.GetCancels()...) {
		if r != nil && r.GetId() == id {
			return true
		}
	}
	return false
}
