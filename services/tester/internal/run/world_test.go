package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	helmrelease "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/helm/release"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// patience is far longer than anything that is waited for; it bounds a test that would hang.
const (
	patience = 90 * time.Second
	tick     = 50 * time.Millisecond
)

// forever is the script of a test that ends only when it is told to.
const forever = "echo begun; sleep 3600 & wait"

// world is a release in a namespace of its own in the real cluster. That its records stay what they were is checked when
// the test ends, whatever it is about.
type world struct {
	*testing.T
	client    *kube.Client
	namespace string
	record    *helmrelease.Release
}

// newWorld deploys a release `web` without pods of its own, and with no tests but those of the options.
func newWorld(t *testing.T, options ...helmtest.Option) *world {
	t.Helper()
	client := helmtest.Connect(t)
	w := &world{T: t, client: client, namespace: helmtest.Namespace(t, client)}
	options = append([]helmtest.Option{helmtest.WithValues(map[string]any{"replicas": 0}), helmtest.WithoutTests()}, options...)
	helmtest.Deploy(t, client, w.namespace, "web", helmtest.Web("1.0.0", options...))
	before := w.records()
	t.Cleanup(func() { require.Equal(t, before, w.records(), "a test run has written Helm's storage") })
	var err error
	w.record, err = release.Read(t.Context(), client.Clientset, w.namespace, "web", 1)
	require.NoError(t, err)
	return w
}

// records returns what Helm has stored in the namespace, with the versions that the API server gave to it.
func (w *world) records() map[string]any {
	list, err := w.client.Clientset.CoreV1().Secrets(w.namespace).List(context.WithoutCancel(w.Context()), metav1.ListOptions{LabelSelector: "owner=helm"})
	require.NoError(w, err)
	require.NotEmpty(w, list.Items)
	all := map[string]any{}
	for _, secret := range list.Items {
		all[secret.Name] = []any{secret.ResourceVersion, secret.Data, secret.Labels}
	}
	return all
}

// command returns a test command of that number; a test of it may take an hour.
func (w *world) command(number uint32, change ...func(*pb.TestOptions)) *pb.Command {
	options := &pb.TestOptions{Timeout: "1h", Deadline: "2h"}
	for _, c := range change {
		c(options)
	}
	return &pb.Command{Release: "local/" + w.namespace + "/web", Number: number, Action: &pb.Command_Test{Test: &pb.TestCommand{
		HelmRevision: 1, ManifestDigest: release.ManifestDigest(w.record), Options: options, Attempt: 1,
	}}}
}

func (w *world) runner() Runner {
	return Runner{Client: w.client, StuckGrace: 100 * time.Millisecond, LogTimeout: 20 * time.Second, CleanUpTimeout: 20 * time.Second}
}

// run runs the tests to their end, and cleans up after.
func (w *world) run(command *pb.Command) *pb.TestRun {
	w.Helper()
	return w.end(w.start(w.Context(), command))
}

// running is a run that goes on.
type running struct {
	done   chan struct{}
	result Result
	err    error
}

func (w *world) start(ctx context.Context, command *pb.Command) *running {
	r := &running{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.result, r.err = w.runner().Run(ctx, w.record, command)
	}()
	return r
}

// wait waits for the end of a run, without cleaning up.
func (w *world) wait(r *running) Result {
	w.Helper()
	select {
	case <-r.done:
		return r.result
	case <-time.After(patience):
		require.Fail(w, "the run does not end")
		return Result{}
	}
}

func (w *world) end(r *running) *pb.TestRun {
	w.Helper()
	result := w.wait(r)
	require.NoError(w, r.err)
	require.NoError(w, result.CleanUp(w.Context()))
	return result.Run
}

// phases returns `<name> <phase>` of each test.
func phases(run *pb.TestRun) (all []string) {
	for _, test := range run.Tests {
		all = append(all, test.Name+" "+test.Phase)
	}
	return all
}

// pod returns the pod of that name, nil where there is none.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	pod, err := w.client.Clientset.CoreV1().Pods(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w, err)
	return pod
}

// gone waits until there is no pod of that name, or it is another one.
func (w *world) gone(name string, uid types.UID) {
	w.Helper()
	require.Eventually(w, func() bool {
		pod := w.pod(name)
		return pod == nil || pod.UID != uid
	}, patience, tick, "pod %s is still there", name)
}

// inPhase waits until the pod of that name is in this phase, and returns it.
func (w *world) inPhase(name string, phase corev1.PodPhase) (pod *corev1.Pod) {
	w.Helper()
	require.Eventually(w, func() bool {
		pod = w.pod(name)
		return pod != nil && pod.Status.Phase == phase
	}, patience, tick, "pod %s is not %s", name, phase)
	return pod
}

func (w *world) delete(name string) {
	w.Helper()
	require.NoError(w, w.client.Clientset.CoreV1().Pods(w.namespace).Delete(w.Context(), name, metav1.DeleteOptions{}))
}

// make creates a pod by hand.
func (w *world) make(name string, labels map[string]string) *corev1.Pod {
	w.Helper()
	second := int64(1)
	pod, err := w.client.Clientset.CoreV1().Pods(w.namespace).Create(w.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &second, Containers: []corev1.Container{{
			Name: "main", Image: "busybox:1.36", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "3600"},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	return pod
}

// custom adds a test pod with this spec, in YAML of one line.
func custom(name, spec string) helmtest.Option {
	return helmtest.WithFile("templates/tests/"+name+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: "{{ .Release.Name }}-%s", annotations: {helm.sh/hook: test}}
spec: %s
`, name, spec))
}

// errCalledOff is why a run is cancelled.
var errCalledOff = errors.New("called off by the test")
