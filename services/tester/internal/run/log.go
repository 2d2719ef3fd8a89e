package run

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/seatrial/seatrial/internal/helm/kube"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

const (
	// tailBytes is the most that an outcome carries of one container's log, tailBudget the most of a whole run's.
	tailBytes  = 4 << 10
	tailBudget = 128 << 10
	// readBytes is how much of the end of a log is read. It is far more than a tail, so that a Secret's value which
	// the tail would cut in two is whole when it is struck out.
	readBytes = 256 << 10
	readLines = 2000
)

// reading reads the logs of a test's pods, of each as soon as it has ended: the pods of a Job may be deleted in the moment
// that the Job has ended, by its TTL.
type reading struct {
	read  func(*corev1.Pod) []*seatrialv1.ContainerLog
	begun map[types.UID]chan []*seatrialv1.ContainerLog
}

func newReading(read func(*corev1.Pod) []*seatrialv1.ContainerLog) reading {
	return reading{read, map[types.UID]chan []*seatrialv1.ContainerLog{}}
}

func (r reading) begin(pod *corev1.Pod) {
	if r.begun[pod.UID] != nil {
		return
	}
	done := make(chan []*seatrialv1.ContainerLog, 1)
	r.begun[pod.UID] = done
	go func() { done <- r.read(pod) }()
}

// all returns the logs of all the pods, also of those that have not ended.
func (r reading) all(pods []*corev1.Pod) (all []*seatrialv1.ContainerLog) {
	for _, pod := range pods {
		r.begin(pod)
	}
	for _, pod := range pods {
		all = append(all, <-r.begun[pod.UID]...)
	}
	return all
}

// logs returns the end of the log of every container of a pod. Values of the Secrets that the pod refers to are made
// known to redact, and struck out; where such a Secret cannot be read, the logs are withheld.
func logs(ctx context.Context, client kubernetes.Interface, redact *kube.Redactor, pod *corev1.Pod) []*seatrialv1.ContainerLog {
	// The end of a Job may have been seen before that of its pods.
	if fresh, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err == nil && fresh.UID == pod.UID {
		pod = fresh
	}
	var found []*seatrialv1.ContainerLog
	err := redact.AddPod(ctx, client, pod.Namespace, pod.Spec)
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		log := &seatrialv1.ContainerLog{Pod: pod.Name, Container: status.Name}
		if end := status.State.Terminated; end != nil {
			log.ExitCode = &end.ExitCode
		}
		found = append(found, log)
		if err != nil {
			log.Tail = fmt.Sprintf("(withheld: %v)", err)
			continue
		}
		// A container that never started has no log.
		if status.State.Waiting != nil && status.LastTerminationState.Terminated == nil {
			continue
		}
		text, err := read(ctx, client, pod, status.Name)
		if err != nil {
			log.Tail = fmt.Sprintf("(could not be read: %v)", err)
			continue
		}
		log.Tail, log.Truncated = tail(redact.Redact(text), tailBytes)
	}
	return found
}

func read(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, container string) (string, error) {
	lines := int64(readLines)
	stream, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, TailLines: &lines}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	var end []byte
	chunk := make([]byte, 32<<10)
	for {
		n, err := stream.Read(chunk)
		end = append(end, chunk[:n]...)
		if over := len(end) - readBytes; over > 0 {
			end = append(end[:0], end[over:]...)
		}
		if err == io.EOF {
			return strings.ToValidUTF8(string(end), "\uFFFD"), nil
		}
		if err != nil {
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

// bound drops the tails that a run's outcome has no room for, the earliest first: what failed usually stands last.
func bound(tests []*seatrialv1.TestResult) {
	room := tailBudget
	for _, test := range slices.Backward(tests) {
		for _, log := range test.GetLogs() {
			if room -= len(log.GetTail()); room < 0 && log.GetTail() != "" {
				log.Tail, log.Truncated = "", true
			}
		}
	}
}
