package core

import (
	"fmt"
	"slices"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

const (
	// idle is the phase of a release without an active request. The others are the phases of the active one.
	idle = "idle"

	// settled stands in the table for the end of the active request. What waits is then active at once.
	settled = "settled"
)

// phases are those in which an input does the same.
type phases []string

var (
	inIdle      = phases{idle}
	inResolving = phases{pb.PhaseResolving}
	inDeploying = phases{pb.PhaseDeploying}
	inTesting   = phases{pb.PhaseTesting}
	inRollback  = phases{pb.PhaseRollingBack}
	inUninstall = phases{pb.PhaseUninstalling}
	settles     = phases{settled}

	inMutation = or(inDeploying, inRollback, inUninstall)
	inCommand  = or(inMutation, inTesting)
	inActive   = or(inResolving, inCommand)
	inAny      = or(inIdle, inActive)
)

func or(p ...phases) phases { return slices.Concat(p...) }

// transition is one row of the table: what an input does in these phases.
type transition struct {
	phases phases
	on     signal
	name   string
	do     func(*decision)
	// then are the phases in which the active request may be afterwards, besides the one it was in. From idle they are
	// those of the request that became active.
	then phases
	note string
}

// table is all that can happen. A pair of phase and signal that is not in it is ErrInvalidTransition.
var table = []transition{
	// A request is active from its acceptance on, or it waits behind the active one.
	{inIdle, requestNewest, "accept", (*decision).accept, or(inResolving, inRollback, inUninstall, settles), "a rollback with nothing to go back to: rejected; suspended: waits"},
	{inActive, requestNewest, "accept", (*decision).accept, settles, "waits; the active one gives way at its next boundary"},
	{inIdle, requestTest, "accept test", (*decision).acceptTest, or(inTesting, settles), "nothing runs: rejected; suspended: waits"},
	{inActive, requestTest, "accept test", (*decision).acceptTest, nil, "waits, and stops nothing"},
	{inAny, requestLate, "accept late", (*decision).acceptLate, nil, "superseded by the newer one, or cancelled by the cancel, that came first"},
	{inIdle, requestCancel, "cancel", (*decision).cancel, nil, "what waits while the release is suspended is dropped"},
	{inActive, requestCancel, "cancel", (*decision).cancel, settles, "the active one stops at its next boundary, what waits is dropped"},
	{inAny, requestSuspend, "suspend", (*decision).suspend, nil, "the open command finishes, nothing is commanded after it"},
	{inIdle, requestResume, "resume", (*decision).resume, or(inResolving, inTesting, inRollback, inUninstall, settles), "what waits begins"},
	{inActive, requestResume, "resume", (*decision).resume, nil, "what was held back is commanded"},
	{inAny, requestForgive, "forgive", (*decision).forgive, nil, "quarantine is lifted"},
	{inAny, requestKnown, "ignore", (*decision).ignore, nil, "a repetition"},
	{inAny, requestRefused, "refuse", (*decision).refuse, nil, "rejected"},

	// resolving: the chart is looked for and fetched.
	{inResolving, chartResolved, "deploy", (*decision).deploy, or(inDeploying, settles), "in quarantine, and not forced: rejected"},
	{inResolving, chartFailed + pb.ClassTransient, "try again", (*decision).tryAgain, settles, "after a pause; budget spent: failed"},
	{inResolving, chartFailed + pb.ClassRejected, "reject", (*decision).reject, settles, ""},
	{inResolving, chartFailed + pb.ClassFailed, "fail", (*decision).fail, settles, ""},
	{inResolving, dueRetry, "fetch", (*decision).fetch, nil, ""},
	{inResolving, dueResolve, "give up", (*decision).unresolved, settles, "failed"},
	{inAny, chartLate, "ignore", (*decision).ignore, nil, "nobody waits for it any more"},

	// deploying: an install or upgrade is commanded, or there is a pause before the next one.
	{inDeploying, outcome + pb.KindDeploying, "note worker", (*decision).noteWorker, nil, ""},
	{inDeploying, outcome + pb.KindBlocked, "note worker", (*decision).noteWorker, nil, "it waits by itself, up to the time-out"},
	{inDeploying, outcome + pb.KindDeployed, "deployed", (*decision).deployed, or(inTesting, settles), "tests switched off: deployed"},
	{inDeploying, deployFailed + pb.ClassRejected, "reject", (*decision).reject, settles, "says where it failed before"},
	{inDeploying, deployFailed + pb.ClassTransient, "try again", (*decision).tryAgain, settles, "after a pause; budget spent: failed"},
	{inDeploying, deployFailed + pb.ClassBlocked, "fail", (*decision).fail, settles, "not quarantined: others were in the way"},
	{inDeploying, deployFailed + untouched, "inputs failed", (*decision).inputsFailed, settles, "quarantined; what ran before still runs"},
	{inDeploying, deployFailed + pb.ClassFailed, "upgrade failed", (*decision).upgradeFailed, or(inRollback, settles), "quarantined; upgrade.onFailure"},
	{inDeploying, outcome + pb.KindInterrupted, "deploy again", (*decision).deployInterrupted, or(inRollback, settles), "budget spent: upgrade.onFailure, not quarantined"},

	// testing: a test run is commanded.
	{inTesting, outcome + pb.KindTesting, "note worker", (*decision).noteWorker, nil, ""},
	{inTesting, outcome + pb.KindBlocked, "note worker", (*decision).noteWorker, nil, ""},
	{inTesting, tested + pb.VerdictPassed, "prove", (*decision).testsPassed, settles, "proven"},
	{inTesting, tested + pb.VerdictNoTests, "prove or hold", (*decision).noTests, settles, "proven if it has none and none are required, else held"},
	{inTesting, tested + pb.VerdictFailed, "tests failed", (*decision).testsFailed, or(inRollback, inUninstall, settles), "after the last attempt: quarantined; test.onFailure"},
	{inTesting, tested + pb.VerdictTimedOut, "tests failed", (*decision).testsFailed, or(inRollback, inUninstall, settles), "after the last attempt: quarantined; test.onFailure"},
	{inTesting, tested + pb.VerdictErrored, "tests errored", (*decision).testsErrored, or(inRollback, settles), "after the last errorAttempt: test.onError"},
	{inTesting, tested + pb.VerdictCancelled, "hold", (*decision).testsCancelled, settles, "held"},
	{inTesting, outcome + pb.KindInterrupted, "test again", (*decision).testInterrupted, or(inRollback, settles), "budget spent: test.onError"},

	// rollingback: a rollback is commanded, or there is a pause before the next one.
	{inRollback, outcome + pb.KindRollingBack, "note worker", (*decision).noteWorker, nil, ""},
	{inRollback, outcome + pb.KindBlocked, "note worker", (*decision).noteWorker, nil, "it waits by itself, up to the time-out"},
	{inRollback, outcome + pb.KindRolledBack, "rolled back", (*decision).rolledBack, or(inTesting, settles), "asked for and not proven: tested"},
	{inRollback, rollbackFailed + pb.ClassRejected, "reject", (*decision).reject, settles, "not asked for: failed"},
	{inRollback, rollbackFailed + pb.ClassTransient, "try again", (*decision).tryAgain, settles, "after a pause; budget spent: failed"},
	{inRollback, rollbackFailed + pb.ClassBlocked, "fail", (*decision).fail, settles, "never looped"},
	{inRollback, rollbackFailed + untouched, "fail", (*decision).fail, settles, "never looped"},
	{inRollback, rollbackFailed + pb.ClassFailed, "fail", (*decision).fail, settles, "never looped"},
	{inRollback, outcome + pb.KindInterrupted, "roll back again", (*decision).interrupted, settles, "budget spent: failed"},

	// uninstalling: an uninstall is commanded, or there is a pause before the next one.
	{inUninstall, outcome + pb.KindUninstalling, "note worker", (*decision).noteWorker, nil, ""},
	{inUninstall, outcome + pb.KindBlocked, "note worker", (*decision).noteWorker, nil, "it waits by itself, up to the time-out"},
	{inUninstall, outcome + pb.KindUninstalled, "uninstalled", (*decision).uninstalled, settles, "also if nothing was there"},
	{inUninstall, uninstallFailed + pb.ClassRejected, "reject", (*decision).reject, settles, "not asked for: failed"},
	{inUninstall, uninstallFailed + pb.ClassTransient, "try again", (*decision).tryAgain, settles, "after a pause; budget spent: failed"},
	{inUninstall, uninstallFailed + pb.ClassBlocked, "fail", (*decision).fail, settles, "never looped"},
	{inUninstall, uninstallFailed + untouched, "fail", (*decision).fail, settles, "never looped"},
	{inUninstall, uninstallFailed + pb.ClassFailed, "fail", (*decision).fail, settles, "never looped"},
	{inUninstall, outcome + pb.KindInterrupted, "uninstall again", (*decision).interrupted, settles, "budget spent: failed"},

	// The commands on their way.
	{inAny, commandTaken, "take back", (*decision).takeBack, nil, ""},
	{inCommand, duePublish, "publish again", (*decision).publishAgain, nil, "same number, same bytes"},
	{inMutation, dueRetry, "command", (*decision).command, nil, "new number"},
	{inCommand, dueNoWorker, "tell", (*decision).noWorker, nil, ""},
	{inCommand, dueAttended, "wait in line", (*decision).waitInLine, nil, ""},
	{inCommand, dueWithdraw, "withdraw", (*decision).withdraw, settles, "failed"},

	// What decides nothing.
	{inAny, outcomeLate, "learn", (*decision).learn, nil, "stale or repeated; what runs may be news"},
	{inAny, outcomeOwn, "ignore", (*decision).ignore, nil, ""},
	{inAny, dueNothing, "ignore", (*decision).ignore, nil, ""},
}

// edge selects a transition.
type edge struct {
	phase string
	on    signal
}

// transitions is the table by edge.
var transitions = func() map[edge]transition {
	all := map[edge]transition{}
	for _, t := range table {
		for _, phase := range t.phases {
			e := edge{phase, t.on}
			if _, twice := all[e]; twice {
				panic(fmt.Sprintf("two transitions for %v", e))
			}
			all[e] = t
		}
	}
	return all
}()

// phase returns that of the active request, or idle.
func phase(s *pb.ReleaseState) string {
	if s.GetActive() == nil {
		return idle
	}
	return s.Active.Phase
}
