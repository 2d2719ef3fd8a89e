// Package seatrialv1 is all that passes between Seatrial's services, and the words that stand in it.
package seatrialv1

// Verbs of requests.
const (
	VerbDeploy    = "deploy"
	VerbRollback  = "rollback"
	VerbUninstall = "uninstall"
	VerbTest      = "test"
	VerbCancel    = "cancel"
	VerbSuspend   = "suspend"
	VerbResume    = "resume"
	VerbForgive   = "forgive"
)

// Kinds of outcomes.
const (
	KindAccepted        = "accepted"
	KindCommanded       = "commanded"
	KindWithdrawn       = "withdrawn"
	KindNoWorker        = "noworker"
	KindBlocked         = "blocked"
	KindDeploying       = "deploying"
	KindDeployed        = "deployed"
	KindDeployFailed    = "deployfailed"
	KindRollingBack     = "rollingback"
	KindRolledBack      = "rolledback"
	KindRollbackFailed  = "rollbackfailed"
	KindUninstalling    = "uninstalling"
	KindUninstalled     = "uninstalled"
	KindUninstallFailed = "uninstallfailed"
	KindTesting         = "testing"
	KindTested          = "tested"
	KindInterrupted     = "interrupted"
	KindSettled         = "settled"
)

// Results of a settlement.
const (
	ResultProven      = "proven"
	ResultDeployed    = "deployed"
	ResultHeld        = "held"
	ResultRolledBack  = "rolledback"
	ResultUninstalled = "uninstalled"
	ResultFailed      = "failed"
	ResultSuperseded  = "superseded"
	ResultRejected    = "rejected"
	ResultDone        = "done"
)

// Verdicts of a test run.
const (
	VerdictPassed    = "passed"
	VerdictFailed    = "failed"
	VerdictTimedOut  = "timedout"
	VerdictErrored   = "errored"
	VerdictCancelled = "cancelled"
	VerdictNoTests   = "notests"
)

// Phases of one test in a run; the verdict words besides these two are phases as well.
const (
	PhaseNotRun      = "notrun"
	PhaseNotSelected = "notselected"
)

// Classes of failures: what may be tried again, and by whom.
const (
	ClassRejected    = "rejected"
	ClassTransient   = "transient"
	ClassInterrupted = "interrupted"
	ClassFailed      = "failed"
	ClassBlocked     = "blocked"
)

// Kinds of commands.
const (
	CommandDeploy    = "deploy"
	CommandTest      = "test"
	CommandRollback  = "rollback"
	CommandUninstall = "uninstall"
)

// What to do after a failure.
const (
	OnFailureRollback  = "rollback"
	OnFailureHold      = "hold"
	OnFailureUninstall = "uninstall"
)

// CRD policies.
const (
	CRDsSkip          = "skip"
	CRDsCreate        = "create"
	CRDsCreateReplace = "createReplace"
)

// States of a ledger row.
const (
	LedgerBegun = "begun"
	LedgerDone  = "done"
)

// Phases of an active request.
const (
	PhaseResolving    = "resolving"
	PhaseDeploying    = "deploying"
	PhaseTesting      = "testing"
	PhaseRollingBack  = "rollingback"
	PhaseUninstalling = "uninstalling"
)

// Standings of a revision.
const (
	StandingProven   = "proven"
	StandingUnproven = "unproven"
	StandingBad      = "bad"
)
