package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	helmkube "helm.sh/helm/v3/pkg/kube"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Helm's own pace and patience with an API server that does not answer: so many errors in a row, so far apart.
const (
	maxErrors  = 30
	errorPause = 2 * time.Second
)

// Helm is the client of one Helm action: Helm's own, except for its waiting and for what it remembers.
//
// It waits by watching: Helm's readiness rules are applied at each change instead of every two seconds, so that a release
// is ready when Helm would find it ready, and never later. It waits under the action's context, which Helm knows nothing
// of: when that ends, all waiting ends, and Helm with it. And it remembers the first error with its class, of which Helm
// leaves a text only, and the state of the objects that stood in the way, gathered before Helm cleans up.
type Helm struct {
	*helmkube.Client

	ctx       context.Context // Helm's interface has no room for it
	getter    genericclioptions.RESTClientGetter
	clientset kubernetes.Interface
	observer  *observer
	redactor  *Redactor
	expected  map[schema.GroupKind]bool

	mu      sync.Mutex
	mutated bool
	removed bool
	fault   error
	objects []*seatrialv1.ObjectReport
}

var (
	_ helmkube.Interface                    = (*Helm)(nil)
	_ helmkube.InterfaceExt                 = (*Helm)(nil)
	_ helmkube.InterfaceThreeWayMerge       = (*Helm)(nil)
	_ helmkube.InterfaceDeletionPropagation = (*Helm)(nil)
)

// Helm returns the client for one action in a namespace. ctx bounds all waiting; a
// deadline of it means that something was not ready in time, any other end that the action was interrupted. The
// redactor learns the values of every Secret that the action reads.
func (c *Client) Helm(ctx context.Context, namespace string, redactor *Redactor, log *slog.Logger) (*Helm, error) {
	o := &observer{redactor: redactor}
	observed, err := c.Wrap(o.wrap)
	if err != nil {
		return nil, err
	}
	getter := observed.RESTClientGetter(namespace)
	client := helmkube.New(getter)
	client.Namespace = namespace
	client.Log = func(format string, args ...any) {
		log.DebugContext(ctx, "helm", "says", redactor.Redact(strings.TrimSpace(fmt.Sprintf(format, args...))))
	}
	return &Helm{
		Client: client, ctx: ctx, getter: getter, clientset: observed.Clientset, observer: o, redactor: redactor,
	}, nil
}

// Getter returns what belongs to this client where Helm asks for it apart.
func (h *Helm) Getter() genericclioptions.RESTClientGetter { return h.getter }

// Mutated says that something may have been changed.
func (h *Helm) Mutated() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mutated
}

// Removed says that the deletion of a release's objects, hooks apart, was begun.
func (h *Helm) Removed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.removed
}

// Fault returns the first error of the action, nil if there was none.
func (h *Helm) Fault() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault
}

// Objects returns the state of the objects that stood in the way, as it was then.
func (h *Helm) Objects() []*seatrialv1.ObjectReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.objects
}

// Class returns the class of the error that the action ended with: by the first request or wait that failed; else by the
// error itself; else, as Helm makes texts of errors, by what the API server answered. It is "" where none says anything.
func (h *Helm) Class(err error) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != nil {
		return fault.Class(h.fault)
	}
	return first(Class(err), h.observer.worst())
}

// Create creates the objects.
func (h *Helm) Create(resources helmkube.ResourceList) (*helmkube.Result, error) {
	h.mutates()
	result, err := h.Client.Create(resources)
	// Helm takes a namespace or a definition that exists already for created.
	if !apierrors.IsAlreadyExists(err) {
		h.refused(err)
	}
	return result, err
}

// Update makes the objects what target says, and deletes those of original that are not in it.
func (h *Helm) Update(original, target helmkube.ResourceList, force bool) (*helmkube.Result, error) {
	h.mutates()
	result, err := h.Client.Update(original, target, force)
	h.refused(err)
	return result, err
}

// UpdateThreeWayMerge is Update that keeps what others have set in objects of unknown kinds.
func (h *Helm) UpdateThreeWayMerge(original, target helmkube.ResourceList, force bool) (*helmkube.Result, error) {
	h.mutates()
	result, err := h.Client.UpdateThreeWayMerge(original, target, force)
	h.refused(err)
	return result, err
}

// Delete deletes the objects.
func (h *Helm) Delete(resources helmkube.ResourceList) (*helmkube.Result, []error) {
	h.mutates()
	result, errs := h.Client.Delete(resources)
	h.refused(errors.Join(errs...))
	return result, errs
}

// DeleteWithPropagationPolicy deletes the objects of a release that is uninstalled.
func (h *Helm) DeleteWithPropagationPolicy(resources helmkube.ResourceList, policy metav1.DeletionPropagation) (*helmkube.Result, []error) {
	h.mutates()
	h.mu.Lock()
	h.removed = true
	h.mu.Unlock()
	result, errs := h.Client.DeleteWithPropagationPolicy(resources, policy)
	h.refused(errors.Join(errs...))
	return result, errs
}

// mutates begins something that may change objects: what the API server answers from now on is about that.
func (h *Helm) mutates() {
	h.observer.worst()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mutated = true
}

// refused remembers why a request did not do what it should.
func (h *Helm) refused(err error) {
	if err != nil {
		_ = h.remember(fault.New(first(Class(err), h.observer.worst(), seatrialv1.ClassFailed), "", "%w", err))
	}
}

// Wait waits until all are ready, jobs apart.
func (h *Helm) Wait(resources helmkube.ResourceList, timeout time.Duration) error {
	return h.wait(resources, timeout)
}

// WaitWithJobs waits until all are ready, and the jobs complete.
func (h *Helm) WaitWithJobs(resources helmkube.ResourceList, timeout time.Duration) error {
	return h.wait(resources, timeout, helmkube.CheckJobs(true))
}

func (h *Helm) wait(resources helmkube.ResourceList, timeout time.Duration, options ...helmkube.ReadyCheckerOption) error {
	ctx, cancel := context.WithTimeout(h.ctx, timeout)
	defer cancel()
	checker := helmkube.NewReadyChecker(h.clientset, h.Log, append(options, helmkube.PausedAsReady(true))...)
	ready := func(info *resource.Info) (bool, error) {
		ok, err := checker.IsReady(ctx, info)
		if !ok && len(options) > 0 {
			err = errors.Join(err, h.failedJob(ctx, info))
		}
		return ok, err
	}
	// All must be found ready in one round, as Helm has it.
	wavered := false
	for again := true; again; {
		again = false
		var unproved helmkube.ResourceList
		for i, info := range resources {
			late, err := h.until(ctx, info, func() (bool, error) { return ready(info) }, nil)
			if err != nil {
				return h.unready(resources[i:], checker, err, timeout)
			}
			again = again || late
			if (late || wavered) && !probed(info) {
				unproved = append(unproved, info)
			}
		}
		wavered = !h.linger(ctx, unproved, ready)
		again = again || wavered
	}
	return nil
}

// steady is how long a workload without a readiness probe must be ready. The kubelet looks at its containers every
// second, and until it has noticed and told that one has died, that one counts as ready: for containers that live for less
// than 0.7 s that took up to 1.4 s. A longer pause would find releases ready later than Helm does.
const steady = 1400 * time.Millisecond

// linger waits while all stay ready and none of their containers is started again, until they have done so for long
// enough, and reports whether they did. Without it, watching would see the moment at which a container that dies at once
// was up, where Helm's polling mostly misses it.
func (h *Helm) linger(ctx context.Context, resources helmkube.ResourceList, ready func(*resource.Info) (bool, error)) bool {
	if len(resources) == 0 {
		return true
	}
	changed, stop := h.follow(ctx, nil, resources...)
	defer stop()
	before := h.restarts(ctx, resources)
	enough := time.After(steady)
	for {
		select {
		case <-changed:
		case <-enough:
			// A container that was started again at once may never have been told to be down.
			for container, count := range h.restarts(ctx, resources) {
				if was, known := before[container]; known && count > was {
					return false
				}
			}
			return true
		case <-ctx.Done():
			return false
		}
		for _, info := range resources {
			if ok, err := ready(info); !ok && err == nil {
				return false
			}
		}
	}
}

// restarts returns how often each container of the workloads' pods was started again. What cannot be read is left out.
func (h *Helm) restarts(ctx context.Context, resources helmkube.ResourceList) map[string]int32 {
	counts := map[string]int32{}
	for _, info := range resources {
		options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", info.Name).String()} // a pod
		if selector, err := helmkube.SelectorsForObject(helmkube.AsVersioned(info)); err == nil {
			options = metav1.ListOptions{LabelSelector: selector.String()}
		}
		pods, err := h.clientset.CoreV1().Pods(info.Namespace).List(ctx, options)
		if err != nil {
			continue
		}
		for _, pod := range pods.Items {
			for _, status := range pod.Status.ContainerStatuses {
				counts[string(pod.UID)+"/"+status.Name] = status.RestartCount
			}
		}
	}
	return counts
}

// probed says that every container of a workload's pods has a readiness probe, or that the object is no workload.
func probed(info *resource.Info) bool {
	object, ok := info.Object.(*unstructured.Unstructured)
	if !ok {
		return true
	}
	path := []string{"spec", "template", "spec", "containers"}
	if info.Mapping.GroupVersionKind.Kind == "Pod" {
		path = []string{"spec", "containers"}
	}
	containers, _, _ := unstructured.NestedSlice(object.Object, path...)
	return !slices.ContainsFunc(containers, func(container any) bool {
		c, ok := container.(map[string]any)
		return ok && c["readinessProbe"] == nil
	})
}

// WatchUntilReady waits until hooks have run: a Pod or a Job must succeed; all else is ready once it exists. One that is
// deleted counts as done, as Helm has it.
func (h *Helm) WatchUntilReady(resources helmkube.ResourceList, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(h.ctx, timeout)
	defer cancel()
	for _, info := range resources {
		seen := &ending{info: info}
		check := func() (bool, error) {
			if done, err := seen.end(); done || err != nil {
				return done, err
			}
			return h.succeeded(ctx, info, seen)
		}
		if _, err := h.until(ctx, info, check, seen.see); err != nil {
			return h.stopped(helmkube.ResourceList{info}, fmt.Sprintf("hook %s", name(info)), "has not succeeded", err, timeout)
		}
	}
	return nil
}

// WaitForDelete waits until none exists.
func (h *Helm) WaitForDelete(resources helmkube.ResourceList, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(h.ctx, timeout)
	defer cancel()
	for _, info := range resources {
		_, err := h.until(ctx, info, func() (bool, error) {
			err := get(info).Do(ctx).Error()
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		}, nil)
		if err != nil {
			return h.stopped(helmkube.ResourceList{info}, name(info), "is not gone", err, timeout)
		}
	}
	return nil
}

// succeeded says whether a hook has run. It returns errFailed where it never will.
func (h *Helm) succeeded(ctx context.Context, info *resource.Info, seen *ending) (bool, error) {
	var object runtime.Object
	var err error
	switch helmkube.AsVersioned(info).(type) {
	case *corev1.Pod:
		object, err = h.clientset.CoreV1().Pods(info.Namespace).Get(ctx, info.Name, metav1.GetOptions{})
	case *batchv1.Job:
		object, err = h.clientset.BatchV1().Jobs(info.Namespace).Get(ctx, info.Name, metav1.GetOptions{})
	default:
		return true, nil
	}
	switch {
	case apierrors.IsNotFound(err):
		return seen.gone()
	case err != nil:
		return false, err
	}
	return hookEnd(object)
}

// hookEnd says whether a Pod or a Job has succeeded. It returns errFailed where it never will.
func hookEnd(object runtime.Object) (bool, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		if o.Status.Phase == corev1.PodFailed {
			return false, fmt.Errorf("%w: %s", errFailed, first(o.Status.Reason, "the pod failed"))
		}
		return o.Status.Phase == corev1.PodSucceeded, nil
	case *batchv1.Job:
		return jobEnd(o)
	}
	return false, nil
}

// ending is what a watch saw of a hook. One that is deleted as soon as it has ended, as by its TTL, may be gone before
// it can be read.
type ending struct {
	info *resource.Info

	mu    sync.Mutex
	alive bool // its deletion is still to be seen
	done  bool
	err   error
}

func (e *ending) see(event watch.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.alive = event.Type == watch.Added || event.Type == watch.Modified
	if event.Object != nil && !e.done && e.err == nil {
		e.done, e.err = hookEnd(helmkube.AsVersioned(&resource.Info{Object: event.Object, Mapping: e.info.Mapping}))
	}
}

func (e *ending) end() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done, e.err
}

// gone says whether a hook that does not exist any more counts as done. It does so unless the watch, which tells all that
// came before, has yet to tell that.
func (e *ending) gone() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err == nil && !e.alive, e.err
}

// failedJob returns errFailed for a job that will never complete. Helm would wait on.
func (h *Helm) failedJob(ctx context.Context, info *resource.Info) error {
	if _, ok := helmkube.AsVersioned(info).(*batchv1.Job); !ok {
		return nil
	}
	job, err := h.clientset.BatchV1().Jobs(info.Namespace).Get(ctx, info.Name, metav1.GetOptions{})
	if err != nil {
		return nil //nolint:nilerr // the readiness check has its own word on a job that cannot be read
	}
	_, err = jobEnd(job)
	return err
}

func jobEnd(job *batchv1.Job) (complete bool, err error) {
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			return true, nil
		case batchv1.JobFailed, batchv1.JobFailureTarget: // the second until its pods are gone
			return false, fmt.Errorf("%w: %s: %s", errFailed, condition.Reason, condition.Message)
		}
	}
	return false, nil
}

// errFailed says that what is waited for has ended badly.
var errFailed = errors.New("failed")

// until checks until the check says done, and again at each change of the object. late says that it was not done at
// once. The error is errFailed, an answer of the API server that will not change, its last trouble when its patience is
// used up, or ctx's own. see gets each event before the check that it leads to; it may be nil.
func (h *Helm) until(ctx context.Context, info *resource.Info, check func() (bool, error), see func(watch.Event)) (late bool, err error) {
	if done, err := check(); done || final(err) {
		return false, err
	}
	changed, stop := h.follow(ctx, see, info)
	defer stop()
	var retry <-chan time.Time
	for failures := 0; ; {
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return true, ctx.Err()
		}
		done, err := check()
		if done || final(err) {
			return true, err
		}
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		if failures++; failures > maxErrors {
			return true, err
		}
		retry = time.After(errorPause)
	}
}

// final says that an error will not go away, by Helm's rule: the API server has refused. What it could not answer, or
// nobody knows, may go away.
func final(err error) bool {
	if errors.Is(err, errFailed) {
		return true
	}
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && Class(err) == seatrialv1.ClassFailed
}

// opener opens a watch that begins with what is there now.
type opener func(context.Context) (watch.Interface, error)

// watches returns what shows that the readiness of an object may have changed: the object itself, and the pods where
// Helm looks at them too.
func (h *Helm) watches(info *resource.Info) []opener {
	itself := func(ctx context.Context) (watch.Interface, error) {
		return info.Client.Get().
			NamespaceIfScoped(info.Namespace, info.Namespaced()).
			Resource(info.Mapping.Resource.Resource).
			VersionedParams(&metav1.ListOptions{
				Watch: true, FieldSelector: fields.OneTermEqualSelector("metadata.name", info.Name).String(),
			}, scheme.ParameterCodec).
			Watch(ctx)
	}
	if kind := info.Mapping.GroupVersionKind.Kind; kind != "ReplicaSet" && kind != "ReplicationController" {
		return []opener{itself}
	}
	selector, err := helmkube.SelectorsForObject(helmkube.AsVersioned(info))
	if err != nil {
		return []opener{itself}
	}
	return []opener{itself, func(ctx context.Context) (watch.Interface, error) {
		return h.clientset.CoreV1().Pods(info.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	}}
}

// follow signals at each change of the objects until it is stopped.
func (h *Helm) follow(ctx context.Context, see func(watch.Event), resources ...*resource.Info) (changed <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan struct{}, 1)
	var watches sync.WaitGroup
	for _, info := range resources {
		for _, open := range h.watches(info) {
			watches.Go(func() { follow(ctx, open, see, signals) })
		}
	}
	return signals, func() {
		cancel()
		watches.Wait()
	}
}

// follow signals at each event of a watch until ctx ends. A watch that ends is opened again, and what may have happened
// meanwhile is signalled too; where none can be opened, that makes it look as often as Helm does. see gets each event
// first, and one without a type when a watch has ended; it may be nil.
func follow(ctx context.Context, open opener, see func(watch.Event), changed chan<- struct{}) {
	if see == nil {
		see = func(watch.Event) {}
	}
	for ctx.Err() == nil {
		opened := time.Now()
		if events, err := open(ctx); err == nil {
			signal(changed) // what is gone already makes no event
			for event := range events.ResultChan() {
				see(event)
				signal(changed)
			}
			events.Stop()
			see(watch.Event{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(opened.Add(errorPause))):
		}
		signal(changed)
	}
}

// FollowSecret signals at each change of a Secret until ctx ends, the first time soon.
func (c *Client) FollowSecret(ctx context.Context, namespace, name string) <-chan struct{} {
	changed := make(chan struct{}, 1)
	go follow(ctx, func(ctx context.Context) (watch.Interface, error) {
		return c.Clientset.CoreV1().Secrets(namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(),
		})
	}, nil, changed)
	return changed
}

// signal says that something has changed. Changes that nobody has seen yet are one.
func signal(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}

// unready makes the error of a wait, and reports on everything that is not ready.
func (h *Helm) unready(left helmkube.ResourceList, checker helmkube.ReadyChecker, cause error, timeout time.Duration) error {
	ctx, cancel := h.afterwards()
	defer cancel()
	blocking := left[:1:1]
	for _, info := range left[1:] {
		if ready, err := checker.IsReady(ctx, info); err == nil && !ready {
			blocking = append(blocking, info)
		}
	}
	return h.stopped(blocking, name(left[0]), "is not ready", cause, timeout)
}

// stopped remembers and returns why a wait ended without success, with the state of what was in its way.
func (h *Helm) stopped(blocking helmkube.ResourceList, subject, state string, cause error, timeout time.Duration) error {
	var err error
	switch {
	case errors.Is(h.ctx.Err(), context.Canceled):
		return h.remember(fault.New(seatrialv1.ClassInterrupted, "", "%s %s: %w", subject, state, context.Cause(h.ctx)))
	case errors.Is(cause, context.DeadlineExceeded):
		err = fault.New(seatrialv1.ClassFailed, "", "%s %s within the time-out of %s", subject, state, timeout)
	default:
		err = fault.New(first(Class(cause), seatrialv1.ClassFailed), "", "%s %s: %w", subject, state, cause)
	}
	ctx, cancel := h.afterwards()
	defer cancel()
	reports := h.report(ctx, blocking)
	h.mu.Lock()
	h.objects = append(h.objects, reports...)
	h.mu.Unlock()
	if why := summary(reports); why != "" {
		err = fault.New(fault.Class(err), "", "%w: %s", err, why)
	}
	return h.remember(err)
}

// afterwards returns a context for what is to be learned about an action whose own context has ended.
func (h *Helm) afterwards() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(h.ctx), 10*time.Second)
}

// remember keeps the first error of the action.
func (h *Helm) remember(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault == nil {
		h.fault = err
	}
	return err
}

// get starts a request for an object.
func get(info *resource.Info) *rest.Request {
	return info.Client.Get().
		NamespaceIfScoped(info.Namespace, info.Namespaced()).
		Resource(info.Mapping.Resource.Resource).
		Name(info.Name)
}

// name returns how people call an object: kind, namespace and name.
func name(info *resource.Info) string {
	kind := info.Mapping.GroupVersionKind.Kind
	if !info.Namespaced() {
		return kind + " " + info.Name
	}
	return kind + " " + info.Namespace + "/" + info.Name
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
