package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"

	"github.com/seatrial/seatrial/dev/cluster/internal/image"
)

// TestCluster uses two clusters beside each other as people use one.
func TestCluster(t *testing.T) {
	firstName, secondName := uniqueName("first"), uniqueName("second")
	dir := t.TempDir()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	first, written := up(t, "--name", firstName, "--dir", dir, "--kubeconfig", kubeconfig)
	require.Equal(t, kubeconfig, written)
	second, secondKubeconfig := up(t, "--name", secondName)

	config, client := clientOf(t, kubeconfig)
	t.Run("API", func(t *testing.T) {
		t.Run("version", func(t *testing.T) {
			version, err := client.Discovery().ServerVersion()
			require.NoError(t, err)
			require.Equal(t, "1", version.Major)
		})
		t.Run("pod", func(t *testing.T) {
			t.Parallel()
			testPod(t, config, client)
		})
		t.Run("job", func(t *testing.T) {
			t.Parallel()
			testJob(t, client)
		})
		t.Run("unknown image", func(t *testing.T) {
			t.Parallel()
			testUnknownImage(t, client)
		})
		t.Run("pods reach each other", func(t *testing.T) {
			t.Parallel()
			testNetwork(t, client)
		})
		t.Run("services", func(t *testing.T) {
			t.Parallel()
			testServices(t, client)
		})
		t.Run("images", func(t *testing.T) {
			t.Parallel()
			testImages(t, client)
		})
		t.Run("unknown name", func(t *testing.T) {
			t.Parallel()
			testUnknownName(t, client)
		})
		t.Run("access", func(t *testing.T) {
			t.Parallel()
			testAccess(t, config)
		})
	})
	t.Run("audit log", func(t *testing.T) { testAuditLog(t, filepath.Join(dir, "audit.log")) })
	t.Run("two clusters", func(t *testing.T) {
		_, other := clientOf(t, secondKubeconfig)
		_, err := client.CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "only-here"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		found, err := other.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, object := range found.Items {
			require.NotEqual(t, "only-here", object.Name)
		}
		again := start(t, nil, "up", "--name", firstName)
		<-again.ended
		require.Contains(t, again.stderr.String(), "a cluster of this name is running")
		again = start(t, nil, "up", "--dir", dir)
		<-again.ended
		require.Contains(t, again.stderr.String(), "another cluster keeps its state in "+dir)

		require.Equal(t, corev1.PodSucceeded, runPod(t, other, "before", "true"))
		record := recordOf(t, firstName)
		require.Zero(t, first.stop(t, syscall.SIGTERM), first.stderr)
		requireNothingLeft(t, firstName, record)
		// All that a pod needs is still there: addresses, names, control groups, a node that is well.
		require.Equal(t, corev1.PodSucceeded, runPod(t, other, "after", reachAPI))
	})
	record := recordOf(t, secondName)
	require.Zero(t, second.stop(t, syscall.SIGTERM), second.stderr)
	requireNothingLeft(t, secondName, record)
	require.NoFileExists(t, kubeconfig)
	require.FileExists(t, filepath.Join(dir, "logs", "kubelet.log"), "a folder that someone chose is kept")
}

func testPod(t *testing.T, config *rest.Config, client kubernetes.Interface) {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	begun := time.Now()
	_, err := pods.Create(t.Context(), podOf("shell", image.Busybox,
		"sh", "-c", "echo hello from $(hostname); trap 'exit 0' TERM; while :; do sleep 1; done"), metav1.CreateOptions{})
	require.NoError(t, err)
	waitForPod(t, client, "shell", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	t.Logf("the pod ran after %s", time.Since(begun).Round(time.Millisecond))

	require.Eventually(t, func() bool {
		log, err := pods.GetLogs("shell", &corev1.PodLogOptions{}).DoRaw(t.Context())
		return err == nil && string(log) == "hello from shell\n"
	}, deadline, beat)

	request := client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("shell").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"cat", "/etc/passwd"}, Stdout: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
	require.NoError(t, err)
	var output bytes.Buffer
	require.NoError(t, executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &output}))
	require.Contains(t, output.String(), "nobody:x:65534")

	// Neither the shell nor the pause image waits for its grace period to end.
	begun = time.Now()
	require.NoError(t, pods.Delete(t.Context(), "shell", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](120)}))
	require.Eventually(t, func() bool {
		list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=shell"})
		return err == nil && len(list.Items) == 0
	}, time.Minute, beat)
	t.Logf("the pod was gone after %s", time.Since(begun).Round(time.Millisecond))
}

func testJob(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	jobs := client.BatchV1().Jobs("default")
	begun := time.Now()
	_, err := jobs.Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "sum"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			Spec: podOf("", image.Busybox, "sh", "-c", "test $((19 + 23)) -eq 42").Spec,
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		job, err := jobs.Get(t.Context(), "sum", metav1.GetOptions{})
		return err == nil && job.Status.Succeeded == 1 && job.Status.CompletionTime != nil
	}, deadline, beat)
	t.Logf("the job completed after %s", time.Since(begun).Round(time.Millisecond))
}

func testUnknownImage(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	begun := time.Now()
	_, err := client.CoreV1().Pods("default").Create(t.Context(), podOf("unknown", "example.com/no/such:image", "true"), metav1.CreateOptions{})
	require.NoError(t, err)
	var waiting *corev1.ContainerStateWaiting
	waitForPod(t, client, "unknown", func(pod *corev1.Pod) bool {
		for _, status := range pod.Status.ContainerStatuses {
			waiting = status.State.Waiting
		}
		return waiting != nil && waiting.Reason == "ErrImagePull"
	})
	t.Logf("the pull failed after %s: %s", time.Since(begun).Round(time.Millisecond), waiting.Message)
	require.Contains(t, waiting.Message, "example.com/no/such:image")
	require.Less(t, time.Since(begun), 30*time.Second, "nothing may be waited for")
}

// testNetwork has a pod serve a page to another one, which knows its address.
func testNetwork(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	_, err := pods.Create(t.Context(), podOf("server", image.Busybox,
		"sh", "-c", "echo served > /tmp/page; exec httpd -f -p 8080 -h /tmp"), metav1.CreateOptions{})
	require.NoError(t, err)
	server := waitForPod(t, client, "server", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	_, err = pods.Create(t.Context(), podOf("client", image.Busybox,
		"sh", "-c", "until wget -q -O - http://"+server.Status.PodIP+":8080/page; do sleep 1; done"), metav1.CreateOptions{})
	require.NoError(t, err)
	waitForPod(t, client, "client", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded })
	log, err := pods.GetLogs("client", &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(log), "served\n")

	_, err = pods.Create(t.Context(), podOf("pause", image.Pause), metav1.CreateOptions{})
	require.NoError(t, err)
	waitForPod(t, client, "pause", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
}

// reachAPI ends well in a pod that reaches the Service which every cluster has.
const reachAPI = "nc -w 10 kubernetes.default 443 < /dev/null"

// testServices has a pod reach others by the names of their Services, until there is no such Service.
func testServices(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	server := podOf("shop", image.Busybox, "sh", "-c", "echo sold > /tmp/index.html; exec httpd -f -p 8080 -h /tmp")
	server.Labels = map[string]string{"app": "shop"}
	_, err := client.CoreV1().Pods("default").Create(t.Context(), server, metav1.CreateOptions{})
	require.NoError(t, err)
	services := client.CoreV1().Services("default")
	_, err = services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Spec: corev1.ServiceSpec{
			Selector: server.Labels,
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	for i, command := range []string{
		"until wget -q -O - http://shop; do sleep 0.2; done",
		"until wget -q -O - http://shop.default.svc.cluster.local; do sleep 0.2; done",
		reachAPI,
	} {
		require.Equal(t, corev1.PodSucceeded, runPod(t, client, fmt.Sprintf("buyer-%d", i), command), command)
	}
	require.NoError(t, services.Delete(t.Context(), "shop", metav1.DeleteOptions{}))
	require.Equal(t, corev1.PodSucceeded, runPod(t, client, "late-buyer", "while wget -q -O - http://shop; do sleep 0.2; done"),
		"its name must go with the Service")
}

// testImages has a pod of each image do its thing, started as the public images are.
func testImages(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	nginx := podOf("nginx", image.Nginx)
	nginx.Labels = map[string]string{"app": "nginx"}
	_, err := pods.Create(t.Context(), nginx, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "nginx"},
		Spec:       corev1.ServiceSpec{Selector: nginx.Labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	curl := podOf("curl", image.Curl)
	curl.Spec.Containers[0].Args = []string{"-fsS", "--retry", "60", "--retry-delay", "1", "--retry-all-errors", "http://nginx/"}
	_, err = pods.Create(t.Context(), curl, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.Create(t.Context(), podOf("alpine", image.Alpine, "sh", "-c", "echo one | sed s/one/two/"), metav1.CreateOptions{})
	require.NoError(t, err)

	for pod, says := range map[string]string{"curl": "Welcome to nginx!", "alpine": "two\n"} {
		ended := waitForPod(t, client, pod, func(pod *corev1.Pod) bool {
			return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		})
		log, err := pods.GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context())
		require.NoError(t, err)
		require.Equal(t, corev1.PodSucceeded, ended.Status.Phase, "%s", log)
		require.Contains(t, string(log), says)
	}
	log, err := pods.GetLogs("nginx", &corev1.PodLogOptions{}).DoRaw(t.Context())
	require.NoError(t, err)
	require.Contains(t, string(log), `"GET / HTTP/1.1" 200`)
}

// runPod runs a shell command in a pod, and returns the phase in which it ended.
func runPod(t *testing.T, client kubernetes.Interface, name, command string) corev1.PodPhase {
	t.Helper()
	_, err := client.CoreV1().Pods("default").Create(t.Context(), podOf(name, image.Busybox, "sh", "-c", command), metav1.CreateOptions{})
	require.NoError(t, err)
	return waitForPod(t, client, name, func(pod *corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	}).Status.Phase
}

// testUnknownName shows that nobody waits for the name of something outside.
func testUnknownName(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	phase := runPod(t, client, "resolver", "before=$(date +%s); ! wget http://example.com && test $(($(date +%s) - before)) -lt 5")
	require.Equal(t, corev1.PodSucceeded, phase)
	events, err := client.CoreV1().Events("default").List(t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.name=resolver,type=Warning"})
	require.NoError(t, err)
	require.Empty(t, events.Items)
}

// testAccess shows that roles are asked: a pod's service account may do nothing.
func testAccess(t *testing.T, config *rest.Config) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = "system:serviceaccount:default:default"
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
}

// testAuditLog looks for what TestCluster has done.
func testAuditLog(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	stages := map[auditv1.Stage]bool{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		require.NoError(t, json.Unmarshal(lines.Bytes(), &event))
		if event.ObjectRef != nil && event.ObjectRef.Resource == "jobs" && event.Verb == "create" {
			require.Equal(t, auditv1.LevelMetadata, event.Level)
			require.True(t, strings.HasPrefix(event.UserAgent, filepath.Base(os.Args[0])), event.UserAgent)
			stages[event.Stage] = true
		}
		require.NotContains(t, []string{"get", "list", "watch"}, event.Verb)
	}
	require.NoError(t, lines.Err())
	require.Equal(t, map[auditv1.Stage]bool{auditv1.StageRequestReceived: true, auditv1.StageResponseComplete: true}, stages)
}

func podOf(name, from string, command ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: from, Command: command}},
		},
	}
}

func waitForPod(t *testing.T, client kubernetes.Interface, name string, reached func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	require.Eventually(t, func() bool {
		found, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		pod = found
		return err == nil && reached(found)
	}, deadline, beat, "the pod %s", name)
	return pod
}
