package action

import (
	"context"
	"slices"

	helmaction "helm.sh/helm/v3/pkg/action"
	helmchart "helm.sh/helm/v3/pkg/chart"
	helmrelease "helm.sh/helm/v3/pkg/release"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/chart"
	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Kinds of mutations.
const (
	Install   = "install"
	Upgrade   = "upgrade"
	Rollback  = "rollback"
	Uninstall = "uninstall"
)

// Deploy installs the chart where nothing was ever deployed, or only uninstalled since, and upgrades elsewhere. When ctx
// ends, all waiting ends, and Deploy returns once Helm has really ended.
func (r *Runner) Deploy(ctx context.Context, o Order, archive *chart.Archive) *Result {
	deploy := o.Command.GetDeploy()
	op, err := r.begin(ctx, o, deploy.GetUpgrade(), Upgrade)
	if err == nil {
		err = op.deploy(ctx, deploy, archive)
	}
	return op.end(ctx, err)
}

func (op *operation) deploy(ctx context.Context, deploy *seatrialv1.DeployCommand, archive *chart.Archive) error {
	if err := op.unblock(ctx); err != nil {
		return err
	}
	current := currentOf(op.history)
	if current == nil {
		op.result.Mutation.Action = Install
		if err := op.requireNamespace(ctx); err != nil {
			return err
		}
	} else {
		op.result.Mutation.FromRevision = int32(current.Version)
	}
	loaded, err := archive.Chart()
	if err != nil {
		return err
	}
	if err := helmaction.CheckDependencies(loaded, loaded.Metadata.Dependencies); err != nil {
		return fault.New(seatrialv1.ClassFailed, "package the chart with its dependencies (helm dependency update)", "%w", err)
	}
	values, err := op.values(ctx, deploy, loaded, current)
	if err != nil {
		return err
	}
	if err := op.checkQuarantine(ctx, deploy, archive.Digest, loaded, values); err != nil {
		return err
	}
	if err := op.start(ctx); err != nil {
		return err
	}
	op.records.labels = map[string]string{
		labelChart: chartLabel(archive.Digest), labelInputs: op.result.Mutation.GetQuarantineKey(), labelClass: "", labelUninstall: "",
	}
	op.records.admit = func(rel *helmrelease.Release) error { return op.admit(rel, deploy.GetTest()) }

	working, cancel := context.WithTimeout(ctx, op.timeout)
	defer cancel()
	cfg, err := op.configure(working)
	if err != nil {
		return err
	}
	if current == nil {
		return op.install(cfg, loaded, archive, values)
	}
	return op.upgradeTo(cfg, loaded, values)
}

// requireNamespace refuses to install into a namespace that is not there and is not to be made. That says nothing about
// the inputs, so they are not to blame for it, as they would be for what Helm fails with.
func (op *operation) requireNamespace(ctx context.Context) error {
	if op.upgrade.GetCreateNamespace() {
		return nil
	}
	_, err := op.client.Clientset.CoreV1().Namespaces().Get(ctx, op.release.Namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fault.New(seatrialv1.ClassRejected, "make the namespace, or set upgrade.createNamespace to true",
			"the namespace %s does not exist", op.release.Namespace)
	case apierrors.IsForbidden(err): // whoever may only work in this namespace cannot ask for it
		return nil
	}
	return err
}

// upgradeTo upgrades. Helm renders, checks and makes the record, at which admit has its say, and only then mutates.
func (op *operation) upgradeTo(cfg *helmaction.Configuration, loaded *helmchart.Chart, values map[string]any) error {
	o := op.upgrade
	up := helmaction.NewUpgrade(cfg)
	up.Namespace = op.release.Namespace
	up.Timeout = op.timeout
	up.Wait = waits(o)
	up.WaitForJobs = o.GetWaitForJobs()
	up.Force = o.GetForce()
	up.CleanupOnFail = o.GetCleanupOnFail()
	up.TakeOwnership = o.GetTakeOwnership()
	up.DisableHooks = o.GetDisableHooks()
	up.SkipSchemaValidation = o.GetSkipSchemaValidation()
	up.DisableOpenAPIValidation = o.GetDisableOpenapiValidation()
	up.Description = o.GetDescription()
	up.Labels = o.GetLabels()
	up.ResetValues = true // values are merged already
	// Helm's own way to be interrupted leaves its goroutine at work. Waiting ends with the operation's context instead.
	_, err := up.RunWithContext(context.Background(), op.release.Name, loaded, values)
	return err
}

// install installs. Helm may make definitions and the namespace before it makes the record; then a dry run comes first,
// so that admit is asked before anything is mutated.
func (op *operation) install(cfg *helmaction.Configuration, loaded *helmchart.Chart, archive *chart.Archive, values map[string]any) error {
	definitions := loaded.CRDObjects()
	if op.upgrade.GetCrds() == seatrialv1.CRDsSkip {
		definitions = nil
	}
	if op.upgrade.GetCreateNamespace() || len(definitions) > 0 {
		again, err := archive.Chart() // rendering changes the chart
		if err != nil {
			return err
		}
		dry := op.installer(cfg)
		dry.DryRun, dry.DryRunOption = true, "server" // a lookup in a template reads; nothing is written
		forget := op.helm.Expect(definitions)
		rel, err := dry.RunWithContext(context.Background(), again, values)
		forget()
		if err != nil {
			return err
		}
		if err := op.admit(rel, op.Command.GetDeploy().GetTest()); err != nil {
			return err
		}
	}
	if len(definitions) > 0 {
		cfg.Capabilities = nil // what they define will be among them
	}
	in := op.installer(cfg)
	// A failed install before this one has a record, which stays.
	in.Replace = true
	rel, err := in.RunWithContext(context.Background(), loaded, values)
	if err == nil {
		op.sweep(rel)
	}
	return err
}

func (op *operation) installer(cfg *helmaction.Configuration) *helmaction.Install {
	o := op.upgrade
	in := helmaction.NewInstall(cfg)
	in.ReleaseName = op.release.Name
	in.Namespace = op.release.Namespace
	in.CreateNamespace = o.GetCreateNamespace()
	in.Timeout = op.timeout
	in.Wait = waits(o)
	in.WaitForJobs = o.GetWaitForJobs()
	in.Force = o.GetForce()
	in.TakeOwnership = o.GetTakeOwnership()
	in.DisableHooks = o.GetDisableHooks()
	in.SkipSchemaValidation = o.GetSkipSchemaValidation()
	in.DisableOpenAPIValidation = o.GetDisableOpenapiValidation()
	in.SkipCRDs = o.GetCrds() == seatrialv1.CRDsSkip
	in.Description = o.GetDescription()
	in.Labels = o.GetLabels()
	return in
}

// sweep deletes what failed installs before this one have left and this one does not have: Helm's install knows nothing
// of them.
func (op *operation) sweep(rel *helmrelease.Release) {
	for _, failed := range op.history {
		if failed.Info.Status != helmrelease.StatusFailed {
			continue
		}
		err := op.helm.DeleteRest(failed.Manifest, rel.Manifest)
		if err != nil {
			op.log.Warn("something of a failed install may be left",
				"revision", failed.Version, "error", op.redactor.Redact(err.Error()))
		}
	}
}

// waits: waiting is the default.
func waits(o *seatrialv1.UpgradeOptions) bool { return o == nil || o.Wait == nil || o.GetWait() }

// currentOf returns what an upgrade starts from, as Helm chooses it: the newest deployed record; else the newest of all,
// if anything was ever deployed; nil means that an install is due.
func currentOf(history []*helmrelease.Release) *helmrelease.Release {
	ever := false
	for _, rel := range slices.Backward(history) {
		switch rel.Info.Status {
		case helmrelease.StatusDeployed:
			return rel
		case helmrelease.StatusSuperseded:
			ever = true
		}
		if rel.Info.Status == helmrelease.StatusUninstalled {
			break
		}
	}
	if !ever {
		return nil
	}
	return history[len(history)-1]
}
