package helmtest

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	helmkube "helm.sh/helm/v3/pkg/kube"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/kube"
)

// patience bounds what a cluster is waited for, far longer than it takes.
const patience = time.Minute

// Kubeconfig returns the path of the kubeconfig of the cluster that tests run with. Without one the test fails.
func Kubeconfig(t testing.TB) string {
	t.Helper()
	path := os.Getenv("KUBECONFIG")
	require.NotEmpty(t, path, "this test needs Kubernetes: run it by make test, or set KUBECONFIG")
	return path
}

// Connect returns a client of the cluster that may change everything.
func Connect(t testing.TB) *kube.Client {
	t.Helper()
	client, err := kube.Connect(Kubeconfig(t))
	require.NoError(t, err)
	return client.As(kube.Actor{Service: "test", Version: "test", Gate: Open{}, RequestTimeout: 30 * time.Second})
}

// Open is a gate that lets everything pass.
type Open struct{}

// Check returns nil.
func (Open) Check() error { return nil }

// Namespace makes a namespace in which pods can run, and deletes it when the test ends.
func Namespace(t testing.TB, client *kube.Client) string {
	t.Helper()
	namespaces := client.Clientset.CoreV1().Namespaces()
	made, err := namespaces.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "seatrial-test-"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, namespaces.Delete(context.WithoutCancel(t.Context()), made.Name, metav1.DeleteOptions{}))
	})
	require.Eventually(t, func() bool {
		_, err := client.Clientset.CoreV1().ServiceAccounts(made.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}, patience, 20*time.Millisecond, "the ServiceAccount default, without which no pod starts")
	return made.Name
}

// Deploy installs or upgrades a release as Helm itself does, waits for nothing, and returns its record.
func Deploy(t testing.TB, client *kube.Client, namespace, name string, archive []byte) *release.Release {
	t.Helper()
	return DeployWith(t, Configuration(t, client, namespace), namespace, name, archive)
}

// DeployWith is Deploy with a configuration of Helm, for example one that stamps records.
func DeployWith(t testing.TB, config *action.Configuration, namespace, name string, archive []byte) *release.Release {
	t.Helper()
	chart, err := loader.LoadArchive(bytes.NewReader(archive))
	require.NoError(t, err)
	var made *release.Release
	if _, err = config.Releases.Last(name); err == nil {
		upgrade := action.NewUpgrade(config)
		upgrade.Namespace = namespace
		made, err = upgrade.RunWithContext(t.Context(), name, chart, nil)
	} else {
		install := action.NewInstall(config)
		install.Namespace, install.ReleaseName = namespace, name
		made, err = install.RunWithContext(t.Context(), chart, nil)
	}
	require.NoError(t, err)
	return made
}

// Configuration returns what Helm's actions need, as the Helm CLI makes it.
func Configuration(t testing.TB, client *kube.Client, namespace string) *action.Configuration {
	t.Helper()
	getter := client.RESTClientGetter(namespace)
	helm := helmkube.New(getter)
	helm.Namespace = namespace
	return &action.Configuration{RESTClientGetter: getter, Releases: Storage(client, namespace), KubeClient: helm, Log: t.Logf}
}

// Storage returns Helm's own storage of the records in a namespace.
func Storage(client *kube.Client, namespace string) *storage.Storage {
	return storage.Init(driver.NewSecrets(client.Clientset.CoreV1().Secrets(namespace)))
}
