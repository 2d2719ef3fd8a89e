package run

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// sighting is what the watches show of one test at one moment.
type sighting struct {
	// pod is set when the test is a Pod, job when it is a Job.
	pod *corev1.Pod
	job *batchv1.Job
	// pods are those whose logs are the test's: the Pod itself, or those of the Job, oldest first.
	pods []*corev1.Pod
	// gone: the object was there and is not any more; the others are what was seen last.
	gone bool
}

// ruling is what a sighting means.
type ruling struct {
	// phase is empty while the test goes on.
	phase  string
	reason string
	// stuck says why the test cannot begin, in a way that does not heal by itself; the run gives it a short grace.
	stuck string
}

// judge decides whether a test has ended. The end that Kubernetes reports wins over everything else; an object that
// vanished before its end was seen is an error, never a success or a failure.
func judge(s sighting) ruling {
	var r ruling
	goes := s.gone
	switch {
	case s.job != nil:
		r, goes = judgeJob(s.job), goes || s.job.DeletionTimestamp != nil
	case s.pod != nil:
		r, goes = judgePod(s.pod), goes || s.pod.DeletionTimestamp != nil
	}
	if r.phase != "" {
		return r
	}
	if goes {
		return ruling{phase: seatrialv1.VerdictErrored, reason: "it vanished before its end was seen: somebody deleted it, or its TTL ran out"}
	}
	for _, pod := range s.pods {
		if reason := stuck(pod); reason != "" {
			return ruling{stuck: reason}
		}
	}
	return r
}

// ended says that a pod came to its own end. One that is deleted while it runs gets a phase of an end too, by the signal
// that it is sent.
func ended(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed)
}

// begun says that at least one container of the pods has run, or still does.
func begun(pods []*corev1.Pod) bool {
	for _, pod := range pods {
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if status.State.Waiting == nil && status.State != (corev1.ContainerState{}) || status.RestartCount > 0 {
				return true
			}
		}
	}
	return false
}

func judgePod(pod *corev1.Pod) ruling {
	if !ended(pod) {
		return ruling{}
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return ruling{phase: seatrialv1.VerdictPassed}
	}
	// A pod that the node or the scheduler ended has said nothing about the release.
	if slices.Contains([]string{"Evicted", "NodeLost", "NodeShutdown", "Preempting", "UnexpectedAdmissionError", "Terminated"}, pod.Status.Reason) {
		return ruling{phase: seatrialv1.VerdictErrored, reason: join(pod.Status.Reason, pod.Status.Message)}
	}
	return ruling{phase: seatrialv1.VerdictFailed, reason: failedBecause(pod)}
}

// failedBecause says why Kubernetes ended the pod, or names the container that ended badly, and how. Sidecars stand among
// the init containers, and are killed when the others have ended.
func failedBecause(pod *corev1.Pod) string {
	if pod.Status.Reason != "" {
		return join(pod.Status.Reason, pod.Status.Message)
	}
	for _, status := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if end := status.State.Terminated; end != nil && end.ExitCode != 0 {
			reason := fmt.Sprintf("container %s: exit code %d", status.Name, end.ExitCode)
			if end.Reason != "" && end.Reason != "Error" {
				reason += " (" + end.Reason + ")"
			}
			return reason
		}
	}
	return pod.Status.Message
}

func judgeJob(job *batchv1.Job) ruling {
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete, batchv1.JobSuccessCriteriaMet:
			return ruling{phase: seatrialv1.VerdictPassed}
		case batchv1.JobFailed, batchv1.JobFailureTarget:
			return ruling{phase: seatrialv1.VerdictFailed, reason: join(condition.Reason, condition.Message)}
		}
	}
	return ruling{}
}

// unhealing are the waiting reasons of a container that a person must mend.
var unhealing = []string{
	"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError",
}

// stuck returns why a pod cannot run, or "".
func stuck(pod *corev1.Pod) string {
	if pod.DeletionTimestamp != nil { // a Job makes another one
		return ""
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if wait := status.State.Waiting; wait != nil && slices.Contains(unhealing, wait.Reason) {
			return fmt.Sprintf("container %s (image %s): %s", status.Name, status.Image, join(wait.Reason, wait.Message))
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return join(condition.Reason, condition.Message)
		}
	}
	return ""
}

// restarting names a container that ends badly and is started again, or "".
func restarting(pod *corev1.Pod) string {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
			if end := state.Terminated; end != nil && end.ExitCode != 0 {
				return fmt.Sprintf("container %s has restarted %d times, last after exit code %d", status.Name, status.RestartCount, end.ExitCode)
			}
		}
	}
	return ""
}

func join(reason, message string) string {
	return strings.Trim(reason+": "+message, ": ")
}
