package kube_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	helmkube "helm.sh/helm/v3/pkg/kube"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/kit/fault"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// limit is the time-out of what is never ready, patience that of what will be: far longer than it takes.
const (
	limit    = 4 * time.Second
	patience = time.Minute
)

// newHelm returns the client of one action in a namespace of its own.
func newHelm(t *testing.T, client *kube.Client, namespace string) *kube.Helm {
	t.Helper()
	helm, err := client.Helm(t.Context(), namespace, kube.NewRedactor(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	require.NoError(t, err)
	return helm
}

// create makes the objects of a manifest.
func create(t *testing.T, helm *kube.Helm, manifest string) helmkube.ResourceList {
	t.Helper()
	objects, err := helm.Build(strings.NewReader(manifest), false)
	require.NoError(t, err)
	_, err = helm.Create(objects)
	require.NoError(t, err)
	return objects
}

// workload is a controller of one pod that runs script; probe succeeds when the pod shall be ready.
func workload(kind, script, probe, more string) string {
	api := "apps/v1"
	if kind == "Job" {
		api = "batch/v1"
	}
	selector := "  selector: {matchLabels: {app: x}}\n"
	restart := "Always"
	if kind == "Job" {
		selector, restart = "  backoffLimit: 0\n", "Never"
	}
	return fmt.Sprintf(`apiVersion: %s
kind: %s
metadata: {name: x}
spec:
%s%s  template:
    metadata: {labels: {app: x}}
%s`, api, kind, selector, more, indent("    ", pod(script, probe, restart)))
}

// pod is the part of a pod below its metadata.
func pod(script, probe, restart string) string {
	return fmt.Sprintf(`spec:
  restartPolicy: %s
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: busybox:1.36
      command: [sh, -c, %q]
      %s
`, restart, script, probe)
}

func indent(by, text string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by) + "\n"
}

const (
	sleeps  = "trap 'exit 0' TERM; sleep 1000 & wait"
	is      = `readinessProbe: {periodSeconds: 1, exec: {command: ["true"]}}`
	isNot   = `readinessProbe: {periodSeconds: 1, exec: {command: ["false"]}}`
	service = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\nspec: {type: %s, ports: [{port: 80}], externalName: %q}\n"
)

// TestReadyIsWhatHelmFindsReady waits for the same objects with Helm's polling and by watching.
func TestReadyIsWhatHelmFindsReady(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name     string
		manifest string
		jobs     bool
		ready    bool
	}{
		{name: "Deployment", manifest: workload("Deployment", sleeps, is, ""), ready: true},
		{name: "Deployment, not ready", manifest: workload("Deployment", sleeps, isNot, "")},
		{name: "Deployment, without a probe", manifest: workload("Deployment", sleeps, "", ""), ready: true},
		{name: "Deployment, paused", manifest: workload("Deployment", sleeps, isNot, "  paused: true\n"), ready: true},
		{name: "Deployment, of none", manifest: workload("Deployment", sleeps, isNot, "  replicas: 0\n"), ready: true},
		{name: "Deployment, one may be missing", manifest: workload("Deployment", sleeps, isNot, "  strategy: {rollingUpdate: {maxUnavailable: 1}}\n"), ready: true},
		{name: "StatefulSet", manifest: workload("StatefulSet", sleeps, is, "  serviceName: x\n"), ready: true},
		{name: "StatefulSet, not ready", manifest: workload("StatefulSet", sleeps, isNot, "  serviceName: x\n")},
		{name: "StatefulSet, on delete", manifest: workload("StatefulSet", sleeps, isNot, "  serviceName: x\n  updateStrategy: {type: OnDelete}\n"), ready: true},
		{name: "DaemonSet", manifest: workload("DaemonSet", sleeps, is, "  updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}\n"), ready: true},
		{name: "DaemonSet, not ready", manifest: workload("DaemonSet", sleeps, isNot, "  updateStrategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}\n")},
		{name: "ReplicaSet", manifest: workload("ReplicaSet", sleeps, is, ""), ready: true},
		{name: "ReplicaSet, not ready", manifest: workload("ReplicaSet", sleeps, isNot, "")},
		{name: "Job, not asked for", manifest: workload("Job", "exit 1", "", ""), ready: true},
		{name: "Job", manifest: workload("Job", "exit 0", "", ""), jobs: true, ready: true},
		{name: "Job, failed", manifest: workload("Job", "exit 1", "", ""), jobs: true},
		{name: "Job, at work", manifest: workload("Job", sleeps, "", ""), jobs: true},
		{name: "Pod", manifest: "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n" + pod(sleeps, is, "Always"), ready: true},
		{name: "Pod, not ready", manifest: "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n" + pod(sleeps, isNot, "Always")},
		{name: "Service", manifest: fmt.Sprintf(service, "ClusterIP", ""), ready: true},
		{name: "Service, by another name", manifest: fmt.Sprintf(service, "ExternalName", "example.com"), ready: true},
		{name: "Service, without a load balancer", manifest: fmt.Sprintf(service, "LoadBalancer", "")},
		{
			name:     "PersistentVolumeClaim, not bound",
			manifest: "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x}\nspec: {storageClassName: nobody, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
		},
		{name: "ConfigMap", manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", ready: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			client := helmtest.Connect(t)
			helm := newHelm(t, client, helmtest.Namespace(t, client))
			objects := create(t, helm, row.manifest)
			timeout := limit
			if row.ready {
				timeout = patience
			}
			wait := func(k helmkube.Interface) error {
				if row.jobs {
					return k.WaitWithJobs(objects, timeout)
				}
				return k.Wait(objects, timeout)
			}
			polled := make(chan error, 1)
			go func() { polled <- wait(helm.Client) }()
			err := wait(helm)
			if row.ready {
				require.NoError(t, err)
				require.NoError(t, <-polled)
				return
			}
			require.Equal(t, pb.ClassFailed, fault.Class(err))
			require.ErrorContains(t, err, "/x is not ready")
			require.NotEmpty(t, helm.Objects())
			require.Error(t, <-polled)
		})
	}
}

func TestAClaimIsReadyOnceItIsBound(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	helm := newHelm(t, client, namespace)
	objects := create(t, helm, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: x}\n"+
		"spec: {storageClassName: "+namespace+", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n")
	done := make(chan error)
	go func() { done <- helm.Wait(objects, patience) }()
	volumes := client.Clientset.CoreV1().PersistentVolumes()
	_, err := volumes.Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: namespace, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = volumes.Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{}) })
	require.NoError(t, <-done)
}

// Without a readiness probe a container counts as ready while it dies.
func TestAContainerThatDiesAtOnceIsNeverReady(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"exit 3", "sleep 0.1; exit 3"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			client := helmtest.Connect(t)
			helm := newHelm(t, client, helmtest.Namespace(t, client))
			err := helm.Wait(create(t, helm, workload("Deployment", script, "", "")), 3*limit)
			require.ErrorContains(t, err, "Deployment")
			require.ErrorContains(t, err, "exit code 3")
		})
	}
}

func TestAFailedJobEndsTheWaitingAtOnce(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	helm := newHelm(t, client, helmtest.Namespace(t, client))
	err := helm.WaitWithJobs(create(t, helm, workload("Job", "echo broken; exit 7", "", "")), time.Hour)
	require.Equal(t, pb.ClassFailed, fault.Class(err))
	require.ErrorContains(t, err, "BackoffLimitExceeded")
	require.Contains(t, helm.Objects()[0].Logs[0].Tail, "broken")
}

// A Job that has failed is told to be so only when its pods are gone, which may take them all their grace period.
func TestAJobThatIsBoundToFailEndsTheWaiting(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	helm := newHelm(t, client, namespace)
	job := workload("Job", "trap '' TERM; while :; do sleep 1; done", "", "  activeDeadlineSeconds: 1\n")
	objects := create(t, helm, strings.Replace(job, "terminationGracePeriodSeconds: 0", "terminationGracePeriodSeconds: 60", 1))
	require.ErrorContains(t, helm.WaitWithJobs(objects, time.Hour), "DeadlineExceeded")
	require.ErrorContains(t, helm.WatchUntilReady(objects, time.Hour), "DeadlineExceeded")
	found, err := client.Clientset.BatchV1().Jobs(namespace).Get(t.Context(), "x", metav1.GetOptions{})
	require.NoError(t, err)
	for _, condition := range found.Status.Conditions {
		require.NotEqual(t, batchv1.JobFailed, condition.Type, "it was waited for the pods' end")
	}
}

// The TTL controller deletes it in the moment that it has failed: to Helm, a hook that is gone has run.
func TestAHookThatFailsAndIsGoneAtOnceHasFailed(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	var reads atomic.Int32
	late, err := client.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/jobs/x") && reads.Add(1) > 1 {
				// Each reading but the first comes too late.
				require.Eventually(t, func() bool {
					_, err := client.Clientset.BatchV1().Jobs(namespace).Get(t.Context(), "x", metav1.GetOptions{})
					return apierrors.IsNotFound(err)
				}, patience, 10*time.Millisecond)
			}
			return next.RoundTrip(r)
		})
	})
	require.NoError(t, err)
	helm := newHelm(t, late, namespace)
	objects := create(t, helm, workload("Job", "sleep 1; exit 7", "", "  ttlSecondsAfterFinished: 0\n"))
	require.ErrorContains(t, helm.WatchUntilReady(objects, patience), "BackoffLimitExceeded")
}

func TestWhatKeepsPodsFromBeingMadeOrBegunIsNamed(t *testing.T) {
	t.Parallel()
	volume := "volumeMounts: [{name: pages, mountPath: /pages}]\n  volumes: [{name: pages, configMap: {name: missing}}]"
	refused := func(kind string) string {
		return strings.ReplaceAll(workload(kind, sleeps, is, ""), "restartPolicy:", "serviceAccountName: nobody\n      restartPolicy:")
	}
	for _, row := range []struct{ name, manifest, says string }{
		{"the pods of a Deployment", refused("Deployment"), `serviceaccount "nobody" not found`},
		{"the pods of a DaemonSet", refused("DaemonSet"), `serviceaccount "nobody" not found`},
		{"the pods of a Job", refused("Job"), `serviceaccount "nobody" not found`},
		{"a volume", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n" + pod(sleeps, volume, "Always"), `configmap "missing" not found`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			client := helmtest.Connect(t)
			helm := newHelm(t, client, helmtest.Namespace(t, client))
			require.ErrorContains(t, helm.WaitWithJobs(create(t, helm, row.manifest), limit), row.says)
		})
	}
}

func TestHooksHaveRunOnceTheySucceeded(t *testing.T) {
	t.Parallel()
	hookPod := func(script string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n" + pod(script, "", "Never")
	}
	for _, row := range []struct {
		name, manifest string
		timeout        time.Duration
		fails          string
	}{
		{name: "Pod", manifest: hookPod("exit 0"), timeout: patience},
		{name: "Pod, failed", manifest: hookPod("echo broken; exit 7"), timeout: patience, fails: "exit code 7"},
		{name: "Pod, at work", manifest: hookPod(sleeps), timeout: limit, fails: "has not succeeded within the time-out of 4s"},
		{name: "Job", manifest: workload("Job", "exit 0", "", ""), timeout: patience},
		{name: "Job, failed", manifest: workload("Job", "exit 7", "", ""), timeout: patience, fails: "BackoffLimitExceeded"},
		{name: "ConfigMap", manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", timeout: patience},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			client := helmtest.Connect(t)
			helm := newHelm(t, client, helmtest.Namespace(t, client))
			objects := create(t, helm, row.manifest)
			err := helm.WatchUntilReady(objects, row.timeout)
			polled := helm.Client.WatchUntilReady(objects, row.timeout)
			if row.fails == "" {
				require.NoError(t, err)
				require.NoError(t, polled)
				return
			}
			require.ErrorContains(t, err, row.fails)
			require.Error(t, polled)
		})
	}
}

func TestDeletedIsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	helm := newHelm(t, client, namespace)
	objects := create(t, helm, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, finalizers: [example.com/stays]}\n")
	_, errs := helm.Delete(objects)
	require.Empty(t, errs)
	require.ErrorContains(t, helm.WaitForDelete(objects, limit), "ConfigMap "+namespace+"/x is not gone within the time-out of 4s")

	done := make(chan error)
	go func() { done <- helm.WaitForDelete(objects, patience) }()
	_, err := client.Clientset.CoreV1().ConfigMaps(namespace).Patch(t.Context(), "x", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NoError(t, <-done)
}

func TestWaitingEndsWithTheActionsContext(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	ctx, cancel := context.WithCancelCause(t.Context())
	helm, err := client.Helm(ctx, namespace, kube.NewRedactor(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	objects := create(t, helm, "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n"+pod(sleeps, isNot, "Always"))
	done := make(chan error)
	go func() { done <- helm.Wait(objects, time.Hour) }()
	cause := fmt.Errorf("the lease is lost")
	cancel(cause)
	err = <-done
	require.ErrorIs(t, err, cause)
	require.Equal(t, pb.ClassInterrupted, fault.Class(err))
}

// A watch that is refused, or that ends at once, makes the waiting slower, not wrong.
func TestWaitingWithoutWatchesFindsTheSame(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusForbidden, http.StatusOK} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			client := helmtest.Connect(t)
			namespace := helmtest.Namespace(t, client)
			blind, err := client.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return transport(func(r *http.Request) (*http.Response, error) {
					if r.URL.Query().Get("watch") == "" {
						return next.RoundTrip(r)
					}
					return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Request: r, Header: http.Header{}}, nil
				})
			})
			require.NoError(t, err)
			helm := newHelm(t, blind, namespace)
			objects := create(t, helm, workload("Deployment", sleeps, is, "")+"---\n"+strings.Replace(workload("Job", "exit 0", "", ""), "{name: x}", "{name: other}", 1))
			require.NoError(t, helm.WaitWithJobs(objects, patience))
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
