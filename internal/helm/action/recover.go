package action

import (
	"context"
	"slices"

	helmrelease "helm.sh/helm/v3/pkg/release"

	"github.com/seatrial/seatrial/internal/helm/release"
	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Recover says what became of a command that a former holder had begun, by the newest record that the command has made:
// none, or one that is still pending, says that it was interrupted, and it can be done again under a new number. An
// uninstall has no record of its own, and can be repeated: it goes on.
func (r *Runner) Recover(ctx context.Context, o Order) *Result {
	if o.Command.GetUninstall() != nil {
		return r.uninstall(ctx, o, true)
	}
	upgrade, kind := o.Command.GetDeploy().GetUpgrade(), Upgrade
	if back := o.Command.GetRollback(); back != nil {
		upgrade, kind = back.GetUpgrade(), Rollback
	}
	op, err := r.begin(ctx, o, upgrade, kind)
	if err == nil {
		err = op.recover()
	}
	if err != nil {
		op.result.Failure = op.failure(err)
		// It may have changed much before it died, or nothing.
		op.result.Failure.Mutated = true
	}
	return op.result
}

// errInterrupted says that nothing is decided.
func errInterrupted(format string, args ...any) error {
	return fault.New(seatrialv1.ClassInterrupted, "", format, args...)
}

func (op *operation) recover() error {
	if err := op.read(); err != nil {
		return err
	}
	n := len(op.history) - 1
	for n >= 0 && !stampedBy(op.history[n], op.Command.GetNumber()) {
		n--
	}
	if n < 0 {
		return errInterrupted("its executor ended before it made a record")
	}
	rel, m := op.history[n], op.result.Mutation
	op.describe(rel, op.history[:n])
	switch status := rel.Info.Status; {
	case status.IsPending():
		if err := op.abandon(rel, "its executor ended before it did"); err != nil {
			return err
		}
		return errInterrupted("its executor ended when revision %d was %s", rel.Version, status)
	case status == helmrelease.StatusFailed:
		class := rel.Labels[labelClass]
		if class == "" {
			class = seatrialv1.ClassFailed
		}
		return fault.New(class, "", "%s", rel.Info.Description)
	default: // deployed, and perhaps superseded since by somebody else
		m.Recovered = true
		return nil
	}
}

// describe fills the mutation in from the record that it has made, and those before it.
func (op *operation) describe(rel *helmrelease.Release, before []*helmrelease.Release) {
	m := op.result.Mutation
	op.redactor.AddManifest(rel.Manifest)
	for _, hook := range rel.Hooks {
		op.redactor.AddManifest(hook.Manifest)
	}
	m.HelmRevision = int32(rel.Version)
	m.ManifestDigest = release.ManifestDigest(rel)
	m.Tests = int32(release.CountTests(rel))
	m.QuarantineKey = rel.Labels[labelInputs]
	if current := currentOf(before); current != nil {
		m.FromRevision = int32(current.Version)
	} else if m.GetAction() == Upgrade {
		m.Action = Install
	}
	back := op.Command.GetRollback()
	if back == nil {
		return
	}
	m.TargetRevision, m.FailedRevision = back.GetToRevision(), back.GetFailedRevision()
	target := slices.IndexFunc(before, func(r *helmrelease.Release) bool { return r.Version == int(back.GetToRevision()) })
	if target >= 0 && back.GetFailedRevision() == 0 {
		op.result.Requested = content(before[target])
	}
}
