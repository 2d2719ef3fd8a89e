package run

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func terminated(name string, code int32, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Image: "busybox", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason},
	}}
}

func waiting(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "test", Image: "busybox:none", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
	}}
}

func pod(status corev1.PodStatus) *corev1.Pod { return &corev1.Pod{Status: status} }

func deleted[O metav1.Object](object O) O {
	now := metav1.Now()
	object.SetDeletionTimestamp(&now)
	return object
}

func ofPod(p *corev1.Pod) sighting { return sighting{pod: p, pods: []*corev1.Pod{p}} }

func job(conditions ...batchv1.JobCondition) *batchv1.Job {
	return &batchv1.Job{Status: batchv1.JobStatus{Conditions: conditions}}
}

func condition(kind batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobCondition {
	return batchv1.JobCondition{Type: kind, Status: status, Reason: "BackoffLimitExceeded", Message: "it is over"}
}

const vanished = "it vanished before its end was seen: somebody deleted it, or its TTL ran out"

func TestJudge(t *testing.T) {
	t.Parallel()
	exit := func(code int32) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{terminated("test", code, "Error")}}
	}
	failedPod, succeeded := pod(exit(1)), pod(corev1.PodStatus{Phase: corev1.PodSucceeded})
	running := corev1.PodStatus{Phase: corev1.PodRunning}
	stuckPod := corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{waiting("ImagePullBackOff", "no such image")}}
	unschedulable := corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available",
	}}}
	for _, row := range []struct {
		name string
		seen sighting
		want ruling
	}{
		{"nothing seen yet", sighting{}, ruling{}},
		{"vanished before anything was seen of it", sighting{gone: true}, ruling{phase: pb.VerdictErrored, reason: vanished}},

		{"a pod that waits", ofPod(pod(corev1.PodStatus{Phase: corev1.PodPending})), ruling{}},
		{"a pod that runs", ofPod(pod(running)), ruling{}},
		{"a pod whose node is silent", ofPod(pod(corev1.PodStatus{Phase: corev1.PodUnknown})), ruling{}},
		{"a pod that succeeded", ofPod(succeeded), ruling{phase: pb.VerdictPassed}},
		{"a pod that failed", ofPod(failedPod), ruling{phase: pb.VerdictFailed, reason: "container test: exit code 1"}},
		{"a pod that succeeded and was deleted later", sighting{pod: succeeded, gone: true}, ruling{phase: pb.VerdictPassed}},
		{"a pod that failed and was deleted later", sighting{pod: failedPod, gone: true},
			ruling{phase: pb.VerdictFailed, reason: "container test: exit code 1"}},
		{"a pod that vanished", sighting{pod: pod(running), gone: true}, ruling{phase: pb.VerdictErrored, reason: vanished}},
		{"a pod that is being deleted", ofPod(deleted(pod(running))), ruling{phase: pb.VerdictErrored, reason: vanished}},
		{"a pod that its deletion killed", ofPod(deleted(pod(exit(143)))), ruling{phase: pb.VerdictErrored, reason: vanished}},
		{"a pod whose deletion let it succeed", ofPod(deleted(pod(corev1.PodStatus{Phase: corev1.PodSucceeded}))),
			ruling{phase: pb.VerdictErrored, reason: vanished}},
		{"out of memory", ofPod(pod(corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{terminated("test", 137, "OOMKilled")}})),
			ruling{phase: pb.VerdictFailed, reason: "container test: exit code 137 (OOMKilled)"}},
		{"an init container failed", ofPod(pod(corev1.PodStatus{Phase: corev1.PodFailed,
			InitContainerStatuses: []corev1.ContainerStatus{terminated("init", 2, "Error")},
			ContainerStatuses:     []corev1.ContainerStatus{waiting("PodInitializing", "")},
		})), ruling{phase: pb.VerdictFailed, reason: "container init: exit code 2"}},
		{"a sidecar was killed after the test had failed", ofPod(pod(corev1.PodStatus{Phase: corev1.PodFailed,
			InitContainerStatuses: []corev1.ContainerStatus{terminated("sidecar", 137, "Error")},
			ContainerStatuses:     []corev1.ContainerStatus{terminated("test", 1, "Error")},
		})), ruling{phase: pb.VerdictFailed, reason: "container test: exit code 1"}},
		{"over the chart's own deadline", ofPod(pod(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded", Message: "Pod was active too long",
			ContainerStatuses: []corev1.ContainerStatus{terminated("test", 137, "Error")},
		})), ruling{phase: pb.VerdictFailed, reason: "DeadlineExceeded: Pod was active too long"}},
		{"evicted", ofPod(pod(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on memory"})),
			ruling{phase: pb.VerdictErrored, reason: "Evicted: The node was low on memory"}},
		{"an image that cannot be pulled", ofPod(pod(stuckPod)),
			ruling{stuck: "container test (image busybox:none): ImagePullBackOff: no such image"}},
		{"an init container's image", ofPod(pod(corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{waiting("InvalidImageName", "")}})),
			ruling{stuck: "container test (image busybox:none): InvalidImageName"}},
		{"no node", ofPod(pod(unschedulable)), ruling{stuck: "Unschedulable: 0/1 nodes are available"}},
		{"a wait that heals", ofPod(pod(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting("ContainerCreating", "")}})), ruling{}},

		{"a job that has just begun", sighting{job: job()}, ruling{}},
		{"a job that is complete", sighting{job: job(condition(batchv1.JobComplete, corev1.ConditionTrue))}, ruling{phase: pb.VerdictPassed}},
		{"a job that will be complete", sighting{job: job(condition(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue))}, ruling{phase: pb.VerdictPassed}},
		{"a job that failed", sighting{job: job(condition(batchv1.JobFailed, corev1.ConditionTrue))},
			ruling{phase: pb.VerdictFailed, reason: "BackoffLimitExceeded: it is over"}},
		{"a job that will fail", sighting{job: job(condition(batchv1.JobFailureTarget, corev1.ConditionTrue))},
			ruling{phase: pb.VerdictFailed, reason: "BackoffLimitExceeded: it is over"}},
		{"a condition that is not true", sighting{job: job(condition(batchv1.JobFailed, corev1.ConditionFalse), condition(batchv1.JobSuspended, corev1.ConditionTrue))}, ruling{}},
		{"a job with a pod that failed is tried again", sighting{job: job(), pods: []*corev1.Pod{failedPod}}, ruling{}},
		{"a pod of a job that was not seen yet", sighting{pods: []*corev1.Pod{failedPod}}, ruling{}},
		{"a job that was complete before its TTL deleted it", sighting{job: job(condition(batchv1.JobComplete, corev1.ConditionTrue)), gone: true}, ruling{phase: pb.VerdictPassed}},
		{"a job that vanished, with a pod that had succeeded", sighting{job: job(), pods: []*corev1.Pod{succeeded}, gone: true},
			ruling{phase: pb.VerdictErrored, reason: vanished}},
		{"a job that is being deleted", sighting{job: deleted(job())}, ruling{phase: pb.VerdictErrored, reason: vanished}},
		{"a job whose second pod is stuck", sighting{job: job(), pods: []*corev1.Pod{failedPod, pod(stuckPod)}},
			ruling{stuck: "container test (image busybox:none): ImagePullBackOff: no such image"}},
		{"a job whose stuck pod was replaced", sighting{job: job(), pods: []*corev1.Pod{deleted(pod(unschedulable)), pod(running)}}, ruling{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, judge(row.seen))
		})
	}
	for _, reason := range unhealing {
		require.NotEmpty(t, judge(ofPod(pod(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waiting(reason, "")}}))).stuck, reason)
	}
}

func TestAnEndStaysWhatItWasWhenItIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWatcher()
	own := func(p *corev1.Pod) *corev1.Pod { p.UID = "a"; return p }
	w.see(own(pod(corev1.PodStatus{Phase: corev1.PodRunning})))
	w.see(own(pod(corev1.PodStatus{Phase: corev1.PodSucceeded})))
	w.see(own(deleted(pod(corev1.PodStatus{Phase: corev1.PodSucceeded}))))
	w.miss(own(deleted(pod(corev1.PodStatus{Phase: corev1.PodSucceeded}))))
	seen, _ := w.sight("a")
	require.True(t, seen.gone)
	require.Equal(t, pb.VerdictPassed, judge(seen).phase)
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		phases string
		want   string
	}{
		{"no tests", "", pb.VerdictNoTests},
		{"none selected", "notselected notselected", pb.VerdictNoTests},
		{"all passed", "passed passed", pb.VerdictPassed},
		{"all that were selected", "passed notselected", pb.VerdictPassed},
		{"one failed", "passed failed passed", pb.VerdictFailed},
		{"a failure says more than a time-out", "timedout failed errored", pb.VerdictFailed},
		{"a time-out more than an error", "errored timedout", pb.VerdictTimedOut},
		{"an error more than passed tests", "passed errored", pb.VerdictErrored},
		{"stopped after a failure", "failed notrun", pb.VerdictFailed},
		{"not all were run", "passed notrun", pb.VerdictErrored},
		{"none was run", "notrun", pb.VerdictErrored},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var tests []*pb.TestResult
			for _, phase := range strings.Fields(row.phases) {
				tests = append(tests, &pb.TestResult{Phase: phase})
			}
			require.Equal(t, row.want, verdict(tests))
		})
	}
}

func TestSummaryNamesWhatDidNotPass(t *testing.T) {
	t.Parallel()
	require.Equal(t, "failed: 1 of 3 tests passed; db failed: exit code 1; late notrun", Summary(&pb.TestRun{
		Verdict: pb.VerdictFailed, Tests: []*pb.TestResult{
			{Name: "smoke", Phase: pb.VerdictPassed}, {Name: "db", Phase: pb.VerdictFailed, Reason: "exit code 1"},
			{Name: "late", Phase: pb.PhaseNotRun}, {Name: "other", Phase: pb.PhaseNotSelected},
		},
	}))
	require.Equal(t, "notests: the chart has no tests", Summary(&pb.TestRun{Verdict: pb.VerdictNoTests, Reason: "the chart has no tests"}))
}

func TestATestHasBegunOnceAContainerHas(t *testing.T) {
	t.Parallel()
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	for name, row := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"nothing is known":      {corev1.PodStatus{}, false},
		"it waits":              {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: waiting}}}, false},
		"it runs":               {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: waiting}, {State: running}}}, true},
		"it has ended":          {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: ended}}}, true},
		"it is to run again":    {corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: waiting, RestartCount: 1}}}, true},
		"an init container ran": {corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{State: ended}}, ContainerStatuses: []corev1.ContainerStatus{{State: waiting}}}, true},
	} {
		require.Equal(t, row.want, begun([]*corev1.Pod{{Status: row.status}}), name)
	}
	require.False(t, begun(nil))
}
