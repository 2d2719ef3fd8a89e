package app_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	helmrelease "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/helm/release"
	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/tester/app"
)

// patience is far longer than anything that is waited for; it bounds a test that would hang.
const (
	patience = 90 * time.Second
	tick     = 50 * time.Millisecond
)

// leaseTTL is after what time a holder that is not heard of is taken for dead.
const leaseTTL = 2 * time.Second

// forever is the script of a test that ends only when it is told to.
const forever = "echo begun; sleep 3600 & wait"

// world is a NATS server and a release in a namespace of a real cluster; the test is the planner. That the release's
// records stay what they were is checked when the test ends, whatever it is about.
type world struct {
	*testing.T
	nats    *kittest.Server
	conn    *bus.Conn
	client  *kube.Client
	release subject.Release
	record  *helmrelease.Release
	before  map[string]any
	number  uint32
}

// newWorld deploys a release `web` without pods of its own, and with no tests but those of the options.
func newWorld(t *testing.T, options ...helmtest.Option) *world {
	t.Helper()
	layout := bus.DefaultLayout()
	layout.Clusters[0].Pools = []string{"gpu"}
	layout.AckWait = 2 * time.Second // what a dead tester had is given to another after that
	w := &world{T: t, nats: kittest.Provisioned(t, layout), client: helmtest.Connect(t)}
	w.conn = kittest.Connect(t, w.nats.URL)
	w.release = subject.Release{Cluster: "local", Namespace: helmtest.Namespace(t, w.client), Name: "web"}
	options = append([]helmtest.Option{helmtest.WithValues(map[string]any{"replicas": 0}), helmtest.WithoutTests()}, options...)
	w.record = helmtest.Deploy(t, w.client, w.release.Namespace, "web", helmtest.Web("1.0.0", options...))
	w.before = w.records()
	t.Cleanup(func() { require.Equal(t, w.before, w.records(), "a tester has written Helm's storage") })
	return w
}

// records returns what Helm has stored in the namespace, with the versions that the API server gave to it.
func (w *world) records() map[string]any {
	list, err := w.client.Clientset.CoreV1().Secrets(w.release.Namespace).List(context.WithoutCancel(w.Context()), metav1.ListOptions{LabelSelector: "owner=helm"})
	require.NoError(w, err)
	require.NotEmpty(w, list.Items)
	all := map[string]any{}
	for _, secret := range list.Items {
		all[secret.Name] = []any{secret.ResourceVersion, secret.Data, secret.Labels}
	}
	return all
}

// config is that of a tester in this world.
func (w *world) config(instance string) app.Config {
	cfg := app.Defaults()
	cfg.NATS.URL = w.nats.URL
	cfg.HTTPAddr = ""
	cfg.Instance = instance
	cfg.Kubeconfig = helmtest.Kubeconfig(w)
	cfg.LeaseTTL, cfg.RequestTimeout = leaseTTL, leaseTTL/2
	return cfg
}

// start runs a tester in this process, and returns a function that tells it to stop and waits for its end.
func (w *world) start(cfg app.Config) (stop func()) {
	w.Helper()
	cfg.Log = kittest.Logger(w)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(w, <-ended)
	})
	w.Cleanup(stop)
	return stop
}

// spawn starts a tester in a process of its own, which ends with the test.
func (w *world) spawn(cfg app.Config) *os.Process {
	w.Helper()
	cmd := child("--nats-url", cfg.NATS.URL, "--http-addr", "", "--instance", cfg.Instance, "--kubeconfig", cfg.Kubeconfig,
		"--lease-ttl", cfg.LeaseTTL.String(), "--request-timeout", cfg.RequestTimeout.String(), "--log-level", "debug")
	cmd.Stderr = w.Output()
	require.NoError(w, cmd.Start())
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

// child is this test binary as a tester.
func child(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	return cmd
}

// order publishes the next test command, as the planner does, and returns its number.
func (w *world) order(change ...func(*pb.TestCommand)) uint32 {
	w.Helper()
	w.number++
	test := &pb.TestCommand{
		HelmRevision: 1, ManifestDigest: release.ManifestDigest(w.record), Attempt: 1,
		Options: &pb.TestOptions{Timeout: "1h", Deadline: "2h"},
	}
	for _, c := range change {
		c(test)
	}
	info := release.Info(w.record)
	require.NoError(w, w.conn.PublishCommand(w.Context(), &pb.Command{
		Release: w.release.String(), Number: w.number, Generation: 7, Request: "a-request", Requested: info, Running: info,
		Action: &pb.Command_Test{Test: test},
	}))
	return w.number
}

// outcomes returns all outcomes of that kind about the release, oldest first.
func (w *world) outcomes(kind string) []*pb.Outcome {
	w.Helper()
	name := subject.Outcome(kind, w.release)
	stream, err := w.conn.JS.Stream(w.Context(), subject.StreamOutcomes)
	require.NoError(w, err)
	info, err := stream.Info(w.Context(), jetstream.WithSubjectFilter(name))
	require.NoError(w, err)
	consumer, err := stream.OrderedConsumer(w.Context(), jetstream.OrderedConsumerConfig{FilterSubjects: []string{name}})
	require.NoError(w, err)
	var all []*pb.Outcome
	for range info.State.Subjects[name] {
		msg, err := consumer.Next()
		require.NoError(w, err)
		outcome := &pb.Outcome{}
		require.NoError(w, wire.Unmarshal(msg.Headers(), msg.Data(), outcome))
		all = append(all, outcome)
	}
	return all
}

// until waits for the outcome of that kind about a command.
func (w *world) until(number uint32, kind string) (found *pb.Outcome) {
	w.Helper()
	stream, err := w.conn.JS.Stream(w.Context(), subject.StreamOutcomes)
	require.NoError(w, err)
	require.Eventually(w, func() bool {
		msg, err := stream.GetLastMsgForSubject(w.Context(), subject.Outcome(kind, w.release))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return false
		}
		require.NoError(w, err)
		found = &pb.Outcome{}
		require.NoError(w, wire.Unmarshal(msg.Header, msg.Data, found))
		return found.Number == number
	}, patience, tick, "no outcome %s of command %d", kind, number)
	return found
}

// idle waits until no command is queued or in work, and no lease is held.
func (w *world) idle() {
	w.Helper()
	commands, err := w.conn.JS.Stream(w.Context(), subject.StreamCommands)
	require.NoError(w, err)
	leases, err := bus.OpenBucket[*pb.Lease](w.Context(), w.conn, subject.BucketLeases)
	require.NoError(w, err)
	require.Eventually(w, func() bool {
		info, err := commands.Info(w.Context())
		require.NoError(w, err)
		_, _, err = leases.Get(w.Context(), w.release.Key())
		return info.State.Msgs == 0 && errors.Is(err, bus.ErrNotFound)
	}, patience, tick, "a command or a lease is left")
}

// pod returns the pod of that name, nil where there is none.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	pod, err := w.client.Clientset.CoreV1().Pods(w.release.Namespace).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w, err)
	return pod
}

// runs waits until the pod of that name runs, and returns it.
func (w *world) runs(name string) (pod *corev1.Pod) {
	w.Helper()
	require.Eventually(w, func() bool {
		pod = w.pod(name)
		return pod != nil && pod.Status.Phase == corev1.PodRunning
	}, patience, tick, "pod %s does not run", name)
	return pod
}

// gone waits until there is no pod of that name.
func (w *world) gone(name string) {
	w.Helper()
	require.Eventually(w, func() bool { return w.pod(name) == nil }, patience, tick, "pod %s is still there", name)
}
