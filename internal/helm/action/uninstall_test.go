package action

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	helmaction "helm.sh/helm/v3/pkg/action"
	helmrelease "helm.sh/helm/v3/pkg/release"
	helmtime "helm.sh/helm/v3/pkg/time"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/release"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func (w *world) uninstall(change ...func(*pb.Command)) *Result {
	w.Helper()
	cmd := &pb.Command{Action: &pb.Command_Uninstall{Uninstall: &pb.UninstallCommand{Options: &pb.UninstallOptions{Timeout: "2m"}}}}
	for _, c := range change {
		c(cmd)
	}
	return w.runner.Uninstall(w.Context(), w.order(cmd))
}

func keepingHistory(cmd *pb.Command) { cmd.GetUninstall().Options.KeepHistory = true }

// place puts an object of a test run there, as the tester does.
func (w *world) place(name string, labels map[string]string) {
	w.Helper()
	_, err := w.client.Clientset.CoreV1().ConfigMaps(w.namespace).Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
}

func (w *world) ofTests() map[string]string {
	return map[string]string{release.LabelRelease: "web", release.LabelNamespace: w.namespace}
}

func TestUninstallRemovesTheReleaseAndWhatItsTestsHaveLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fixture := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: fixture\n  annotations: {helm.sh/hook: test}\n"
	one := pack(t, "1.0.0", files{"templates/note.yaml": note("x"), "templates/test.yaml": hook("web-test", "test", "true"), "templates/fixture.yaml": fixture})
	w.done(w.deploy(one))
	w.done(w.deploy(one))
	w.place("fixture", w.ofTests())
	w.place("of-an-older-revision", w.ofTests())
	w.place("of-somebody-else", map[string]string{release.LabelRelease: "other", release.LabelNamespace: w.namespace})
	w.place("of-nobody", nil)
	pods := w.client.Clientset.CoreV1().Pods(w.namespace)
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-test", Labels: w.ofTests()},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
			{Name: "main", Image: "busybox:1.36", Command: []string{"true"}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	var cmd *pb.Command
	r := w.done(w.uninstall(func(c *pb.Command) { cmd = c }))
	require.Equal(t, "uninstall", r.Mutation.Action)
	require.EqualValues(t, 2, r.Mutation.FromRevision)
	require.Equal(t, "1.0.0", r.Requested.Version, "what ran")
	require.Equal(t, one.Digest, r.Requested.Digest)
	require.Equal(t, "c0ffee", r.Requested.Annotations["commit_sha"])
	require.Nil(t, r.Running)
	require.Empty(t, w.records())
	require.Nil(t, w.configMap("x"))
	require.Nil(t, w.configMap("fixture"))
	require.Nil(t, w.configMap("of-an-older-revision"))
	require.NotNil(t, w.configMap("of-somebody-else"))
	require.NotNil(t, w.configMap("of-nobody"))
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, list.Items, "it was waited for")

	// Its holder may have died before it could say so.
	cmd.Running, cmd.Requested = r.Requested, r.Requested
	recovered := w.done(w.runner.Recover(t.Context(), w.again(cmd)))
	require.True(t, recovered.Mutation.Recovered)
	require.EqualValues(t, 2, recovered.Mutation.FromRevision)
	require.Equal(t, "1.0.0", recovered.Requested.Version)

	r = w.done(w.uninstall())
	require.Zero(t, r.Mutation.FromRevision, "nothing was there")
	require.Nil(t, r.Requested)

	w.done(w.deploy(one))
	require.Equal(t, []string{"1 deployed"}, w.statuses())
}

func TestAKeptHistoryIsGoneOnFrom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	w.done(w.deploy(one))
	w.done(w.deploy(one))
	w.done(w.uninstall(keepingHistory, func(c *pb.Command) { c.GetUninstall().Options.Description = "moved" }))
	require.Equal(t, []string{"1 superseded", "2 uninstalled"}, w.statuses())
	require.Equal(t, "moved", w.records()[1].Info.Description)
	require.Nil(t, w.configMap("x"))

	require.Zero(t, w.done(w.uninstall(keepingHistory)).Mutation.FromRevision, "nothing was there")
	require.Equal(t, []string{"1 superseded", "2 uninstalled"}, w.statuses())

	w.done(w.deploy(one))
	require.Equal(t, []string{"1 superseded", "2 superseded", "3 deployed"}, w.statuses())
	w.done(w.uninstall(keepingHistory))
	require.Zero(t, w.done(w.uninstall()).Mutation.FromRevision)
	require.Empty(t, w.records())
}

// Helm uninstalls what the newest record says. When that one's upgrade has failed, it knows nothing of the rest.
func TestWhatAFailedUpgradeHasLeftOfTheRevisionBeforeGoesToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.done(w.deploy(pack(t, "1.0.0", files{"templates/x.yaml": note("x"), "templates/rest.yaml": note("rest")})))
	two := pack(t, "2.0.0", files{"templates/x.yaml": note("x"), "templates/hook.yaml": hook("web-before", "pre-upgrade", "exit 4")})
	w.failed(w.deploy(two), pb.ClassFailed)
	require.Equal(t, []string{"1 deployed", "2 failed"}, w.statuses())
	require.NotNil(t, w.configMap("rest"))
	r := w.done(w.uninstall())
	require.EqualValues(t, 1, r.Mutation.FromRevision)
	require.Equal(t, "1.0.0", r.Requested.Version)
	require.Nil(t, w.configMap("x"))
	require.Nil(t, w.configMap("rest"))
}

func TestAnUninstallWhoseFirstHookFailsHasChangedNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.done(w.deploy(pack(t, "1.0.0", files{"templates/note.yaml": note("x"), "templates/hook.yaml": hook("web-drain", "pre-delete", "exit 5")})))
	r := w.uninstall()
	f := w.failed(r, pb.ClassFailed, "hook Pod "+w.namespace+"/web-drain", "exit code 5")
	require.True(t, f.Mutated)
	require.Equal(t, []string{"1 deployed"}, w.statuses())
	require.Equal(t, "1.0.0", r.Running.Version)
	require.NotNil(t, w.configMap("x"))
	w.done(w.uninstall(func(c *pb.Command) { c.GetUninstall().Options.DisableHooks = true }))
	require.Empty(t, w.records())
}

func TestAnUninstallThatFailsHalfWayCanBeRepeatedAndDeployedOver(t *testing.T) {
	t.Parallel()
	stays := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: stays\n  finalizers: [example.com/stays]\n"
	for name, next := range map[string]func(w *world){
		"repeated": func(w *world) {
			r := w.done(w.uninstall())
			require.EqualValues(w, 2, r.Mutation.FromRevision)
			require.Empty(w, w.records())
		},
		"deployed over": func(w *world) {
			w.done(w.deploy(pack(w.T, "2.0.0", files{"templates/note.yaml": note("x")})))
			require.Equal(w, []string{"1 superseded", "2 superseded", "3 deployed"}, w.statuses())
			require.NotNil(w, w.configMap("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x"), "templates/stays.yaml": stays})
			w.done(w.deploy(chart))
			w.done(w.deploy(chart))
			r := w.uninstall(func(c *pb.Command) { c.GetUninstall().Options.Timeout = "2s" })
			f := w.failed(r, pb.ClassFailed, "ConfigMap "+w.namespace+"/stays is not gone within the time-out of 2s")
			require.True(t, f.Mutated)
			require.Contains(t, f.Next, "ask for the uninstall again")
			require.Equal(t, "stays", f.Objects[0].GetName())
			require.Nil(t, r.Running, "what is left is no release that runs")
			require.Equal(t, []string{"1 superseded", "2 uninstalling"}, w.statuses())

			kept := w.configMap("stays")
			kept.Finalizers = nil
			_, err := w.client.Clientset.CoreV1().ConfigMaps(w.namespace).Update(t.Context(), kept, metav1.UpdateOptions{})
			require.NoError(t, err)
			next(w)
		})
	}
}

// A former holder died in the middle: the record says `uninstalling`, and the open command is that uninstall.
func TestAnUninstallGoesOnWhereAFormerHolderStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	w.done(w.deploy(one))
	w.change(func(rel *helmrelease.Release) { rel.Info.Status = helmrelease.StatusUninstalling })
	cmd := w.order(&pb.Command{Action: &pb.Command_Uninstall{Uninstall: &pb.UninstallCommand{}}}).Command
	r := w.done(w.runner.Recover(t.Context(), w.again(cmd)))
	require.EqualValues(t, 1, r.Mutation.FromRevision)
	require.Equal(t, "1.0.0", r.Requested.Version)
	require.Empty(t, w.records())
	require.Nil(t, w.configMap("x"))
}

func TestADeployWaitsForSomebodyElsesUninstall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	w.done(w.deploy(one))
	byHand := func(at time.Time) {
		w.change(func(rel *helmrelease.Release) {
			rel.Info.Status, rel.Info.Deleted = helmrelease.StatusUninstalling, helmtime.Time{Time: at}
		})
	}
	byHand(time.Now())
	w.failed(w.deploy(one, withUpgrade(func(u *pb.UpgradeOptions) { u.Timeout = "1s" })), pb.ClassBlocked, "revision 1 is uninstalling, begun by the program")
	byHand(time.Now().Add(-time.Hour))
	w.done(w.deploy(one))
	require.Equal(t, []string{"1 failed", "2 deployed"}, w.statuses())
}

func TestWhatAPersonHasUninstalledIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.done(w.deploy(pack(t, "1.0.0", files{"templates/note.yaml": note("x")})))
	_, err := helmaction.NewUninstall(helmtest.Configuration(t, w.client, w.namespace)).Run("web")
	require.NoError(t, err)
	r := w.done(w.uninstall(func(c *pb.Command) { c.Running = &pb.ChartRevision{Name: "web", Version: "1.0.0", HelmRevision: 1} }))
	require.Zero(t, r.Mutation.FromRevision)
	require.False(t, r.Mutation.Recovered)
}
