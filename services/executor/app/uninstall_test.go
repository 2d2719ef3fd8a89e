package app_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func (w *world) uninstall() uint32 {
	w.Helper()
	return w.order(&pb.Command{Action: &pb.Command_Uninstall{Uninstall: &pb.UninstallCommand{Options: &pb.UninstallOptions{Timeout: "10m"}}}})
}

func TestAnUninstallSaysWhatWasUninstalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(w.config("a"))
	annotations := map[string]string{"commit_sha": "c0ffee"}
	w.until(w.deploy(w.store(helmtest.Web("1.0.0", helmtest.WithAnnotations(annotations))), "2m"), pb.KindDeployed)

	number := w.uninstall()
	started := w.until(number, pb.KindUninstalling)
	require.Equal(t, "uninstalling web 1.0.0", started.Message)
	require.Equal(t, annotations, started.Requested.Annotations)
	done := w.until(number, pb.KindUninstalled)
	require.Equal(t, "web 1.0.0 (revision 1) is uninstalled", done.Message)
	require.Equal(t, annotations, done.Requested.Annotations)
	require.EqualValues(t, 1, done.Requested.HelmRevision)
	require.Nil(t, done.Running)
	require.Empty(t, w.statuses())

	done = w.until(w.uninstall(), pb.KindUninstalled)
	require.Equal(t, "nothing was there to uninstall", done.Message)
	require.Nil(t, done.Requested)
}

func TestTheUninstallOfAnExecutorThatDiesIsGoneOnWith(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dies := w.spawn(w.config("dies"))
	// Helm deletes the release, and then runs a hook that takes its time.
	waits := helmtest.WithFile("templates/hook.yaml", `apiVersion: v1
kind: Pod
metadata: {name: after, annotations: {helm.sh/hook: post-delete, helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - {name: main, image: "busybox:1.36", command: [sh, -c, "sleep 6"]}
`)
	w.until(w.deploy(w.store(helmtest.Web("1.0.0", waits)), "2m"), pb.KindDeployed)
	number := w.uninstall()
	require.Eventually(t, func() bool { return w.running("after") }, patience, tick)
	require.NoError(t, dies.Process.Signal(syscall.SIGKILL))
	require.Equal(t, []string{"1 uninstalling"}, w.statuses())

	w.start(w.config("heir"))
	done := w.until(number, pb.KindUninstalled)
	require.Equal(t, "heir", done.Instance)
	require.Equal(t, "1.0.0", done.Requested.Version)
	require.Empty(t, w.statuses())
}
