package run

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/release"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestEveryTestIsReportedAlthoughTheFirstFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithTest("a", "echo no such page; exit 3"),
		helmtest.WithTest("b", "echo fine"),
		helmtest.WithTest("late", "true", helmtest.Weight(5)),
		helmtest.WithTest("other", "true"),
		helmtest.WithFixture("page-for-tests"),
	)
	run := w.run(w.command(1, func(o *pb.TestOptions) { o.Filters = &pb.TestFilters{NotName: []string{"web-other"}} }))
	require.Equal(t, pb.VerdictFailed, run.Verdict)
	require.Equal(t, []string{"web-a failed", "web-b passed", "web-late passed", "web-other notselected"}, phases(run), "and the fixture is no test")
	failed := run.Tests[0]
	require.Equal(t, "container test: exit code 3", failed.Reason)
	require.Equal(t, "Pod", failed.Kind)
	require.Equal(t, w.namespace, failed.Namespace)
	require.Equal(t, "web/templates/tests/a.yaml", failed.Path)
	require.Len(t, failed.Logs, 1)
	require.Equal(t, "no such page\n", failed.Logs[0].Tail)
	require.EqualValues(t, 3, failed.Logs[0].GetExitCode())
	require.Equal(t, "fine\n", run.Tests[1].Logs[0].Tail)
	require.EqualValues(t, 5, run.Tests[2].Weight)
	require.Equal(t, w.command(1).GetTest().ManifestDigest, run.ManifestDigest)

	_, err := w.client.Clientset.CoreV1().ConfigMaps(w.namespace).Get(t.Context(), "web-page-for-tests", metav1.GetOptions{})
	require.NoError(t, err, "the fixture is there")
	require.Nil(t, w.pod("web-other"))
	require.NotNil(t, w.pod("web-a"), "no policy deletes it")
	require.Equal(t, "1", w.pod("web-a").Labels[release.LabelNumber])
}

func TestTheLogIsReadBeforeADeletePolicyDeletesThePod(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithTest("good", "echo well done", helmtest.DeletePolicy("hook-succeeded")),
		helmtest.WithTest("bad", "echo oh no; exit 1", helmtest.DeletePolicy("hook-failed")),
	)
	running := w.start(t.Context(), w.command(1))
	result := w.wait(running)
	require.Equal(t, []string{"web-bad failed", "web-good passed"}, phases(result.Run))
	require.Equal(t, "oh no\n", result.Run.Tests[0].Logs[0].Tail)
	require.Equal(t, "well done\n", result.Run.Tests[1].Logs[0].Tail)
	bad, good := w.pod("web-bad"), w.pod("web-good")
	require.NotNil(t, bad, "the verdict does not wait for the deletions")
	require.NotNil(t, good)
	require.NoError(t, result.CleanUp(t.Context()))
	w.gone("web-bad", bad.UID)
	w.gone("web-good", good.UID)
}

func TestJobsHaveLogsAndEndAtOnce(t *testing.T) {
	t.Parallel()
	again := strings.ReplaceAll(`apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-again", annotations: {helm.sh/hook: test}}
spec:
  backoffLimit: 1
  template: {spec: {restartPolicy: Never, containers: [{name: test, image: "busybox:1.36", command: [sh, -c, "SCRIPT"]}]}}
`, "SCRIPT", "echo by $HOSTNAME; exit 4")
	w := newWorld(t,
		helmtest.WithTestJob("good", "echo well done"),
		helmtest.WithFile("templates/tests/again.yaml", again),
	)
	run := w.run(w.command(1, func(o *pb.TestOptions) { o.Parallel = 2 }))
	require.Equal(t, []string{"web-again failed", "web-good passed"}, phases(run))
	require.Contains(t, run.Tests[0].Reason, "BackoffLimitExceeded")
	require.Len(t, run.Tests[0].Logs, 2, "of every pod")
	for _, log := range run.Tests[0].Logs {
		require.Equal(t, "by "+log.Pod+"\n", log.Tail)
		require.EqualValues(t, 4, log.GetExitCode())
	}
	require.Equal(t, "well done\n", run.Tests[1].Logs[0].Tail)
}

func TestALeftoverOfAnotherRunIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("smoke", "echo new", helmtest.DeletePolicy("hook-succeeded")))
	labels := owner{release: "web", namespace: w.namespace, revision: 1, number: 1}.labels()
	leftover := w.make("web-smoke", labels)
	run := w.start(t.Context(), w.command(2))
	w.gone("web-smoke", leftover.UID)
	require.Equal(t, []string{"web-smoke passed"}, phases(w.end(run)))
}

func TestAForeignObjectInTheWayIsLeftAloneUnlessThePolicySaysOtherwise(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithTest("kept", "true", helmtest.DeletePolicy("hook-succeeded")),
		helmtest.WithTest("replaced", "true"),
	)
	kept := w.make("web-kept", nil)
	replaced := w.make("web-replaced", nil)
	run := w.run(w.command(1))
	require.Equal(t, []string{"web-kept errored", "web-replaced passed"}, phases(run))
	require.Equal(t, pb.VerdictErrored, run.Verdict)
	require.Equal(t, "Pod "+w.namespace+"/web-kept exists and is no leftover of a test run of this release: "+
		"delete it, or give the hook the delete policy before-hook-creation", run.Tests[0].Reason)
	require.Equal(t, kept.UID, w.pod("web-kept").UID)
	require.Nil(t, w.pod("web-kept").DeletionTimestamp)
	require.NotEqual(t, replaced.UID, w.pod("web-replaced").UID)
}

func TestATestThatCannotBeginIsErroredSoonAndSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithTest("image", "true", helmtest.Image("127.0.0.1:1/no/such:1")),
		helmtest.WithTestJob("job", "true", helmtest.Image("127.0.0.1:1/no/such:1")),
		custom("config", `{containers: [{name: test, image: "busybox:1.36", env: [{name: A, valueFrom: {configMapKeyRef: {name: missing, key: a}}}]}]}`),
		custom("node", `{nodeSelector: {no: such}, containers: [{name: test, image: "busybox:1.36"}]}`),
	)
	run := w.run(w.command(1, func(o *pb.TestOptions) { o.Parallel = 4 }))
	require.Equal(t, pb.VerdictErrored, run.Verdict)
	require.Equal(t, []string{"web-config errored", "web-image errored", "web-job errored", "web-node errored"}, phases(run))
	require.Contains(t, run.Tests[0].Reason, "CreateContainerConfigError")
	require.Contains(t, run.Tests[0].Reason, "missing")
	for _, test := range run.Tests[1:3] {
		require.Regexp(t, `^container test \(image 127\.0\.0\.1:1/no/such:1\): (ErrImagePull|ImagePullBackOff): `, test.Reason)
		require.Contains(t, test.WaitingReasons, test.Reason)
	}
	require.Contains(t, run.Tests[3].Reason, "Unschedulable: ")
	for _, name := range []string{"web-config", "web-image", "web-node"} {
		w.gone(name, "")
	}
}

func TestATestThatVanishesIsErroredAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithTest("killed", forever),
		helmtest.WithTest("ends-well", "trap 'exit 0' TERM; "+forever),
		helmtest.WithTestJob("job", forever),
	)
	running := w.start(t.Context(), w.command(1, func(o *pb.TestOptions) { o.Parallel = 3 }))
	for _, name := range []string{"web-killed", "web-ends-well"} {
		w.inPhase(name, corev1.PodRunning)
		w.delete(name)
	}
	require.Eventually(t, func() bool {
		job, err := w.client.Clientset.BatchV1().Jobs(w.namespace).Get(t.Context(), "web-job", metav1.GetOptions{})
		return err == nil && job.Status.Active == 1
	}, patience, tick)
	background := metav1.DeletePropagationBackground
	require.NoError(t, w.client.Clientset.BatchV1().Jobs(w.namespace).Delete(t.Context(), "web-job", metav1.DeleteOptions{PropagationPolicy: &background}))
	run := w.end(running)
	require.Equal(t, []string{"web-ends-well errored", "web-job errored", "web-killed errored"}, phases(run))
	for _, test := range run.Tests {
		require.Equal(t, vanished, test.Reason)
	}
}

func TestATestThatRunsOutOfTimeIsTakenAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("slow", forever), helmtest.WithTestJob("slow-job", forever))
	running := w.start(t.Context(), w.command(1, func(o *pb.TestOptions) { o.Timeout, o.Parallel = "15s", 2 }))
	result := w.wait(running)
	require.Equal(t, pb.VerdictTimedOut, result.Run.Verdict)
	require.Equal(t, []string{"web-slow timedout", "web-slow-job timedout"}, phases(result.Run))
	require.Equal(t, "not finished after 15s (test.timeout)", result.Run.Tests[0].Reason)
	slow := w.pod("web-slow")
	require.NotNil(t, slow)
	require.NoError(t, result.CleanUp(t.Context()))
	w.gone("web-slow", slow.UID)
	require.Eventually(t, func() bool {
		pods, err := w.client.Clientset.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	}, patience, tick, "also those of the Job")
}

// The TTL controller deletes such a Job, and its pods with it, in the moment that it has ended.
func TestAJobThatItsTTLDeletesAtOnceKeepsItsEndAndItsLog(t *testing.T) {
	t.Parallel()
	brief := func(name, script string) helmtest.Option {
		return helmtest.WithFile("templates/tests/"+name+".yaml", fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-%s", annotations: {helm.sh/hook: test}}
spec:
  backoffLimit: 0
  ttlSecondsAfterFinished: 0
  template: {spec: {restartPolicy: Never, containers: [{name: test, image: "busybox:1.36", command: [sh, -c, %q]}]}}
`, name, script))
	}
	w := newWorld(t, brief("bad", "echo oh no; exit 4"), brief("good", "echo well done"))
	run := w.run(w.command(1, func(o *pb.TestOptions) { o.Parallel = 2 }))
	require.Equal(t, []string{"web-bad failed", "web-good passed"}, phases(run))
	require.Contains(t, run.Tests[0].Reason, "BackoffLimitExceeded")
	require.Len(t, run.Tests[0].Logs, 1)
	require.Equal(t, "oh no\n", run.Tests[0].Logs[0].Tail)
	require.EqualValues(t, 4, run.Tests[0].Logs[0].GetExitCode())
	require.Len(t, run.Tests[1].Logs, 1)
	require.Equal(t, "well done\n", run.Tests[1].Logs[0].Tail)
}

func TestATestThatRunsOutOfTimeSaysWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		custom("crash", `{restartPolicy: Always, containers: [{name: test, image: "busybox:1.36", command: [sh, -c, "exit 7"]}]}`),
		helmtest.WithFile("templates/tests/refused.yaml", `apiVersion: batch/v1
kind: Job
metadata: {name: "{{ .Release.Name }}-refused", annotations: {helm.sh/hook: test}}
spec: {template: {spec: {serviceAccountName: nobody, restartPolicy: Never, containers: [{name: test, image: "busybox:1.36"}]}}}
`),
		custom("volume", `{volumes: [{name: pages, configMap: {name: missing}}], containers: [{name: test, image: "busybox:1.36", volumeMounts: [{name: pages, mountPath: /pages}]}]}`),
	)
	run := w.run(w.command(1, func(o *pb.TestOptions) { o.Timeout, o.Parallel = "30s", 3 }))
	require.Equal(t, []string{"web-crash timedout", "web-refused errored", "web-volume errored"}, phases(run))
	for i, text := range []string{"exit code 7", `serviceaccount "nobody" not found`, `configmap "missing" not found`} {
		require.Contains(t, run.Tests[i].Reason, "not finished after 30s (test.timeout)")
		require.Contains(t, run.Tests[i].Reason, text)
	}
}

func TestTestsOfOneWeightRunAtOnceAndWeightsAreBarriers(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithTest("a", forever), helmtest.WithTest("b", forever), helmtest.WithTest("c", forever),
		helmtest.WithTest("late", "true", helmtest.Weight(1)),
	)
	running := w.start(t.Context(), w.command(1, func(o *pb.TestOptions) { o.Parallel = 2 }))
	require.Eventually(t, func() bool {
		a, b := w.pod("web-a"), w.pod("web-b")
		return a != nil && a.Status.Phase == corev1.PodRunning && b != nil && b.Status.Phase == corev1.PodRunning
	}, patience, tick, "both at once")
	require.Nil(t, w.pod("web-c"), "two at once, not three")
	w.delete("web-a")
	w.inPhase("web-c", corev1.PodRunning)
	require.Equal(t, corev1.PodRunning, w.pod("web-b").Status.Phase)
	w.delete("web-b")
	require.Nil(t, w.pod("web-late"), "one of the lower weight still runs")
	w.delete("web-c")
	run := w.end(running)
	require.Equal(t, []string{"web-a errored", "web-b errored", "web-c errored", "web-late passed"}, phases(run))
}

func TestFailFastRunsNothingAfterAFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithTest("a", "exit 1"), helmtest.WithTest("b", "true"), helmtest.WithTest("late", "true", helmtest.Weight(1)),
		helmtest.WithFixture("late-page", helmtest.Weight(1)),
	)
	run := w.run(w.command(1, func(o *pb.TestOptions) { o.FailFast = true }))
	require.Equal(t, pb.VerdictFailed, run.Verdict)
	require.Equal(t, []string{"web-a failed", "web-b notrun", "web-late notrun"}, phases(run))
	require.Equal(t, errFailFast.Error(), run.Tests[1].Reason)
	require.Nil(t, w.pod("web-b"))
	_, err := w.client.Clientset.CoreV1().ConfigMaps(w.namespace).Get(t.Context(), "web-late-page", metav1.GetOptions{})
	require.Error(t, err)
}

func TestADeadlineEndsTheWholeRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("a", "true"), helmtest.WithTest("b", forever), helmtest.WithTest("c", "true"))
	run := w.run(w.command(1, func(o *pb.TestOptions) { o.Deadline = "30s" }))
	require.Equal(t, pb.VerdictTimedOut, run.Verdict)
	require.Equal(t, []string{"web-a passed", "web-b timedout", "web-c notrun"}, phases(run))
	require.Contains(t, run.Tests[1].Reason, "test.deadline")
	require.Equal(t, errDeadline.Error(), run.Tests[2].Reason)
	w.gone("web-b", "")
}

func TestAFixtureThatCannotBeCreatedErrorsTheRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("early", "true", helmtest.Weight(-1)), helmtest.WithTest("smoke", "true"),
		helmtest.WithFile("templates/tests/lost.yaml", `apiVersion: v1
kind: ConfigMap
metadata: {name: lost, namespace: no-such-namespace, annotations: {helm.sh/hook: test}}
`))
	run := w.run(w.command(1))
	require.Equal(t, pb.VerdictErrored, run.Verdict)
	require.Equal(t, []string{"web-early passed", "web-smoke notrun"}, phases(run))
	require.Contains(t, run.Reason, "ConfigMap no-such-namespace/lost")
}

func TestNothingRunsWithoutATimeOutOrWithAnUnknownName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("smoke", "true"))
	for _, row := range []struct {
		name, verdict, reason string
		change                func(*pb.TestOptions)
		final                 bool
	}{
		{"no time-out", pb.VerdictErrored, "a test never runs without a time-out", func(o *pb.TestOptions) { o.Timeout = "" }, false},
		{"a time-out of nothing", pb.VerdictErrored, "a test never runs without a time-out", func(o *pb.TestOptions) { o.Timeout = "0s" }, false},
		{"no deadline", pb.VerdictErrored, "never goes on without a deadline", func(o *pb.TestOptions) { o.Deadline = "" }, false},
		{"an unknown test", pb.VerdictErrored, `unknown test "web-smok"`, func(o *pb.TestOptions) { o.Filters = &pb.TestFilters{Name: []string{"web-smok"}} }, true},
		{"nothing selected", pb.VerdictNoTests, "nothing is proven", func(o *pb.TestOptions) { o.Filters = &pb.TestFilters{NotName: []string{"web-smoke"}} }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			result, err := w.runner().Run(t.Context(), w.record, w.command(1, row.change))
			require.NoError(t, err)
			require.Equal(t, row.verdict, result.Run.Verdict)
			require.Contains(t, result.Run.Reason, row.reason)
			require.Equal(t, row.final, result.Failure != nil, "%v", result.Failure)
			require.NoError(t, result.CleanUp(t.Context()))
			require.Nil(t, w.pod("web-smoke"))
		})
	}
}

func TestTheNextHolderAdoptsWhatRunsAndDoesNotRestartTheClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t,
		helmtest.WithTest("a", "echo ended"),
		helmtest.WithTest("b", forever),
		helmtest.WithTestJob("c", "test -e /tmp/again && exit 1; echo ended"),
	)
	ctx, callOff := context.WithCancelCause(t.Context())
	parallel := func(o *pb.TestOptions) { o.Parallel = 3 }
	first := w.start(ctx, w.command(1, parallel))
	a, b := w.inPhase("web-a", corev1.PodSucceeded), w.inPhase("web-b", corev1.PodRunning)
	job := func() metav1.ObjectMeta {
		job, err := w.client.Clientset.BatchV1().Jobs(w.namespace).Get(t.Context(), "web-c", metav1.GetOptions{})
		require.NoError(t, err)
		if job.Status.Succeeded == 0 {
			return metav1.ObjectMeta{}
		}
		return job.ObjectMeta
	}
	require.Eventually(t, func() bool { return job().UID != "" }, patience, tick)
	c := job()
	callOff(errCalledOff)
	w.wait(first)
	require.ErrorIs(t, first.err, errCalledOff)

	// The time-out of all of them is over by now, if it counts from their creation; those that ended before have ended.
	second := w.wait(w.start(t.Context(), w.command(1, parallel, func(o *pb.TestOptions) { o.Timeout = "1ms" })))
	require.Equal(t, []string{"web-a passed", "web-b timedout", "web-c passed"}, phases(second.Run))
	for i, created := range []metav1.Time{a.CreationTimestamp, b.CreationTimestamp, c.CreationTimestamp} {
		require.True(t, second.Run.Tests[i].StartedAt.AsTime().Equal(created.Time), second.Run.Tests[i].Name)
	}
	require.Equal(t, "ended\n", second.Run.Tests[0].Logs[0].Tail)
	require.Equal(t, "begun\n", second.Run.Tests[1].Logs[0].Tail)
	require.Equal(t, "ended\n", second.Run.Tests[2].Logs[0].Tail)
	require.Equal(t, a.UID, w.pod("web-a").UID)
	require.Equal(t, b.UID, w.pod("web-b").UID)
	require.Equal(t, c.UID, job().UID)
	require.NoError(t, second.CleanUp(t.Context()))
	w.gone("web-b", b.UID)
}

func TestARunThatIsCalledOffLeavesNothingRunningAfterItsCleanUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, helmtest.WithTest("slow", forever))
	ctx, callOff := context.WithCancelCause(t.Context())
	running := w.start(ctx, w.command(1))
	slow := w.inPhase("web-slow", corev1.PodRunning)
	callOff(errCalledOff)
	result := w.wait(running)
	require.ErrorIs(t, running.err, errCalledOff)
	require.Equal(t, slow.UID, w.pod("web-slow").UID, "the next holder may adopt it")
	require.NoError(t, result.CleanUp(t.Context()))
	w.gone("web-slow", slow.UID)
}

func TestSecretValuesAreStruckOut(t *testing.T) {
	t.Parallel()
	const referred, rendered = "canary-of-a-secret", "canary-of-the-chart"
	script := "echo $TOKEN; echo -n $TOKEN | base64; echo " + rendered + "; exit 1"
	w := newWorld(t,
		helmtest.WithSecret("own", "token", rendered),
		custom("leak", `{restartPolicy: Never, containers: [{name: test, image: "busybox:1.36", command: [sh, -c, "`+script+
			`"], env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: somebodys, key: token}}}]}]}`),
		custom("stuck", `{containers: [{name: test, image: "127.0.0.1:1/`+rendered+`:1"}]}`),
	)
	_, err := w.client.Clientset.CoreV1().Secrets(w.namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "somebodys"}, StringData: map[string]string{"token": referred},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	run := w.run(w.command(1))
	require.Equal(t, []string{"web-leak failed", "web-stuck errored"}, phases(run))
	require.Equal(t, "[redacted]\n[redacted]\n[redacted]\n", run.Tests[0].Logs[0].Tail)
	require.Contains(t, run.Tests[1].Reason, "/[redacted]:1")
	for _, canary := range []string{referred, base64.StdEncoding.EncodeToString([]byte(referred)), rendered} {
		require.NotContains(t, run.String(), canary)
		require.NotContains(t, Summary(run), canary)
	}
	require.True(t, slices.ContainsFunc(run.Tests[1].WaitingReasons, func(r string) bool { return strings.Contains(r, "[redacted]") }))
}
