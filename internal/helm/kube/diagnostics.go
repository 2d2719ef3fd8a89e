package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	helmkube "helm.sh/helm/v3/pkg/kube"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Bounds of a report: what a person reads, and what fits into a message.
const (
	maxObjects = 5
	maxPods    = 3
	maxEvents  = 10
	maxText    = 512
	tailBytes  = 2 << 10
	// readBytes is how much of the end of a log is kept until Secrets' values are struck out: far more than a tail, so
	// that a value which the tail would cut in two is whole then. readLines bounds what the kubelet sends.
	readBytes = 256 << 10
	readLines = 1000
)

// report returns the state of the objects: conditions, what containers wait for and how they ended, warnings, and the
// ends of logs. What cannot be read is left out.
func (h *Helm) report(ctx context.Context, resources helmkube.ResourceList) []*seatrialv1.ObjectReport {
	var reports []*seatrialv1.ObjectReport
	for _, info := range resources[:min(len(resources), maxObjects)] {
		r := &seatrialv1.ObjectReport{Kind: info.Mapping.GroupVersionKind.Kind, Namespace: info.Namespace, Name: info.Name}
		reports = append(reports, r)
		object, err := get(info).Do(ctx).Get()
		if err != nil {
			continue
		}
		r.Conditions = h.conditions(object)
		pods := h.podsOf(ctx, info, object)
		uids := []metav1.Object{accessor(object)}
		for i := range pods {
			uids = append(uids, &pods[i])
			r.WaitingReason = first(r.WaitingReason, h.waiting(&pods[i]))
			r.Logs = append(r.Logs, h.logs(ctx, &pods[i])...)
		}
		for _, object := range uids {
			r.Events = append(r.Events, h.warnings(ctx, object)...)
		}
		r.Events = r.Events[:min(len(r.Events), maxEvents)]
		// What keeps pods from being made, or their volumes from being mounted, is in an event alone.
		if len(r.Events) > 0 && (len(pods) == 0 || strings.HasSuffix(r.WaitingReason, "waits: ContainerCreating")) {
			r.WaitingReason = strings.TrimPrefix(r.WaitingReason+": "+r.Events[0], ": ")
		}
	}
	return reports
}

// summary says in a few words what stands in the way.
func summary(reports []*seatrialv1.ObjectReport) string {
	for _, r := range reports {
		if r.GetWaitingReason() != "" {
			return r.GetWaitingReason()
		}
	}
	for _, bad := range []string{"ReplicaFailure=True", "=False"} {
		for _, r := range reports {
			for _, condition := range r.GetConditions() {
				if strings.Contains(condition, bad) {
					return condition
				}
			}
		}
	}
	return ""
}

func accessor(object runtime.Object) metav1.Object {
	if o, ok := object.(metav1.Object); ok {
		return o
	}
	return &metav1.ObjectMeta{}
}

// conditions returns the conditions of any object, as `Type=Status Reason: message`, and its phase where it has one.
func (h *Helm) conditions(object runtime.Object) []string {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var lines []string
	if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase != "" {
		lines = append(lines, "phase="+phase)
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, item := range list {
		if c, ok := item.(map[string]any); ok {
			lines = append(lines, h.condition(text(c["type"]), text(c["status"]), text(c["reason"]), text(c["message"])))
		}
	}
	return lines
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

func (h *Helm) condition(kind, status, reason, message string) string {
	line := kind + "=" + status
	if reason != "" {
		line += " " + reason
	}
	if message != "" {
		line += ": " + message
	}
	return h.line(line)
}

// podsOf returns pods of an object, those that are not ready first, of them the newest first. Of a Deployment they are
// the new template's.
func (h *Helm) podsOf(ctx context.Context, info *resource.Info, object runtime.Object) []corev1.Pod {
	var selector string
	switch o := helmkube.AsVersioned(&resource.Info{Object: object, Mapping: info.Mapping}).(type) {
	case *corev1.Pod:
		return []corev1.Pod{*o}
	case *corev1.Service, *corev1.PersistentVolumeClaim:
		return nil
	case *batchv1.Job:
		selector = metav1.FormatLabelSelector(o.Spec.Selector)
	case *appsv1.Deployment:
		selector = metav1.FormatLabelSelector(o.Spec.Selector)
		if hash := h.newTemplate(ctx, o); hash != "" {
			selector += "," + appsv1.DefaultDeploymentUniqueLabelKey + "=" + hash
		}
	default:
		s, err := helmkube.SelectorsForObject(o)
		if err != nil {
			return nil
		}
		selector = s.String()
	}
	list, err := h.clientset.CoreV1().Pods(info.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		if x, y := isReady(&a), isReady(&b); x != y {
			if y {
				return -1
			}
			return 1
		}
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return pods[:min(len(pods), maxPods)]
}

// newTemplate returns the hash of the newest template of a Deployment.
func (h *Helm) newTemplate(ctx context.Context, deployment *appsv1.Deployment) string {
	list, err := h.clientset.AppsV1().ReplicaSets(deployment.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(deployment.Spec.Selector),
	})
	if err != nil {
		return ""
	}
	revision := deployment.Annotations["deployment.kubernetes.io/revision"]
	for _, set := range list.Items {
		if metav1.IsControlledBy(&set, deployment) && set.Annotations["deployment.kubernetes.io/revision"] == revision {
			return set.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		}
	}
	return ""
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// waiting says what a pod or one of its containers waits for, or how that has died.
func (h *Helm) waiting(pod *corev1.Pod) string {
	for _, status := range statuses(pod) {
		if ended := status.State.Terminated; ended != nil && ended.ExitCode != 0 {
			return h.line(fmt.Sprintf("container %s of pod %s ended with exit code %d: %s %s",
				status.Name, pod.Name, ended.ExitCode, ended.Reason, ended.Message))
		}
		// One that dies again and again may just be up in this moment.
		if ended := status.LastTerminationState.Terminated; ended != nil && ended.ExitCode != 0 && status.State.Running != nil {
			return h.line(fmt.Sprintf("container %s of pod %s has restarted %d times, last after exit code %d: %s",
				status.Name, pod.Name, status.RestartCount, ended.ExitCode, ended.Reason))
		}
		wait := status.State.Waiting
		if wait == nil || wait.Reason == "" || wait.Reason == "PodInitializing" || wait.Reason == "ContainerCreating" {
			continue
		}
		line := fmt.Sprintf("container %s of pod %s waits: %s", status.Name, pod.Name, wait.Reason)
		if ended := status.LastTerminationState.Terminated; ended != nil {
			line += fmt.Sprintf(" (exit code %d)", ended.ExitCode)
		}
		if wait.Message != "" {
			line += ": " + wait.Message
		}
		return h.line(line)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return h.line(fmt.Sprintf("pod %s waits: %s: %s", pod.Name, c.Reason, c.Message))
		}
	}
	for _, status := range statuses(pod) {
		if status.State.Running != nil && !status.Ready {
			return fmt.Sprintf("container %s of pod %s runs but is not ready", status.Name, pod.Name)
		}
		if wait := status.State.Waiting; wait != nil {
			return fmt.Sprintf("container %s of pod %s waits: %s", status.Name, pod.Name, first(wait.Reason, "not started"))
		}
	}
	return ""
}

func statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func (h *Helm) warnings(ctx context.Context, object metav1.Object) []string {
	lines := Warnings(ctx, h.clientset, object)
	for i := range lines {
		lines[i] = h.line(lines[i])
	}
	return lines
}

// Warnings returns the warning events about an object, the newest first, with whatever stands in them. What cannot be read
// is left out.
func Warnings(ctx context.Context, client kubernetes.Interface, object metav1.Object) []string {
	if object.GetUID() == "" {
		return nil
	}
	list, err := client.CoreV1().Events(object.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(object.GetUID()), "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		return nil
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	var lines []string
	for _, e := range list.Items {
		line := fmt.Sprintf("%s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		if e.Count > 1 {
			line += fmt.Sprintf(" (%d times)", e.Count)
		}
		lines = append(lines, line)
	}
	return lines
}

// logs returns the ends of the logs of a pod's containers that are not ready, with their exit codes. They are withheld
// where the Secrets that the pod can see cannot be read, as their values could not be struck out.
func (h *Helm) logs(ctx context.Context, pod *corev1.Pod) []*seatrialv1.ContainerLog {
	withheld := h.redactor.AddPod(ctx, h.clientset, pod.Namespace, pod.Spec)
	var logs []*seatrialv1.ContainerLog
	for _, status := range statuses(pod) {
		ended := status.State.Terminated
		previous := ended == nil && status.LastTerminationState.Terminated != nil
		if previous {
			ended = status.LastTerminationState.Terminated
		}
		if status.Ready && !previous || ended == nil && status.State.Running == nil || ended != nil && ended.ExitCode == 0 {
			continue
		}
		log := &seatrialv1.ContainerLog{Pod: pod.Name, Container: status.Name}
		if ended != nil {
			log.ExitCode = &ended.ExitCode
		}
		logs = append(logs, log)
		if withheld != nil {
			log.Tail = fmt.Sprintf("(withheld: %v)", withheld)
			continue
		}
		whole, err := h.read(ctx, pod, status.Name, previous)
		if err != nil {
			log.Tail = fmt.Sprintf("(could not be read: %v)", err)
			continue
		}
		log.Tail, log.Truncated = tail(h.redactor.Redact(whole), tailBytes)
	}
	return logs
}

func (h *Helm) read(ctx context.Context, pod *corev1.Pod, container string, previous bool) (string, error) {
	lines := int64(readLines)
	stream, err := h.clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &lines,
	}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }()
	var end []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := stream.Read(chunk)
		end = append(end, chunk[:n]...)
		if over := len(end) - readBytes; over > 0 {
			end = append(end[:0], end[over:]...)
		}
		switch {
		case errors.Is(err, io.EOF):
			return strings.ToValidUTF8(string(end), "\uFFFD"), nil
		case err != nil:
			return "", err
		}
	}
}

// tail returns the last whole lines of text that fit into size bytes, or the end of the last line where not even that
// does.
func tail(text string, size int) (string, bool) {
	if len(text) <= size {
		return text, false
	}
	end := text[len(text)-size:]
	if i := strings.IndexByte(end, '\n'); i >= 0 && i < len(end)-1 {
		end = end[i+1:]
	}
	return strings.ToValidUTF8(end, ""), true
}

// line makes one line of a text, without Secrets' values, and cuts what is too long to be read.
func (h *Helm) line(text string) string {
	line := strings.Join(strings.Fields(h.redactor.Redact(text)), " ")
	if len(line) <= maxText {
		return line
	}
	return strings.ToValidUTF8(line[:maxText], "") + "..."
}
