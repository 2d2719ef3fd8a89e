package helmtest_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
)

const (
	patience = time.Minute
	tick     = 50 * time.Millisecond
)

func TestTheSameChartHasTheSameBytes(t *testing.T) {
	t.Parallel()
	build := func(version string) []byte {
		return helmtest.Web(version,
			helmtest.WithAnnotations(map[string]string{"a": "1", "b": "2", "c": "3"}),
			helmtest.WithTest("smoke", "exit 1", helmtest.Weight(3), helmtest.DeletePolicy("hook-succeeded", "hook-failed")),
		)
	}
	first, again := build("1.0.0"), build("1.0.0")
	require.Equal(t, first, again)
	require.NotEqual(t, build("1.0.0"), build("1.0.1"))
}

func TestWebSaysWhatItWasTold(t *testing.T) {
	t.Parallel()
	chart, err := loader.LoadArchive(bytes.NewReader(helmtest.Web("1.2.3",
		helmtest.WithAppVersion("9"), helmtest.WithAnnotations(map[string]string{"commit_sha": "12345"}),
		helmtest.WithValues(map[string]any{"page": "hello"}), helmtest.WithFile("crds/a.yaml", "kind: CustomResourceDefinition"),
	)))
	require.NoError(t, err)
	require.Equal(t, "web", chart.Metadata.Name)
	require.Equal(t, "1.2.3", chart.Metadata.Version)
	require.Equal(t, "9", chart.Metadata.AppVersion)
	require.Equal(t, map[string]string{"commit_sha": "12345"}, chart.Metadata.Annotations)
	require.Equal(t, "hello", chart.Values["page"])
	require.Len(t, chart.CRDObjects(), 1)
}

func TestWebRunsAndItsTestsDoAsTheyAreTold(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	first := helmtest.Deploy(t, client, namespace, "shop", helmtest.Web("1.0.0",
		helmtest.WithSecret("login", "password", "a \"quoted\"\nsecret"),
		helmtest.WithTest("smoke", `test "{{ .Release.Name }}" = shop && echo "quoted" 'too'`),
		helmtest.WithTestJob("job", "echo from the job", helmtest.Weight(1)),
		helmtest.WithFixture("fixture", helmtest.Weight(-1), helmtest.DeletePolicy("hook-succeeded")),
	))
	require.Equal(t, 1, first.Version)
	require.Eventually(t, func() bool {
		d, err := client.Clientset.AppsV1().Deployments(namespace).Get(t.Context(), "shop", metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == 1
	}, patience, tick)
	secret, err := client.Clientset.CoreV1().Secrets(namespace).Get(t.Context(), "shop-login", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "a \"quoted\"\nsecret", string(secret.Data["password"]))

	test := action.NewReleaseTesting(helmtest.Configuration(t, client, namespace))
	test.Namespace, test.Timeout = namespace, patience
	tested, err := test.Run("shop")
	require.NoError(t, err)
	require.Len(t, tested.Hooks, 3)
	for _, hook := range tested.Hooks {
		require.Equal(t, release.HookPhaseSucceeded, hook.LastRun.Phase, hook.Name)
	}

	second := helmtest.Deploy(t, client, namespace, "shop", helmtest.Web("1.1.0", helmtest.WithTest("smoke", "echo no; exit 3")))
	require.Equal(t, 2, second.Version)
	_, err = test.Run("shop")
	require.ErrorContains(t, err, "shop-smoke failed")

	third := helmtest.Deploy(t, client, namespace, "shop", helmtest.Web("1.2.0", helmtest.WithoutTests(), helmtest.NeverReady()))
	require.Empty(t, third.Hooks)
	require.Eventually(t, func() bool {
		pods, err := client.Clientset.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=shop"})
		if err != nil {
			return false
		}
		for _, pod := range pods.Items {
			if len(pod.Status.ContainerStatuses) == 1 && pod.Status.Phase == corev1.PodRunning && !pod.Status.ContainerStatuses[0].Ready {
				return true
			}
		}
		return false
	}, patience, tick)
}
