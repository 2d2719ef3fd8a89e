package app_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/chart"
	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/executor/app"
)

// patience is far longer than anything that is waited for; it bounds a test that would hang.
const (
	patience = 90 * time.Second
	tick     = 50 * time.Millisecond
)

// leaseTTL is after what time a holder that is not heard of is taken for dead.
const leaseTTL = 2 * time.Second

// world is a NATS server and a namespace of a real cluster, in which the test is the planner.
type world struct {
	*testing.T
	nats    *kittest.Server
	conn    *bus.Conn
	client  *kube.Client
	release subject.Release
	number  uint32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	layout := bus.DefaultLayout()
	layout.AckWait = 2 * time.Second // what a dead executor had is given to another after that
	w := &world{T: t, nats: kittest.Provisioned(t, layout), client: helmtest.Connect(t)}
	w.conn = kittest.Connect(t, w.nats.URL)
	w.release = subject.Release{Cluster: "local", Namespace: helmtest.Namespace(t, w.client), Name: "web"}
	return w
}

// config is that of an executor in this world.
func (w *world) config(instance string) app.Config {
	cfg := app.Defaults()
	cfg.NATS.URL = w.nats.URL
	cfg.HTTPAddr = ""
	cfg.Instance = instance
	cfg.Kubeconfig = helmtest.Kubeconfig(w)
	cfg.Namespace = w.release.Namespace
	cfg.LeaseTTL, cfg.RequestTimeout = leaseTTL, leaseTTL/2
	return cfg
}

// start runs an executor in this process, and returns a function that tells it to stop and waits for its end.
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

// process is an executor in a process of its own.
type process struct {
	*exec.Cmd
	lines chan string
}

// spawn starts an executor in a process of its own, which ends with the test.
func (w *world) spawn(cfg app.Config) *process {
	w.Helper()
	p := &process{Cmd: exec.Command(os.Args[0],
		"--nats-url", cfg.NATS.URL, "--http-addr", "", "--instance", cfg.Instance, "--kubeconfig", cfg.Kubeconfig,
		"--namespace", cfg.Namespace, "--lease-ttl", cfg.LeaseTTL.String(), "--request-timeout", cfg.RequestTimeout.String(),
		"--log-level", "debug",
	), lines: make(chan string, 1000)}
	p.Env = append(os.Environ(), childVariable+"=1")
	stderr, err := p.StderrPipe()
	require.NoError(w, err)
	require.NoError(w, p.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	w.Cleanup(func() {
		_ = p.Process.Kill()
		<-read
		_ = p.Wait()
	})
	return p
}

// says waits for a line of the process's log that has one of these texts.
func (w *world) says(p *process, texts ...string) {
	w.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				require.Fail(w, "the process ended without saying", "%q", texts)
			}
			w.Log(line)
			if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
				return
			}
		case <-deadline:
			require.Fail(w, "the process does not say", "%q", texts)
		}
	}
}

// store stores a chart as the planner does.
func (w *world) store(data []byte) *chart.Archive {
	w.Helper()
	archive, err := chart.Load(data)
	require.NoError(w, err)
	require.NoError(w, w.conn.PutObject(w.Context(), subject.ObjectsCharts, archive.Digest, data))
	return archive
}

// order publishes the next command, as the planner does, and returns its number.
func (w *world) order(cmd *pb.Command) uint32 {
	w.Helper()
	w.number++
	cmd.Release, cmd.Number, cmd.Request = w.release.String(), w.number, fmt.Sprintf("request-%d", w.number)
	require.Eventually(w, func() bool {
		err := w.conn.PublishCommand(w.Context(), cmd)
		require.True(w, err == nil || errors.Is(err, bus.ErrSubjectTaken), "%v", err)
		return err == nil
	}, patience, tick)
	return w.number
}

func (w *world) deploy(archive *chart.Archive, timeout string) uint32 {
	w.Helper()
	return w.order(&pb.Command{Requested: archive.Info, Action: &pb.Command_Deploy{Deploy: &pb.DeployCommand{
		ChartDigest: archive.Digest, Upgrade: &pb.UpgradeOptions{Timeout: timeout},
	}}})
}

// until waits for the outcome of that kind about a command.
func (w *world) until(number uint32, kind string) *pb.Outcome {
	w.Helper()
	outcomes, err := w.conn.JS.Stream(w.Context(), subject.StreamOutcomes)
	require.NoError(w, err)
	var found *pb.Outcome
	require.Eventually(w, func() bool {
		msg, err := outcomes.GetLastMsgForSubject(w.Context(), subject.Outcome(kind, w.release))
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

// statuses returns `<revision> <status>` of each of the release's records, oldest first.
func (w *world) statuses() []string {
	w.Helper()
	list, err := w.client.Clientset.CoreV1().Secrets(w.release.Namespace).List(w.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=web"})
	require.NoError(w, err)
	all := make([]string, 0, len(list.Items))
	for _, secret := range list.Items { // in the order of their names: fewer than ten
		all = append(all, secret.Labels["version"]+" "+secret.Labels["status"])
	}
	return all
}

func (w *world) configMaps() []string {
	w.Helper()
	list, err := w.client.Clientset.CoreV1().ConfigMaps(w.release.Namespace).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	var names []string
	for _, item := range list.Items {
		if item.Name != "kube-root-ca.crt" {
			names = append(names, item.Name)
		}
	}
	return names
}

// running says that a pod of that name runs.
func (w *world) running(name string) bool {
	w.Helper()
	pod, err := w.client.Clientset.CoreV1().Pods(w.release.Namespace).Get(w.Context(), name, metav1.GetOptions{})
	return err == nil && pod.Status.Phase == corev1.PodRunning
}

// audited is a request in the API server's audit log.
type audited struct {
	Stage, UserAgent         string
	RequestReceivedTimestamp time.Time

	number uint32
	fence  uint64
}

// audit returns the mutating requests that executors have made in the world's namespace, in the order of their arrival.
func (w *world) audit() []audited {
	w.Helper()
	path := os.Getenv("SEATRIAL_AUDIT_LOG")
	require.NotEmpty(w, path, "this test reads the API server's audit log: run it by make test, or set SEATRIAL_AUDIT_LOG")
	data, err := os.ReadFile(path)
	require.NoError(w, err)
	var all []audited
	for line := range bytes.Lines(data) {
		if !bytes.Contains(line, []byte(w.release.Namespace)) || !bytes.Contains(line, []byte("seatrial-executor/")) {
			continue
		}
		var entry audited
		require.NoError(w, json.Unmarshal(line, &entry))
		if entry.Stage != "RequestReceived" {
			continue
		}
		_, tail, _ := strings.Cut(entry.UserAgent, " ")
		_, err := fmt.Sscanf(tail, "command/%d fence/%d", &entry.number, &entry.fence)
		require.NoError(w, err, entry.UserAgent)
		all = append(all, entry)
	}
	return all
}
