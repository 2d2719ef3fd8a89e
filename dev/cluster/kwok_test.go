package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// saysPlayed is what a person has to read.
const saysPlayed = "KWOK plays the node: nothing of a pod is run"

func TestPlayedNode(t *testing.T) {
	name := uniqueName("played")
	p := start(t, []string{nodeVariable + "=kwok"}, "up", "--name", name)
	client := testPlayed(t, p)
	// For tests of scale there are as many nodes as they make.
	_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "another"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	far := podOf("far", "example.com/no/such:image")
	far.Spec.NodeName = "another"
	play(t, client, far, "run", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" })

	record := recordOf(t, name)
	require.Zero(t, p.stop(t, syscall.SIGTERM), p.stderr)
	require.Contains(t, p.stderr.String(), saysPlayed)
	requireNothingLeft(t, name, record)
}

// TestPlayedNodeWithoutRoot starts a cluster as a user who can only have a played node, and asked for none.
func TestPlayedNodeWithoutRoot(t *testing.T) {
	// A folder that the user can read and write, since the tree may be root's alone.
	folder := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(folder), 0o755))
	require.NoError(t, os.Chmod(folder, 0o777))
	self, err := os.Executable()
	require.NoError(t, err)
	copyProgram(t, self, filepath.Join(folder, programName))
	copyProgram(t, "../../.bin/seatrial-kwok", filepath.Join(folder, "seatrial-kwok"))

	const nobody = 65534
	p := prepare(t, []string{"TMPDIR=" + folder, "XDG_RUNTIME_DIR="}, "up")
	p.Path = filepath.Join(folder, programName)
	p.Dir = folder
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	p.begin(t)
	testPlayed(t, p)

	require.Zero(t, p.stop(t, syscall.SIGTERM), p.stderr)
	require.Contains(t, p.stderr.String(), "a real node needs root")
	require.Contains(t, p.stderr.String(), saysPlayed)
	left, err := filepath.Glob(filepath.Join(folder, "seatrial-cluster-*", "*.json"))
	require.NoError(t, err)
	require.Empty(t, left)
	left, err = filepath.Glob(filepath.Join(folder, "*", "kubeconfig"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// testPlayed waits for a cluster whose node is played, and has it play every part.
func testPlayed(t *testing.T, p *program) kubernetes.Interface {
	t.Helper()
	kubeconfig, ok := strings.CutPrefix(p.line(t), "ready: kubeconfig=")
	require.True(t, ok)
	_, client := clientOf(t, kubeconfig)

	const unknown = "example.com/no/such:image"
	play(t, client, podOf("succeeds", unknown), "", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	failed := play(t, client, podOf("fails", unknown), "fail", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	require.EqualValues(t, 1, failed.Status.ContainerStatuses[0].State.Terminated.ExitCode)
	server := podOf("server", unknown)
	server.Spec.RestartPolicy = corev1.RestartPolicyAlways
	play(t, client, server, "", ready)
	broken := podOf("broken", unknown)
	broken.Spec.RestartPolicy = corev1.RestartPolicyAlways
	broken = play(t, client, broken, "fail", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	require.False(t, ready(broken))
	require.Equal(t, "CrashLoopBackOff", broken.Status.ContainerStatuses[0].State.Waiting.Reason)

	log, err := client.CoreV1().Pods("default").GetLogs("server", &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	require.Equal(t, "KWOK plays the node: nothing of this pod was run\n", string(log))
	require.NoError(t, client.CoreV1().Pods("default").Delete(t.Context(), "server", metav1.DeleteOptions{}))

	for name, part := range map[string]string{"good": "", "bad": "fail"} {
		template := corev1.PodTemplateSpec{Spec: podOf("", unknown).Spec}
		template.Annotations = map[string]string{"seatrial.dev/play": part}
		_, err := client.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       batchv1.JobSpec{BackoffLimit: ptr.To[int32](0), Template: template},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		good, err := client.BatchV1().Jobs("default").Get(t.Context(), "good", metav1.GetOptions{})
		require.NoError(t, err)
		bad, err := client.BatchV1().Jobs("default").Get(t.Context(), "bad", metav1.GetOptions{})
		require.NoError(t, err)
		return good.Status.CompletionTime != nil && bad.Status.Failed == 1
	}, deadline, beat, "the jobs do not end")
	require.Eventually(t, func() bool {
		pods, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=server"})
		return err == nil && len(pods.Items) == 0
	}, deadline, beat, "a pod does not go")
	return client
}

// play makes a pod that plays a part, and waits until it has reached its end.
func play(t *testing.T, client kubernetes.Interface, pod *corev1.Pod, part string, reached func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	if part != "" {
		pod.Annotations = map[string]string{"seatrial.dev/play": part}
	}
	_, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	return waitForPod(t, client, pod.Name, reached)
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	require.NoError(t, err, "make .bin/seatrial-kwok builds it")
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	defer target.Close()
	_, err = io.Copy(target, source)
	require.NoError(t, err)
	require.NoError(t, target.Close())
}
