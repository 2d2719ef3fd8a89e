package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/seatrial/seatrial/internal/helm/action"
	"github.com/seatrial/seatrial/internal/helm/chart"
	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// executor carries out deploy, rollback and uninstall commands.
type executor struct {
	cfg    Config
	conn   *bus.Conn
	runner *action.Runner
}

// words are the kinds of the outcomes about one kind of command.
type words struct{ started, done, failed string }

var (
	deploying    = words{seatrialv1.KindDeploying, seatrialv1.KindDeployed, seatrialv1.KindDeployFailed}
	rollingBack  = words{seatrialv1.KindRollingBack, seatrialv1.KindRolledBack, seatrialv1.KindRollbackFailed}
	uninstalling = words{seatrialv1.KindUninstalling, seatrialv1.KindUninstalled, seatrialv1.KindUninstallFailed}
)

// do carries out a command, or finds out what became of one that a former holder had begun.
func (e *executor) do(ctx context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
	said, act := deploying, e.deploy
	switch {
	case claim.Command.GetRollback() != nil:
		said, act = rollingBack, e.runner.Rollback
	case claim.Command.GetUninstall() != nil:
		said, act = uninstalling, e.runner.Uninstall
	}
	if claim.Recovering {
		act = e.runner.Recover
	}
	result := act(ctx, action.Order{
		Command: claim.Command,
		Actor: kube.Actor{
			Service: e.cfg.Name, Version: service.Version, Number: claim.Command.GetNumber(), Fence: claim.Fence(),
			Gate: claim.Gate, RequestTimeout: e.cfg.RequestTimeout,
		},
		Started: func(ctx context.Context, requested, running *seatrialv1.ChartRevision) error {
			outcome := claim.Outcome(said.started)
			outcome.Requested, outcome.Running = requested, running
			outcome.Message = started(claim.Command, requested, running)
			return claim.Publish(ctx, outcome)
		},
		Blocked: func(ctx context.Context, failure *seatrialv1.Failure) error {
			outcome := claim.Outcome(seatrialv1.KindBlocked)
			outcome.Failure, outcome.Message = failure, failure.GetReason()
			return claim.Publish(ctx, outcome)
		},
	})
	if result.Failure != nil && ctx.Err() != nil {
		cause := context.Cause(ctx)
		if !errors.Is(cause, bus.ErrShutdown) {
			return nil, cause
		}
		// The work was called off half-way: that says nothing about the chart.
		result.Failure.Class = seatrialv1.ClassInterrupted
	}
	return outcome(claim, said, result), nil
}

// deploy fetches the chart by its digest, and installs or upgrades.
func (e *executor) deploy(ctx context.Context, order action.Order) *action.Result {
	digest := order.Command.GetDeploy().GetChartDigest()
	data, err := e.conn.GetObject(ctx, subject.ObjectsCharts, digest, chart.MaxArchive)
	var archive *chart.Archive
	if err == nil {
		archive, err = chart.Load(data)
	}
	if err == nil && archive.Digest != digest {
		err = fmt.Errorf("the archive %s in %s has the digest %s", digest, subject.ObjectsCharts, archive.Digest)
	}
	if err != nil {
		// The planner has checked this chart: whatever is wrong with its archive says nothing against the inputs.
		err = fault.New(seatrialv1.ClassTransient, "ask for the deploy again: the planner stores the chart anew",
			"fetch the chart of %s: %w", order.Command.GetRelease(), err)
		return &action.Result{
			Mutation:  &seatrialv1.Mutation{Action: action.Upgrade},
			Requested: order.Command.GetRequested(),
			Running:   order.Command.GetRunning(),
			Failure:   fault.Failure(err),
		}
	}
	return e.runner.Deploy(ctx, order, archive)
}

// outcome is the final one.
func outcome(claim *bus.Claim, said words, result *action.Result) *seatrialv1.Outcome {
	kind, failure := said.done, result.Failure
	switch {
	case failure.GetClass() == seatrialv1.ClassInterrupted:
		kind = seatrialv1.KindInterrupted
	case failure != nil:
		kind = said.failed
	}
	o := claim.Outcome(kind)
	o.Mutation, o.Failure = result.Mutation, failure
	o.Requested, o.Running = result.Requested, result.Running
	o.Message = cmp.Or(failure.GetReason(), done(result))
	return o
}

func started(command *seatrialv1.Command, requested, running *seatrialv1.ChartRevision) string {
	if back := command.GetRollback(); back != nil {
		return fmt.Sprintf("going back from revision %d to what revision %d was", running.GetHelmRevision(), back.GetToRevision())
	}
	if command.GetUninstall() != nil {
		if requested == nil {
			return "uninstalling, although nothing is there"
		}
		return "uninstalling " + title(requested)
	}
	if running == nil {
		return "installing " + title(requested)
	}
	return fmt.Sprintf("upgrading from %s to %s", title(running), title(requested))
}

func done(result *action.Result) string {
	m := result.Mutation
	if m.GetAction() == action.Uninstall {
		return uninstalled(result)
	}
	message := fmt.Sprintf("%s runs as revision %d", title(result.Running), m.GetHelmRevision())
	if m.GetTargetRevision() != 0 {
		message += fmt.Sprintf(", with what revision %d was", m.GetTargetRevision())
	}
	if m.GetRecovered() {
		message += "; a former executor did it and is gone"
	}
	return message
}

func uninstalled(result *action.Result) string {
	m := result.Mutation
	if m.GetFromRevision() == 0 {
		return "nothing was there to uninstall"
	}
	message := fmt.Sprintf("%s (revision %d) is uninstalled", title(result.Requested), m.GetFromRevision())
	if m.GetRecovered() {
		message += "; a former executor did it and is gone"
	}
	return message
}

func title(c *seatrialv1.ChartRevision) string { return c.GetName() + " " + c.GetVersion() }
