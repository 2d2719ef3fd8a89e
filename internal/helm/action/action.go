// Package action carries out commands on Helm releases: install, upgrade, rollback and uninstall through Helm's SDK. It checks
// before anything is mutated, waits by watching, knows its own work again after a crash, and says what went wrong in
// words that hold no Secret's value.
//
// Nothing here decides what to do next: that is the planner's.
package action

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	helmaction "helm.sh/helm/v3/pkg/action"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"

	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/helm/release"
	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// DefaultTimeout bounds an operation whose command names no time-out.
const DefaultTimeout = 5 * time.Minute

// Runner carries out commands in one cluster. It is safe for concurrent use; that two commands of one release do not
// overlap is the lease's business.
type Runner struct {
	Client *kube.Client
	// Namespace is the executor's own: the key of the quarantine is kept there.
	Namespace string
	Log       *slog.Logger

	quarantine quarantine
}

// Order is a command, and the right to carry it out.
type Order struct {
	Command *seatrialv1.Command
	Actor   kube.Actor
	// Started is called once, right before something may be mutated, with the chart that is to run and the one that
	// runs. Its error stops the action.
	Started func(ctx context.Context, requested, running *seatrialv1.ChartRevision) error
	// Blocked is called when somebody else's operation is waited for.
	Blocked func(ctx context.Context, failure *seatrialv1.Failure) error
}

// Result is what became of a command.
type Result struct {
	// Mutation is what was done; never nil.
	Mutation *seatrialv1.Mutation
	// Requested is the chart that was to run: of a rollback that somebody asked for, the one in the target's record; of an
	// uninstall, the one that ran.
	Requested *seatrialv1.ChartRevision
	// Running is the chart that runs now, by the newest record that says `deployed`; nil where there is none.
	Running *seatrialv1.ChartRevision
	// Failure is nil where the command was carried out.
	Failure *seatrialv1.Failure
}

// operation is one command being carried out.
type operation struct {
	*Runner
	Order
	release  subject.Release
	upgrade  *seatrialv1.UpgradeOptions
	timeout  time.Duration
	client   *kube.Client
	redactor *kube.Redactor
	records  *records
	storage  *storage.Storage
	log      *slog.Logger
	result   *Result

	// history is what was there before, oldest first.
	history []*helmrelease.Release
	// helm is set once Helm is at work.
	helm *kube.Helm
}

// begin prepares an operation. Its error is about the command itself.
func (r *Runner) begin(ctx context.Context, o Order, upgrade *seatrialv1.UpgradeOptions, kind string) (*operation, error) {
	op := &operation{
		Runner: r, Order: o, upgrade: upgrade, timeout: DefaultTimeout, redactor: kube.NewRedactor(), records: &records{},
		log: r.Log.With("release", o.Command.GetRelease(), "number", o.Command.GetNumber()),
		result: &Result{
			Mutation:  &seatrialv1.Mutation{Action: kind},
			Requested: o.Command.GetRequested(),
			Running:   o.Command.GetRunning(),
		},
	}
	var err error
	if op.release, err = subject.ParseRelease(o.Command.GetRelease()); err != nil {
		return op, fault.New(seatrialv1.ClassRejected, "", "%w", err)
	}
	if text := upgrade.GetTimeout(); text != "" {
		if op.timeout, err = time.ParseDuration(text); err != nil || op.timeout <= 0 {
			return op, fault.New(seatrialv1.ClassRejected, "", "upgrade.timeout %q: want a positive duration", text)
		}
	}
	op.client = r.Client.As(o.Actor)
	secrets := driver.NewSecrets(op.client.Clientset.CoreV1().Secrets(op.release.Namespace))
	stamp := release.Stamp{Number: o.Command.GetNumber(), Fence: o.Actor.Fence}
	op.records = &records{Driver: release.NewDriver(secrets, o.Actor.Gate, stamp), ctx: ctx}
	op.storage = storage.Init(op.records)
	return op, nil
}

// configure returns what Helm's actions need, for an action that ends with ctx.
func (op *operation) configure(ctx context.Context) (*helmaction.Configuration, error) {
	var err error
	if op.helm, err = op.client.Helm(ctx, op.release.Namespace, op.redactor, op.log); err != nil {
		return nil, err
	}
	op.records.class, op.records.redact = func() string { return op.helm.Class(nil) }, op.redactor.Redact
	return &helmaction.Configuration{
		RESTClientGetter: op.helm.Getter(),
		Releases:         op.storage,
		KubeClient:       op.helm,
		Log:              op.helm.Log,
		HookOutputFunc:   func(_, _, _ string) io.Writer { return io.Discard },
	}, nil
}

// read reads the release's records, oldest first.
func (op *operation) read() error {
	history, err := history(op.storage, op.release.Name)
	if err != nil {
		return fmt.Errorf("read the records of the release: %w", err)
	}
	op.history = history
	op.result.Running = op.running(history)
	return nil
}

// start tells that something may be mutated from now on.
func (op *operation) start(ctx context.Context) error {
	if op.Started == nil {
		return nil
	}
	if err := op.Started(ctx, op.result.Requested, op.result.Running); err != nil {
		return fault.New(seatrialv1.ClassInterrupted, "", "the start was not announced: %w", err)
	}
	return nil
}

// end completes the result after the action ended with err.
func (op *operation) end(ctx context.Context, err error) *Result {
	if err == nil {
		err = op.unrecorded()
	}
	if made := op.records.made; made != nil {
		op.settle(ctx)
		op.result.Mutation.HelmRevision = int32(made.Version)
		op.result.Mutation.ManifestDigest = release.ManifestDigest(made)
		op.result.Running = op.running(append(op.history, made))
		op.prune()
	}
	if err != nil {
		op.result.Failure = op.failure(err)
	}
	return op.result
}

// unrecorded returns an error when the action has succeeded but the record does not say so: Helm only logs that it could
// not write it.
func (op *operation) unrecorded() error {
	made := op.records.made
	if made == nil || op.records.stored == helmrelease.StatusDeployed {
		return nil
	}
	return fault.New(seatrialv1.ClassTransient, "", "the record of revision %d could not be written: %w", made.Version, op.records.err)
}

// settle marks the record as failed that Helm left pending: it does so when a rollback's hook fails.
func (op *operation) settle(ctx context.Context) {
	made := op.records.made
	if !op.records.stored.IsPending() {
		return
	}
	made.SetStatus(helmrelease.StatusFailed, fmt.Sprintf("%s failed and was left pending", op.result.Mutation.GetAction()))
	if err := op.storage.Update(made); err != nil {
		op.log.WarnContext(ctx, "a record was left pending", "revision", made.Version, "error", op.redactor.Redact(err.Error()))
	}
}

// running returns what runs by the records, oldest first: the newest one that says `deployed`.
func (op *operation) running(history []*helmrelease.Release) *seatrialv1.ChartRevision {
	for _, rel := range slices.Backward(history) {
		if rel.Info.Status == helmrelease.StatusDeployed {
			return content(rel)
		}
	}
	return nil
}

// content describes a record's content.
func content(rel *helmrelease.Release) *seatrialv1.ChartRevision {
	c := release.Info(rel)
	if _, own := release.StampOf(rel); own {
		c.Digest = chartDigest(rel)
	}
	return c
}

// failure makes a failure of an error: classed, in one line, and without any Secret's value.
func (op *operation) failure(err error) *seatrialv1.Failure {
	f := fault.Failure(err)
	class := kube.Class(err)
	f.Mutated = op.records.made != nil
	if op.helm != nil {
		class = op.helm.Class(err)
		f.Mutated = f.Mutated || op.helm.Mutated()
		f.Objects = op.helm.Objects()
	}
	f.Class = cmp.Or(class, seatrialv1.ClassFailed)
	how := "failed"
	switch f.GetClass() {
	case seatrialv1.ClassBlocked:
		how = "is held up"
	case seatrialv1.ClassRejected:
		how = "is refused"
	}
	f.Reason = fmt.Sprintf("%s: %s %s: %s", op.Command.GetRelease(), op.result.Mutation.GetAction(), how, op.line(f.GetReason()))
	if f.GetNext() == "" {
		f.Next = next[f.GetClass()]
	}
	if len(f.GetObjects()) > 0 {
		f.Next += "; what stood in the way is in `objects` of this outcome"
	}
	return f
}

// next says what a person can do where nobody has said it better.
var next = map[string]string{
	seatrialv1.ClassFailed:      "correct the chart, its values or the options, and deploy again",
	seatrialv1.ClassTransient:   "nothing: it is tried again; if it goes on, look at the cluster's API server",
	seatrialv1.ClassInterrupted: "nothing: it is done again",
}

// maxReason is what a person reads of a reason, in bytes.
const maxReason = 2 << 10

// line makes one line of an error's text, without Secrets' values.
func (op *operation) line(text string) string {
	line := strings.Join(strings.Fields(op.redactor.Redact(text)), " ")
	if len(line) > maxReason {
		line = strings.ToValidUTF8(line[:maxReason], "") + "..."
	}
	return line
}
