// Package run carries out the Helm tests of one revision: it reads the revision's record, creates the test hooks itself,
// watches them to their end, reads their logs and sums them up. It never writes Helm's storage.
package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	helmrelease "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/helm/release"
	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

var (
	errDeadline = errors.New("the deadline of the whole run was reached")
	errFailFast = errors.New("an earlier test failed, and the request asked to stop then (test.failFast)")
	errBarrier  = errors.New("a fixture of this or an earlier weight could not be created")
)

// Runner runs tests in one cluster.
type Runner struct {
	// Client acts under the command's gate.
	Client *kube.Client
	// StuckGrace is how long a waiting reason that does not heal is given before the test counts as errored.
	StuckGrace time.Duration
	// LogTimeout bounds the reading of a test's logs, CleanUpTimeout the deletions after a run.
	LogTimeout     time.Duration
	CleanUpTimeout time.Duration
}

// Result is a run that has come to its end.
type Result struct {
	Run *seatrialv1.TestRun
	// Failure says why a run that ended in `errored` would do so again; else it is nil.
	Failure *seatrialv1.Failure
	// CleanUp deletes what the delete policies say, and whatever still runs. It is apart from the run so that the
	// verdict need not wait for it; it needs the command's lease.
	CleanUp func(ctx context.Context) error
}

// Run runs the tests of rel, the record of the revision that the command names. It returns an error only where nothing
// was found out: ctx was cancelled, by its cause; everything else is a verdict.
func (r Runner) Run(ctx context.Context, rel *helmrelease.Release, command *seatrialv1.Command) (Result, error) {
	options := command.GetTest().GetOptions()
	started := time.Now()
	result := Result{
		Run: &seatrialv1.TestRun{
			HelmRevision:   command.GetTest().GetHelmRevision(),
			ManifestDigest: command.GetTest().GetManifestDigest(),
			Attempt:        command.GetTest().GetAttempt(),
			Selection:      options.GetFilters(),
			StartedAt:      timestamppb.New(started),
		},
		CleanUp: func(context.Context) error { return nil },
	}
	timeout, err := time.ParseDuration(options.GetTimeout())
	if err != nil || timeout <= 0 {
		return result.errored("test.timeout %q: a test never runs without a time-out", options.GetTimeout()), nil
	}
	deadline, err := time.ParseDuration(options.GetDeadline())
	if err != nil || deadline <= 0 {
		return result.errored("test.deadline %q: a run never goes on without a deadline", options.GetDeadline()), nil
	}
	plan, err := newPlan(rel, options.GetFilters())
	if err != nil {
		// The same run would end in the same way.
		result.Failure = fault.Failure(fault.New(seatrialv1.ClassFailed, "ask again with names of the chart's tests", "%w", err))
		return result.errored("%v", err), nil
	}
	if plan.tests == 0 {
		return result.finish(plan, nil, reasonForNone(plan)), nil
	}

	name, err := subject.ParseRelease(command.GetRelease())
	if err != nil {
		return result.errored("%v", err), nil
	}
	mapper, err := r.Client.RESTClientGetter(rel.Namespace).ToRESTMapper()
	if err != nil {
		return result.errored("discover the API server's kinds: %v", err), nil
	}
	dyn, err := dynamic.NewForConfig(r.Client.Config)
	if err != nil {
		return result.errored("%v", err), nil
	}
	e := &execution{
		runner:  r,
		timeout: timeout,
		options: options,
		objects: objects{dynamic: dyn, mapper: mapper, owner: owner{
			release: name.Name, namespace: name.Namespace, revision: rel.Version, number: command.GetNumber(),
		}},
		redact:  kube.NewRedactor(),
		results: map[*helmrelease.Hook]*seatrialv1.TestResult{},
	}
	e.redact.AddManifest(rel.Manifest)
	for _, hook := range rel.Hooks {
		e.redact.AddManifest(hook.Manifest)
	}

	running, cancel := context.WithDeadlineCause(ctx, started.Add(deadline), errDeadline)
	defer cancel()
	e.watcher, err = watch(running, r.Client.Clientset, plan.namespaces(), e.objects.owner.labels().String())
	if err != nil {
		if ctx.Err() != nil {
			return result, context.Cause(ctx)
		}
		return result.errored("%v", err), nil
	}
	reason := e.runAll(running, plan)
	if ctx.Err() != nil {
		result.CleanUp = e.cleanUp
		return result, context.Cause(ctx)
	}
	result = result.finish(plan, e.results, reason)
	result.CleanUp = e.cleanUp
	return result, nil
}

func (r Result) errored(format string, args ...any) Result {
	r.Run.Verdict, r.Run.Reason = seatrialv1.VerdictErrored, fmt.Sprintf(format, args...)
	r.Run.EndedAt = timestamppb.Now()
	return r
}

// finish lists every test of the plan: those that ran, those that did not, and those that were not selected.
func (r Result) finish(p plan, results map[*helmrelease.Hook]*seatrialv1.TestResult, reason string) Result {
	for _, barrier := range p.barriers {
		for _, s := range barrier.tests {
			test := results[s.hook]
			if test == nil {
				test = s.result(seatrialv1.PhaseNotRun, reason)
			}
			r.Run.Tests = append(r.Run.Tests, test)
		}
	}
	bound(r.Run.Tests)
	for _, s := range p.notSelected {
		r.Run.Tests = append(r.Run.Tests, s.result(seatrialv1.PhaseNotSelected, ""))
	}
	r.Run.Reason = reason
	r.Run.Verdict = verdict(r.Run.Tests)
	r.Run.EndedAt = timestamppb.Now()
	return r
}

func reasonForNone(p plan) string {
	if len(p.notSelected) > 0 {
		return "the filters select none of the chart's tests: nothing is proven"
	}
	return "the chart has no tests"
}

func (p plan) namespaces() []string {
	var all []string
	for _, barrier := range p.barriers {
		for _, s := range barrier.tests {
			all = append(all, s.object.GetNamespace())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (s step) result(phase, reason string) *seatrialv1.TestResult {
	return &seatrialv1.TestResult{
		Name:      s.hook.Name,
		Kind:      s.object.GetKind(),
		Namespace: s.object.GetNamespace(),
		Weight:    int32(s.hook.Weight),
		Path:      s.hook.Path,
		Phase:     phase,
		Reason:    reason,
	}
}

// execution is one run in progress.
type execution struct {
	runner  Runner
	timeout time.Duration
	options *seatrialv1.TestOptions
	objects objects
	watcher *watcher
	// redact knows the Secrets of the release, and those that its test pods refer to.
	redact *kube.Redactor

	mu      sync.Mutex
	results map[*helmrelease.Hook]*seatrialv1.TestResult
	// placed are the objects of this command, in the order of their creation.
	placed []placed
}

// runAll goes through the barriers; it returns why it stopped before the last one, or "".
func (e *execution) runAll(ctx context.Context, p plan) string {
	for _, barrier := range p.barriers {
		for _, fixture := range barrier.fixtures {
			object, err := e.objects.place(ctx, fixture)
			if err != nil {
				if ctx.Err() != nil {
					return context.Cause(ctx).Error()
				}
				return e.redact.Redact(fmt.Sprintf("%v: %v", errBarrier, err))
			}
			e.note(object)
		}
		e.runTests(ctx, barrier.tests)
		if ctx.Err() != nil {
			return context.Cause(ctx).Error()
		}
		if e.stopped() {
			return errFailFast.Error()
		}
	}
	return ""
}

// runTests runs the tests of one weight, as many at once as the request allows.
func (e *execution) runTests(ctx context.Context, tests []step) {
	var group sync.WaitGroup
	defer group.Wait()
	slots := make(chan struct{}, max(1, e.options.GetParallel()))
	for _, test := range tests {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if ctx.Err() != nil || e.stopped() {
			return
		}
		group.Go(func() {
			defer func() { <-slots }()
			result := e.runTest(ctx, test)
			e.mu.Lock()
			defer e.mu.Unlock()
			e.results[test.hook] = result
		})
	}
}

// stopped: a test did not pass, and the request asked to stop then.
func (e *execution) stopped() bool {
	if !e.options.GetFailFast() {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, result := range e.results {
		if result.GetPhase() != seatrialv1.VerdictPassed {
			return true
		}
	}
	return false
}

// runTest runs one test to its end, whatever that is.
func (e *execution) runTest(ctx context.Context, s step) *seatrialv1.TestResult {
	result := s.result("", "")
	result.StartedAt = timestamppb.Now()
	defer func() {
		result.Reason = e.redact.Redact(result.Reason)
		for i, reason := range result.WaitingReasons {
			result.WaitingReasons[i] = e.redact.Redact(reason)
		}
		result.EndedAt = timestamppb.Now()
	}()

	object, err := e.objects.place(ctx, s)
	if err != nil {
		// Also where the deadline came: a test that did not begin has said nothing about the release.
		result.Phase, result.Reason = seatrialv1.VerdictErrored, err.Error()
		if ctx.Err() != nil {
			result.Reason = fmt.Sprintf("%v: %v", context.Cause(ctx), err)
		}
		return result
	}
	e.note(object)
	// A take-over does not restart the clock: the time-out counts from the object's creation.
	result.StartedAt = timestamppb.New(object.created)

	reading := newReading(func(pod *corev1.Pod) []*seatrialv1.ContainerLog {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.runner.LogTimeout)
		defer cancel()
		return logs(ctx, e.runner.Client.Clientset, e.redact, pod)
	})
	end, seen := e.await(ctx, object, result, reading)
	if end.phase == seatrialv1.VerdictTimedOut {
		if !begun(seen.pods) { // that says nothing about the release
			end = ruling{phase: seatrialv1.VerdictErrored, reason: end.reason + ", and no container has begun"}
		}
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.runner.LogTimeout)
		defer cancel()
		end.reason = join(end.reason, e.waitedFor(asking, seen))
	}
	result.Phase, result.Reason = end.phase, end.reason
	result.Logs = reading.all(seen.pods)
	return result
}

// await watches the object until its test has ended, is stuck, or has run out of time.
func (e *execution) await(ctx context.Context, object placed, result *seatrialv1.TestResult, reading reading) (ruling, sighting) {
	timeout := time.NewTimer(time.Until(object.created.Add(e.timeout)))
	defer timeout.Stop()
	var stuckFor <-chan time.Time
	for {
		seen, changed := e.watcher.sight(object.uid)
		for _, pod := range seen.pods {
			if ended(pod) {
				reading.begin(pod)
			}
		}
		now := judge(seen)
		if now.phase != "" {
			return now, seen
		}
		switch {
		case now.stuck == "":
			stuckFor = nil
		case stuckFor == nil:
			stuckFor = time.After(e.runner.StuckGrace)
		}
		if now.stuck != "" && !slices.Contains(result.WaitingReasons, now.stuck) {
			result.WaitingReasons = append(result.WaitingReasons, now.stuck)
		}
		select {
		case <-changed:
		case <-stuckFor:
			return ruling{phase: seatrialv1.VerdictErrored, reason: now.stuck}, seen
		case <-timeout.C:
			return ruling{phase: seatrialv1.VerdictTimedOut, reason: fmt.Sprintf("not finished after %s (test.timeout)", e.timeout)}, seen
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errDeadline) {
				return ruling{phase: seatrialv1.VerdictTimedOut, reason: errDeadline.Error() + " (test.deadline)"}, seen
			}
			return ruling{phase: seatrialv1.VerdictCancelled, reason: context.Cause(ctx).Error()}, seen
		}
	}
}

// waitedFor says what kept a test from its end, or "" where it was at work.
func (e *execution) waitedFor(ctx context.Context, seen sighting) string {
	about := metav1.Object(seen.job)
	if len(seen.pods) > 0 {
		pod := seen.pods[len(seen.pods)-1]
		if reason := restarting(pod); reason != "" || pod.Status.Phase != corev1.PodPending {
			return reason
		}
		about = pod
	} else if seen.job == nil {
		return ""
	}
	if warnings := kube.Warnings(ctx, e.runner.Client.Clientset, about); len(warnings) > 0 {
		return warnings[0]
	}
	return ""
}

func (e *execution) note(object placed) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.placed = append(e.placed, object)
}

// cleanUp deletes what is due, newest object first.
func (e *execution) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.runner.CleanUpTimeout)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, object := range slices.Backward(e.placed) {
		if e.due(object) {
			errs = append(errs, remove(ctx, object.client, object.object.GetName(), object.uid))
		}
	}
	return errors.Join(errs...)
}

// due: a delete policy takes the object away, hook-succeeded a test that passed or a fixture, hook-failed a test that did
// not pass. A test that has not ended goes in any case: nothing of a run outlives it.
func (e *execution) due(object placed) bool {
	result, isTest := e.results[object.hook]
	if !release.IsTest(object.hook) {
		return deletes(object.hook, helmrelease.HookSucceeded)
	}
	if seen, _ := e.watcher.sight(object.uid); !isTest || judge(seen).phase == "" {
		return true
	}
	if result.GetPhase() == seatrialv1.VerdictPassed {
		return deletes(object.hook, helmrelease.HookSucceeded)
	}
	return deletes(object.hook, helmrelease.HookFailed)
}
