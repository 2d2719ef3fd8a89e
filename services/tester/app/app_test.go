package app_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"
	helmrelease "helm.sh/helm/v3/pkg/release"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestACommandIsToldAsTestingAndTested(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithAnnotations(map[string]string{"commit_sha": "c0ffee"}),
		helmtest.WithTest("smoke", "echo fine", helmtest.DeletePolicy("hook-succeeded")),
	)
	w.start(w.config("a"))

	number := w.order()
	testing := w.until(number, pb.KindTesting)
	require.Equal(t, w.release.String()+"/1/testing", testing.Id)
	require.Equal(t, "the tests of revision 1 start", testing.Message)
	require.Equal(t, "c0ffee", testing.Running.Annotations["commit_sha"])
	tested := w.until(number, pb.KindTested)
	require.Equal(t, w.release.String()+"/1/tested", tested.Id)
	require.Equal(t, "tester", tested.Service)
	require.Equal(t, "a", tested.Instance)
	require.EqualValues(t, 7, tested.Generation)
	require.Equal(t, "a-request", tested.Request)
	require.Equal(t, "1.0.0", tested.Running.Version)
	require.Equal(t, "passed: 1 of 1 tests passed", tested.Message)
	require.Nil(t, tested.Failure)
	require.Equal(t, pb.VerdictPassed, tested.TestRun.Verdict)
	require.EqualValues(t, 1, tested.TestRun.HelmRevision)
	require.EqualValues(t, 1, tested.TestRun.Attempt)
	require.Equal(t, "fine\n", tested.TestRun.Tests[0].Logs[0].Tail)
	w.gone("web-smoke")
	w.idle()

	// Asked again, the same revision is tested again, with a verdict of its own.
	again := w.order(func(c *pb.TestCommand) { c.Options.Filters = &pb.TestFilters{NotName: []string{"web-smoke"}} })
	require.Equal(t, pb.VerdictNoTests, w.until(again, pb.KindTested).TestRun.Verdict)
}

func TestARevisionThatIsNotWhatWasDeployedIsErroredAndNothingRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("smoke", "true"))
	w.start(w.config("a"))
	for _, row := range []struct {
		name, reason string
		change       func(*pb.TestCommand)
	}{
		{"another manifest", "is not what was deployed", func(c *pb.TestCommand) { c.ManifestDigest = "sha256:other" }},
		{"no manifest is named", "is not what was deployed", func(c *pb.TestCommand) { c.ManifestDigest = "" }},
		{"no such revision", "no such revision", func(c *pb.TestCommand) { c.HelmRevision = 9 }},
		{"an unknown test", `unknown test "smoke": the revision has web-smoke`, func(c *pb.TestCommand) { c.Options.Filters = &pb.TestFilters{Name: []string{"smoke"}} }},
	} {
		w.Run(row.name, func(t *testing.T) {
			tested := w.until(w.order(row.change), pb.KindTested)
			require.Equal(t, pb.VerdictErrored, tested.TestRun.Verdict)
			require.NotNil(t, tested.Failure)
			require.Contains(t, tested.Failure.Reason, row.reason)
			require.Contains(t, tested.TestRun.Reason, row.reason)
			require.Contains(t, tested.Message, row.reason)
			require.Empty(t, tested.TestRun.Tests)
			require.Nil(t, w.pod("web-smoke"))
			w.idle()
		})
	}
}

func TestTheTestOfATesterThatIsKilledIsAdopted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("slow", forever))
	dies := w.spawn(w.config("dies"))
	number := w.order()
	pod := w.runs("web-slow")
	require.NoError(t, dies.Signal(syscall.SIGKILL))

	w.start(w.config("heir"))
	require.Eventually(t, func() bool { return w.until(number, pb.KindTesting).Instance == "heir" }, patience, tick)
	require.Contains(t, w.until(number, pb.KindTesting).Message, "a former tester is gone")
	require.Empty(t, w.outcomes(pb.KindTested))
	require.Equal(t, pod.UID, w.pod("web-slow").UID)
	// The heir watches this very pod: it sees its end.
	require.NoError(t, w.client.Clientset.CoreV1().Pods(w.release.Namespace).Delete(t.Context(), "web-slow", metav1.DeleteOptions{}))
	tested := w.until(number, pb.KindTested)
	require.Equal(t, "heir", tested.Instance)
	require.Equal(t, pb.VerdictErrored, tested.TestRun.Verdict)
	require.Contains(t, tested.TestRun.Tests[0].Reason, "it vanished before its end was seen")
	require.True(t, tested.TestRun.Tests[0].StartedAt.AsTime().Equal(pod.CreationTimestamp.Time))
	w.gone("web-slow")
	w.idle()
	require.Len(t, w.outcomes(pb.KindTested), 1)
}

func TestATesterThatWasFrozenAddsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("slow", forever))
	frozen := w.spawn(w.config("frozen"))
	number := w.order(func(c *pb.TestCommand) { c.Options.Timeout = "10s" })
	pod := w.runs("web-slow")
	require.NoError(t, frozen.Signal(syscall.SIGSTOP))
	w.start(w.config("heir"))
	tested := w.until(number, pb.KindTested)
	require.Equal(t, "heir", tested.Instance)
	require.Equal(t, pb.VerdictTimedOut, tested.TestRun.Verdict)
	require.True(t, tested.TestRun.Tests[0].StartedAt.AsTime().Equal(pod.CreationTimestamp.Time))
	w.gone("web-slow")
	require.NoError(t, frozen.Signal(syscall.SIGCONT))
	// A later command shows that the frozen one works again, and has let go of the one before.
	w.idle()
	require.Equal(t, pb.VerdictErrored, w.until(w.order(func(c *pb.TestCommand) { c.Options.Timeout = "1ms" }), pb.KindTested).TestRun.Verdict)
	w.idle()
	require.Len(t, w.outcomes(pb.KindTested), 2)
}

func TestATestThatThePlannerEndsIsStoppedAndHasOneVerdict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("slow", forever), helmtest.WithTest("then", "true"))
	w.start(w.config("a"))
	number := w.order()
	w.runs("web-slow")
	require.NoError(t, w.conn.EndCommand(t.Context(), &pb.CommandEnd{Kind: pb.CommandTest, Outcome: &pb.Outcome{
		Id: w.release.String() + "/1/tested", Kind: pb.KindTested, Release: w.release.String(), Number: number,
		Time: timestamppb.Now(), Service: "planner", Message: "a newer request",
		TestRun: &pb.TestRun{Verdict: pb.VerdictCancelled, HelmRevision: 1},
	}}))
	w.gone("web-slow")
	w.idle()
	all := w.outcomes(pb.KindTested)
	require.Len(t, all, 1)
	require.Equal(t, pb.VerdictCancelled, all[0].TestRun.Verdict)
	require.Nil(t, w.pod("web-then"), "nothing else was begun")
}

func TestATesterThatIsToldToStopHandsItsTestOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("slow", forever))
	cfg := w.config("a")
	cfg.ShutdownGrace = 100 * time.Millisecond
	stop := w.start(cfg)
	number := w.order(func(c *pb.TestCommand) { c.Options.Timeout = "15s" })
	pod := w.runs("web-slow")
	stop()
	require.Empty(t, w.outcomes(pb.KindTested), "nothing is decided")
	require.Equal(t, pod.UID, w.pod("web-slow").UID)
	require.Nil(t, w.pod("web-slow").DeletionTimestamp)

	w.start(w.config("heir"))
	tested := w.until(number, pb.KindTested)
	require.Equal(t, pb.VerdictTimedOut, tested.TestRun.Verdict)
	require.True(t, tested.TestRun.Tests[0].StartedAt.AsTime().Equal(pod.CreationTimestamp.Time))
	w.gone("web-slow")
}

func TestTestersOfAPoolTakeTheCommandsOfTheirPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("smoke", "true"))
	w.start(w.config("default"))
	cfg := w.config("gpu")
	cfg.Pool = "gpu"
	w.start(cfg)
	tested := w.until(w.order(func(c *pb.TestCommand) { c.Options.Pool = "gpu" }), pb.KindTested)
	require.Equal(t, "gpu", tested.Instance)
	w.idle()
	require.Equal(t, "default", w.until(w.order(), pb.KindTested).Instance)
}

func TestARevisionThatSomebodyElseHasReplacedProvesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("smoke", "true"))
	w.record.Info.Status = helmrelease.StatusSuperseded
	require.NoError(t, helmtest.Storage(w.client, w.release.Namespace).Update(w.record))
	w.before = w.records()
	w.start(w.config("a"))
	tested := w.until(w.order(), pb.KindTested)
	require.Equal(t, pb.VerdictErrored, tested.TestRun.Verdict)
	require.Contains(t, tested.Failure.Reason, "does not run any more")
	require.Contains(t, tested.Failure.Reason, "superseded")
	require.Nil(t, w.pod("web-smoke"))
}
