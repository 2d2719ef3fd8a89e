package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	helmrelease "helm.sh/helm/v3/pkg/release"

	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/helm/release"
	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/tester/internal/run"
)

// tester carries out test commands.
type tester struct {
	cfg    Config
	log    *slog.Logger
	client *kube.Client
	runner run.Runner
}

// do runs the tests of the revision that the command names.
func (t *tester) do(ctx context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
	command := claim.Command.GetTest()
	name, err := subject.ParseRelease(claim.Command.GetRelease())
	if err != nil {
		return nil, err
	}
	if err := claim.Publish(ctx, t.testing(claim)); err != nil {
		return nil, err
	}
	record, err := release.Read(ctx, t.client.Clientset, name.Namespace, name.Name, int(command.GetHelmRevision()))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return t.unrunnable(claim, err), nil
	}
	if digest := release.ManifestDigest(record); digest != command.GetManifestDigest() {
		return t.unrunnable(claim, fault.New(seatrialv1.ClassFailed, "deploy the release again, then test that revision",
			"revision %d of %s is not what was deployed: its manifest and hooks have the digest %s, not %s",
			command.GetHelmRevision(), name, digest, command.GetManifestDigest())), nil
	}

	if status := record.Info.Status; status != helmrelease.StatusDeployed {
		return t.unrunnable(claim, fault.New(seatrialv1.ClassFailed, "deploy the release again, then test that revision",
			"revision %d of %s does not run any more: somebody else has changed the release, and its record says %s",
			command.GetHelmRevision(), name, status)), nil
	}

	runner := t.runner
	runner.Client = t.client.As(kube.Actor{
		Service: t.cfg.Name, Version: service.Version, Number: claim.Command.GetNumber(), Fence: claim.Fence(),
		Gate: claim.Gate, RequestTimeout: t.cfg.RequestTimeout,
	})
	result, err := runner.Run(ctx, record, claim.Command)
	// A test that was called off must not go on; one that is handed back is adopted by its next holder.
	if err == nil || errors.Is(err, bus.ErrEnded) {
		claim.Defer(func(ctx context.Context) {
			if err := result.CleanUp(ctx); err != nil {
				t.log.WarnContext(ctx, "objects of a test run could not be deleted", "release", name, "number", claim.Command.GetNumber(), "error", err)
			}
		})
	}
	if err != nil {
		return nil, err
	}
	outcome := claim.Outcome(seatrialv1.KindTested)
	outcome.TestRun, outcome.Failure, outcome.Message = result.Run, result.Failure, run.Summary(result.Run)
	return outcome, nil
}

func (t *tester) testing(claim *bus.Claim) *seatrialv1.Outcome {
	outcome, revision := claim.Outcome(seatrialv1.KindTesting), claim.Command.GetTest().GetHelmRevision()
	outcome.Message = fmt.Sprintf("the tests of revision %d start", revision)
	if claim.Recovering {
		outcome.Message = fmt.Sprintf("the tests of revision %d go on: a former tester is gone", revision)
	}
	return outcome
}

// unrunnable is the verdict on a revision whose tests cannot even begin.
func (t *tester) unrunnable(claim *bus.Claim, err error) *seatrialv1.Outcome {
	command := claim.Command.GetTest()
	outcome := claim.Outcome(seatrialv1.KindTested)
	outcome.Failure = fault.Failure(err)
	outcome.TestRun = &seatrialv1.TestRun{
		Verdict:        seatrialv1.VerdictErrored,
		HelmRevision:   command.GetHelmRevision(),
		ManifestDigest: command.GetManifestDigest(),
		Attempt:        command.GetAttempt(),
		Selection:      command.GetOptions().GetFilters(),
		StartedAt:      outcome.GetTime(),
		EndedAt:        outcome.GetTime(),
		Reason:         err.Error(),
	}
	outcome.Message = run.Summary(outcome.GetTestRun())
	return outcome
}
