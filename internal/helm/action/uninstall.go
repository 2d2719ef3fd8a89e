package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	helmaction "helm.sh/helm/v3/pkg/action"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Uninstall removes the release, and what its test hooks have left. A release that is not there is uninstalled, with no
// FromRevision. When ctx ends, all waiting ends, and Uninstall returns once Helm has really ended.
//
// It can be repeated: Helm's records go last, and only if everything else went well. Until then the newest one says
// `uninstalling`, unless nothing of the release was deleted: then it says what it said before.
func (r *Runner) Uninstall(ctx context.Context, o Order) *Result { return r.uninstall(ctx, o, false) }

func (r *Runner) uninstall(ctx context.Context, o Order, recovering bool) *Result {
	cmd := o.Command.GetUninstall()
	options := cmd.GetOptions()
	op, err := r.begin(ctx, o, &seatrialv1.UpgradeOptions{
		Timeout: options.GetTimeout(), Wait: waitOf(options), DisableHooks: options.GetDisableHooks(), Description: options.GetDescription(),
	}, Uninstall)
	op.result.Mutation.FailedRevision = cmd.GetFailedRevision()
	if err == nil {
		err = op.uninstall(ctx, options.GetKeepHistory(), recovering)
	}
	return op.end(ctx, err)
}

func waitOf(o *seatrialv1.UninstallOptions) *bool {
	if o == nil {
		return nil
	}
	return o.Wait
}

func (op *operation) uninstall(ctx context.Context, keepHistory, recovering bool) error {
	if err := op.unblock(ctx); err != nil {
		return err
	}
	var newest *helmrelease.Release
	if n := len(op.history); n > 0 {
		newest = op.history[n-1]
	}
	op.findOut(newest, recovering)
	if err := op.start(ctx); err != nil {
		return err
	}
	working, cancel := context.WithTimeout(ctx, op.timeout)
	defer cancel()
	cfg, err := op.configure(working)
	if err != nil {
		return err
	}
	if err := op.deleteLeftovers(working); err != nil {
		return err
	}
	if there(newest) {
		if err := op.remove(ctx, cfg, newest); err != nil {
			return err
		}
	}
	op.result.Running = nil
	if keepHistory {
		return nil
	}
	return op.purge()
}

// there says that something of the release is there, by its newest record.
func there(newest *helmrelease.Release) bool {
	return newest != nil && newest.Info.Status != helmrelease.StatusUninstalled
}

// findOut fills in what is uninstalled, or was by a former command whose end nobody heard of.
func (op *operation) findOut(newest *helmrelease.Release, recovering bool) {
	what := newest
	for _, rel := range slices.Backward(op.history) {
		if rel.Info.Status == helmrelease.StatusDeployed {
			what = rel
			break
		}
	}
	asked := op.result.Mutation.GetFailedRevision() == 0 // else the requested chart is the one that failed
	if there(newest) {
		op.result.Mutation.FromRevision = int32(what.Version)
		if asked {
			op.result.Requested = content(what)
		}
	} else if ran := op.Command.GetRunning(); ran != nil && (newest == nil && recovering || newest != nil && newest.Labels[labelUninstall] != "") {
		op.result.Mutation.FromRevision = ran.GetHelmRevision()
		op.result.Mutation.Recovered = true
	} else if asked {
		op.result.Requested = nil
	}
	for _, rel := range op.history {
		op.redactor.AddManifest(rel.Manifest)
		for _, hook := range rel.Hooks {
			op.redactor.AddManifest(hook.Manifest)
		}
	}
}

// remove has Helm uninstall, and keep its records. Helm knows the objects of the newest record only: when that one's
// upgrade has failed, those of the record that is deployed go after them.
func (op *operation) remove(ctx context.Context, cfg *helmaction.Configuration, newest *helmrelease.Release) error {
	op.records.updated = map[string]string{labelUninstall: strconv.FormatUint(uint64(op.Command.GetNumber()), 10)}
	op.records.unfinished = op.helm.Fault
	o := op.upgrade
	un := helmaction.NewUninstall(cfg)
	un.Timeout = op.timeout
	un.Wait = waits(o)
	un.DisableHooks = o.GetDisableHooks()
	un.Description = o.GetDescription()
	un.KeepHistory = true
	_, err := un.Run(op.release.Name)
	if err == nil {
		err = op.removeRest(newest)
	}
	if err == nil {
		err = op.records.err
	}
	op.records.updated, op.records.unfinished = nil, nil
	if err == nil {
		return nil
	}
	if cause := op.helm.Fault(); cause != nil { // Helm may say no more than that it has failed
		err = cause
	}
	if op.helm.Class(err) == seatrialv1.ClassFailed {
		err = fault.New(seatrialv1.ClassFailed, "clear what is in the way, then ask for the uninstall again", "%w", err)
	}
	if !op.helm.Removed() && newest.Info.Status != helmrelease.StatusUninstalling {
		if err := op.storage.Update(newest); err != nil {
			op.log.WarnContext(ctx, "a record was left uninstalling", "revision", newest.Version, "error", op.redactor.Redact(err.Error()))
		}
	}
	if err := op.read(); err != nil {
		op.log.WarnContext(ctx, "what runs is not known for certain", "error", op.redactor.Redact(err.Error()))
	}
	return err
}

// removeRest deletes what a failed upgrade has left of the revision before it.
func (op *operation) removeRest(newest *helmrelease.Release) error {
	for _, rel := range slices.Backward(op.history) {
		if rel.Version != newest.Version {
			if err := op.helm.DeleteRest(rel.Manifest, newest.Manifest); err != nil {
				return fmt.Errorf("delete what revision %d has left: %w", rel.Version, err)
			}
		}
		if rel.Info.Status == helmrelease.StatusDeployed {
			return nil
		}
	}
	return nil
}

// purge deletes the records, the newest one last: until then it says that all else is done.
func (op *operation) purge() error {
	for _, rel := range op.history {
		if _, err := op.storage.Delete(rel.Name, rel.Version); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
			return fmt.Errorf("delete the record of revision %d: %w", rel.Version, err)
		}
	}
	return nil
}
