package app_test

import (
	"cmp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestCommandsAreCarriedOutAndTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.config("a"))
	annotations := map[string]string{"commit_sha": "c0ffee"}
	one := w.store(helmtest.Web("1.0.0", helmtest.WithAnnotations(annotations)))

	number := w.deploy(one, "2m")
	started := w.until(number, pb.KindDeploying)
	require.Equal(t, "1.0.0", started.Requested.Version)
	require.Equal(t, annotations, started.Requested.Annotations, "also of what has not run yet")
	require.Nil(t, started.Running)
	require.Equal(t, "installing web 1.0.0", started.Message)
	done := w.until(number, pb.KindDeployed)
	require.Equal(t, "install", done.Mutation.Action)
	require.EqualValues(t, 1, done.Mutation.HelmRevision)
	require.EqualValues(t, 1, done.Mutation.Tests)
	require.NotEmpty(t, done.Mutation.QuarantineKey)
	require.Equal(t, one.Digest, done.Running.Digest)
	require.Equal(t, annotations, done.Running.Annotations)
	require.Equal(t, "web 1.0.0 runs as revision 1", done.Message)

	number = w.deploy(w.store(helmtest.Web("2.0.0", helmtest.NeverReady())), "3s")
	started = w.until(number, pb.KindDeploying)
	require.Equal(t, "2.0.0", started.Requested.Version)
	require.Equal(t, "1.0.0", started.Running.Version)
	failed := w.until(number, pb.KindDeployFailed)
	require.Equal(t, pb.ClassFailed, failed.Failure.Class)
	require.True(t, failed.Failure.Mutated)
	require.Contains(t, failed.Message, "Deployment "+w.release.Namespace+"/web is not ready within the time-out of 3s")
	require.EqualValues(t, 2, failed.Mutation.HelmRevision)
	require.Equal(t, "1.0.0", failed.Running.Version)

	number = w.order(&pb.Command{Action: &pb.Command_Rollback{Rollback: &pb.RollbackCommand{
		ToRevision: 1, ManifestDigest: done.Mutation.ManifestDigest,
	}}})
	started = w.until(number, pb.KindRollingBack)
	require.Equal(t, "1.0.0", started.Requested.Version, "by the target's record")
	back := w.until(number, pb.KindRolledBack)
	require.EqualValues(t, 1, back.Mutation.TargetRevision)
	require.EqualValues(t, 3, back.Mutation.HelmRevision)
	require.Equal(t, done.Mutation.ManifestDigest, back.Running.ManifestDigest)
	require.Equal(t, one.Digest, back.Running.Digest)
	require.Equal(t, annotations, back.Running.Annotations)
	require.Equal(t, "web 1.0.0 runs as revision 3, with what revision 1 was", back.Message)

	number = w.order(&pb.Command{Action: &pb.Command_Rollback{Rollback: &pb.RollbackCommand{ToRevision: 2, ManifestDigest: "sha256:other"}}})
	refused := w.until(number, pb.KindRollbackFailed)
	require.Contains(t, refused.Failure.Reason, "is not what it was")
	require.False(t, refused.Failure.Mutated)
}

// That says nothing against the inputs: the planner stores the chart anew when it is asked again.
func TestAChartThatIsNotThereOrNotWhatItIsCalledIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.config("a"))
	archive := w.store(helmtest.Web("1.0.0"))

	archive.Digest = "sha256:0000"
	failed := w.until(w.deploy(archive, "2m"), pb.KindDeployFailed)
	require.Equal(t, pb.ClassTransient, failed.Failure.Class)
	require.Contains(t, failed.Failure.Reason, "sha256:0000: not found")

	require.NoError(t, w.conn.PutObject(t.Context(), subject.ObjectsCharts, archive.Digest, archive.Data))
	failed = w.until(w.deploy(archive, "2m"), pb.KindDeployFailed)
	require.Equal(t, pb.ClassTransient, failed.Failure.Class)
	require.Contains(t, failed.Failure.Reason, "has the digest sha256:")
	require.False(t, failed.Failure.Mutated)
	require.Empty(t, w.statuses())
}

func TestAnExecutorThatIsToldToStopCallsItsWorkOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config("a")
	cfg.ShutdownGrace = 100 * time.Millisecond
	stop := w.start(cfg)
	number := w.deploy(w.store(helmtest.Web("1.0.0", helmtest.NeverReady())), "1h")
	require.Eventually(t, func() bool { return len(w.statuses()) == 1 }, patience, tick)
	stop()
	outcome := w.until(number, pb.KindInterrupted)
	require.Equal(t, pb.ClassInterrupted, outcome.Failure.Class)
	require.Equal(t, []string{"1 failed"}, w.statuses(), "nothing is left pending")
}

func TestTheWorkOfAnExecutorThatDiesIsRecovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dies := w.spawn(w.config("dies"))
	number := w.deploy(w.store(helmtest.Web("1.0.0", helmtest.NeverReady())), "1h")
	w.until(number, pb.KindDeploying)
	require.Eventually(t, func() bool { return len(w.statuses()) == 1 }, patience, tick)
	require.NoError(t, dies.Process.Signal(syscall.SIGKILL))
	require.Equal(t, []string{"1 pending-install"}, w.statuses())

	w.start(w.config("heir"))
	outcome := w.until(number, pb.KindInterrupted)
	require.Equal(t, "heir", outcome.Instance)
	require.Contains(t, outcome.Message, "its executor ended when revision 1 was pending-install")
	require.True(t, outcome.Failure.Mutated)
	require.Equal(t, []string{"1 failed"}, w.statuses())
	// The planner orders it anew.
	w.until(w.deploy(w.store(helmtest.Web("1.0.1")), "2m"), pb.KindDeployed)
	require.Equal(t, []string{"1 failed", "2 deployed"}, w.statuses())
}

// TestAnExecutorThatWasFrozenMutatesNothingAfterItsLease freezes an executor in the middle of an upgrade for longer than
// its lease. Another one takes over, a person upgrades by hand, and a newer command is carried out. Then the first one
// wakes up, and would go on.
func TestAnExecutorThatWasFrozenMutatesNothingAfterItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	frozen := w.spawn(w.config("frozen"))
	w.until(w.deploy(w.store(helmtest.Web("1.0.0")), "2m"), pb.KindDeployed)
	waits := helmtest.WithFile("templates/hook.yaml", `apiVersion: v1
kind: Pod
metadata: {name: gate, annotations: {helm.sh/hook: pre-upgrade}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - {name: main, image: "busybox:1.36", command: [sh, -c, "until [ -e /tmp/go ]; do sleep 0.1; done"]}
`)
	late := helmtest.WithFile("templates/late.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: late}\n")
	number := w.deploy(w.store(helmtest.Web("2.0.0", waits, late)), "10m")
	require.Eventually(t, func() bool { return w.running("gate") }, patience, tick)
	require.NoError(t, frozen.Process.Signal(syscall.SIGSTOP))
	require.Equal(t, []string{"1 deployed", "2 pending-upgrade"}, w.statuses())

	w.start(w.config("heir"))
	outcome := w.until(number, pb.KindInterrupted)
	require.Equal(t, "heir", outcome.Instance)
	helmtest.Deploy(t, w.client, w.release.Namespace, "web", helmtest.Web("3.0.0"))
	done := w.until(w.deploy(w.store(helmtest.Web("4.0.0")), "2m"), pb.KindDeployed)
	require.Equal(t, "heir", done.Instance)
	require.Equal(t, "3.0.0", w.until(done.Number, pb.KindDeploying).Running.Version, "the person's")

	// What the frozen one waits for happens: to Helm, a hook that was deleted has run.
	require.NoError(t, w.client.Clientset.CoreV1().Pods(w.release.Namespace).Delete(t.Context(), "gate", metav1.DeleteOptions{}))
	require.NoError(t, frozen.Process.Signal(syscall.SIGCONT))
	w.says(frozen, `Upgrade \"web\" failed: `)
	w.says(frozen, "the gate is closed")
	w.says(frozen, `"msg":"lost"`, `"msg":"taken over"`)
	require.Equal(t, []string{"1 superseded", "2 failed", "3 superseded", "4 deployed"}, w.statuses())
	require.NotContains(t, w.configMaps(), "late")

	// The frozen one has the lower fence of the two that worked on the command.
	requests := slices.DeleteFunc(w.audit(), func(r audited) bool { return r.number != number })
	older := func(a, b audited) int { return cmp.Compare(a.fence, b.fence) }
	fence, next := slices.MinFunc(requests, older).fence, slices.MaxFunc(requests, older).fence
	require.Less(t, fence, next)
	first := slices.IndexFunc(requests, func(r audited) bool { return r.fence == next })
	for _, request := range requests[first:] {
		require.Equal(t, next, request.fence, "%s came at %s, after the first of the next holder", request.UserAgent, request.RequestReceivedTimestamp)
	}
}
