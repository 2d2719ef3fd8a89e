package action

import (
	"context"

	helmaction "helm.sh/helm/v3/pkg/action"
	helmrelease "helm.sh/helm/v3/pkg/release"

	"github.com/seatrial/seatrial/internal/helm/release"
	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Rollback puts the content of an explicit revision back, under a new revision, if that revision's record still is what
// the command says. When ctx ends, all waiting ends, and Rollback returns once Helm has really ended.
func (r *Runner) Rollback(ctx context.Context, o Order) *Result {
	back := o.Command.GetRollback()
	op, err := r.begin(ctx, o, back.GetUpgrade(), Rollback)
	op.result.Mutation.TargetRevision = back.GetToRevision()
	op.result.Mutation.FailedRevision = back.GetFailedRevision()
	if err == nil {
		err = op.rollBack(ctx, back)
	}
	return op.end(ctx, err)
}

func (op *operation) rollBack(ctx context.Context, back *seatrialv1.RollbackCommand) error {
	if err := op.unblock(ctx); err != nil {
		return err
	}
	target, err := op.target(back)
	if err != nil {
		return err
	}
	if current := currentOf(op.history); current != nil {
		op.result.Mutation.FromRevision = int32(current.Version)
	}
	if back.GetFailedRevision() == 0 { // somebody asked for this revision, by its number perhaps
		op.result.Requested = content(target)
	}
	if err := op.start(ctx); err != nil {
		return err
	}
	op.records.labels = map[string]string{labelChart: "", labelInputs: "", labelClass: "", labelUninstall: ""}
	if _, own := release.StampOf(target); own {
		op.records.labels[labelChart] = target.Labels[labelChart]
	}
	op.records.admit = func(rel *helmrelease.Release) error {
		if err := checkDigest(rel, target.Version, back.GetManifestDigest()); err != nil {
			return err
		}
		return op.admit(rel, nil)
	}

	working, cancel := context.WithTimeout(ctx, op.timeout)
	defer cancel()
	cfg, err := op.configure(working)
	if err != nil {
		return err
	}
	o := op.upgrade
	rollback := helmaction.NewRollback(cfg)
	rollback.Version = target.Version
	rollback.Timeout = op.timeout
	rollback.Wait = waits(o)
	rollback.WaitForJobs = o.GetWaitForJobs()
	rollback.DisableHooks = o.GetDisableHooks()
	rollback.Force = o.GetForce()
	rollback.CleanupOnFail = o.GetCleanupOnFail()
	return rollback.Run(op.release.Name)
}

// target returns the record to go back to.
func (op *operation) target(back *seatrialv1.RollbackCommand) (*helmrelease.Release, error) {
	for _, rel := range op.history {
		if rel.Version == int(back.GetToRevision()) {
			return rel, checkDigest(rel, rel.Version, back.GetManifestDigest())
		}
	}
	n := len(op.history)
	if n == 0 {
		return nil, fault.New(seatrialv1.ClassRejected, "deploy a chart", "revision %d: the release has no records", back.GetToRevision())
	}
	return nil, fault.New(seatrialv1.ClassRejected, chooseAnother, "revision %d has no record; the oldest is %d, the newest %d",
		back.GetToRevision(), op.history[0].Version, op.history[n-1].Version)
}

const chooseAnother = "roll back to another revision, or deploy the chart again"

// checkDigest refuses to go back to a record that was changed since it was known.
func checkDigest(rel *helmrelease.Release, revision int, digest string) error {
	if is := release.ManifestDigest(rel); digest != "" && is != digest {
		return fault.New(seatrialv1.ClassFailed, chooseAnother,
			"the record of revision %d is not what it was: its manifest and hooks have the digest %s, not %s", revision, is, digest)
	}
	return nil
}
