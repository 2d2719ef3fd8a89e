package action

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/chart"
	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// patience is far longer than anything that is waited for; it bounds a test that would hang.
const (
	patience = 60 * time.Second
	tick     = 50 * time.Millisecond
)

// world is a namespace of its own in the real cluster, with a runner and one release in it.
type world struct {
	*testing.T
	client    *kube.Client
	runner    *Runner
	namespace string
	number    uint32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	return &world{T: t, client: client, runner: &Runner{Client: client, Namespace: namespace, Log: log}, namespace: namespace}
}

// order returns the next command's order.
func (w *world) order(cmd *pb.Command) Order {
	w.number++
	cmd.Release, cmd.Number = "local/"+w.namespace+"/web", w.number
	return Order{Command: cmd, Actor: kube.Actor{
		Service: "executor", Version: "test", Number: w.number, Fence: 100 + uint64(w.number), Gate: helmtest.Open{}, RequestTimeout: 10 * time.Second,
	}}
}

func (w *world) deploy(archive *chart.Archive, change ...func(*pb.Command)) *Result {
	w.Helper()
	cmd := &pb.Command{Requested: archive.Info, Action: &pb.Command_Deploy{Deploy: &pb.DeployCommand{
		ChartDigest: archive.Digest, Upgrade: &pb.UpgradeOptions{Timeout: "2m"}, Test: &pb.TestOptions{},
	}}}
	for _, c := range change {
		c(cmd)
	}
	return w.runner.Deploy(w.Context(), w.order(cmd), archive)
}

func (w *world) rollback(to int32, digest string, change ...func(*pb.Command)) *Result {
	w.Helper()
	cmd := &pb.Command{Action: &pb.Command_Rollback{Rollback: &pb.RollbackCommand{
		ToRevision: to, ManifestDigest: digest, Upgrade: &pb.UpgradeOptions{Timeout: "2m"},
	}}}
	for _, c := range change {
		c(cmd)
	}
	return w.runner.Rollback(w.Context(), w.order(cmd))
}

// records returns the release's records, oldest first.
func (w *world) records() []*helmrelease.Release {
	w.Helper()
	all, err := history(w.storage(), "web")
	require.NoError(w, err)
	return all
}

func (w *world) storage() *storage.Storage { return helmtest.Storage(w.client, w.namespace) }

// statuses returns `<revision> <status>` of each record.
func (w *world) statuses() []string {
	w.Helper()
	var all []string
	for _, rel := range w.records() {
		all = append(all, fmt.Sprintf("%d %s", rel.Version, rel.Info.Status))
	}
	return all
}

func (w *world) configMap(name string) *corev1.ConfigMap {
	w.Helper()
	found, err := w.client.Clientset.CoreV1().ConfigMaps(w.namespace).Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w, err)
	return found
}

// done asserts that the command was carried out.
func (w *world) done(r *Result) *Result {
	w.Helper()
	require.Nil(w, r.Failure, "%v", r.Failure)
	return r
}

// failed asserts that it was not, and how.
func (w *world) failed(r *Result, class string, texts ...string) *pb.Failure {
	w.Helper()
	require.NotNil(w, r.Failure)
	require.Equal(w, class, r.Failure.Class, "%v", r.Failure)
	for _, text := range texts {
		require.Contains(w, r.Failure.Reason, text)
	}
	return r.Failure
}

// files are a chart's, by path.
type files map[string]string

// pack makes a chart of version v. Charts of the same files are the same.
func pack(t *testing.T, v string, templates files) *chart.Archive {
	t.Helper()
	all := files{"Chart.yaml": fmt.Sprintf("apiVersion: v2\nname: web\nversion: %s\nappVersion: \"7\"\nannotations: {commit_sha: c0ffee}\n", v)}
	maps.Copy(all, templates)
	archive, err := chart.Load(helmtest.Pack("web", all))
	require.NoError(t, err)
	return archive
}

// note is a ConfigMap: all that a chart needs to be deployed in no time.
func note(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata:\n  text: {{ .Values.text | default \"none\" | quote }}\n", name)
}

// neverReady is a readiness probe that fails.
const neverReady = `readinessProbe: {exec: {command: ["false"]}}`

// app is a Deployment of one busybox that runs command, with more lines for its container.
func app(name, command string, more ...string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: {{ .Values.replicas | default 1 }}
  selector: {matchLabels: {app: {{ .Values.app | default "%[1]s" }}}}
  template:
    metadata: {labels: {app: {{ .Values.app | default "%[1]s" }}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: main
          image: busybox:1.36
          command: [sh, -c, %[2]q]
          %[3]s
`, name, command, strings.Join(more, "\n          "))
}

// hook is a Pod that runs command at an event of the release, with more lines for its container.
func hook(name, event, command string, more ...string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  annotations: {helm.sh/hook: %s}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: busybox:1.36
      command: [sh, -c, %q]
      %s
`, name, event, command, strings.Join(more, "\n      "))
}

func withValues(t *testing.T, values map[string]any) func(*pb.Command) {
	t.Helper()
	s, err := structpb.NewStruct(values)
	require.NoError(t, err)
	return func(cmd *pb.Command) { cmd.GetDeploy().Values = s }
}

func withUpgrade(change func(*pb.UpgradeOptions)) func(*pb.Command) {
	return func(cmd *pb.Command) {
		if back := cmd.GetRollback(); back != nil {
			change(back.Upgrade)
			return
		}
		change(cmd.GetDeploy().Upgrade)
	}
}
