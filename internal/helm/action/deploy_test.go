package action

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/release"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestDeployInstallsThenUpgrades(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := pack(t, "1.0.0", files{"templates/app.yaml": app("web", "sleep 1000"), "templates/test.yaml": hook("web-test", "test", "true")})

	var requested, running *pb.ChartRevision
	order := w.order(&pb.Command{Requested: one.Info, Action: &pb.Command_Deploy{Deploy: &pb.DeployCommand{ChartDigest: one.Digest}}})
	order.Started = func(_ context.Context, r, was *pb.ChartRevision) error { requested, running = r, was; return nil }
	r := w.done(w.runner.Deploy(t.Context(), order, one))
	require.Equal(t, "1.0.0", requested.GetVersion())
	require.Nil(t, running)
	require.Equal(t, "install", r.Mutation.Action)
	require.EqualValues(t, 1, r.Mutation.HelmRevision)
	require.EqualValues(t, 1, r.Mutation.Tests)
	require.NotEmpty(t, r.Mutation.QuarantineKey)
	require.Equal(t, one.Digest, r.Running.Digest)
	require.Equal(t, "c0ffee", r.Running.Annotations["commit_sha"])
	deployment, err := w.client.Clientset.AppsV1().Deployments(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, deployment.Status.ReadyReplicas, "it waited")

	two := pack(t, "2.0.0", files{"templates/app.yaml": app("web", "sleep 2000")})
	first := r
	r = w.done(w.deploy(two))
	require.Equal(t, "upgrade", r.Mutation.Action)
	require.EqualValues(t, 1, r.Mutation.FromRevision)
	require.EqualValues(t, 2, r.Mutation.HelmRevision)
	require.Zero(t, r.Mutation.Tests)
	require.Equal(t, two.Digest, r.Running.Digest)
	require.NotEqual(t, first.Mutation.QuarantineKey, r.Mutation.QuarantineKey)
	require.Equal(t, []string{"1 superseded", "2 deployed"}, w.statuses())
	stamp, ok := release.StampOf(w.records()[1])
	require.True(t, ok)
	require.EqualValues(t, 2, stamp.Number)
	require.Equal(t, r.Mutation.ManifestDigest, release.ManifestDigest(w.records()[1]))
}

func TestAnUpgradeThatNeverGetsReadyNamesTheObjectAndWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.done(w.deploy(pack(t, "1.0.0", files{"templates/app.yaml": app("web", "sleep 1000")})))
	broken := pack(t, "1.1.0", files{"templates/app.yaml": app("web", "echo cannot go on; exit 3")})
	r := w.deploy(broken, withUpgrade(func(o *pb.UpgradeOptions) { o.Timeout = "15s" }))
	f := w.failed(r, pb.ClassFailed, "local/"+w.namespace+"/web: upgrade failed", "Deployment "+w.namespace+"/web is not ready within the time-out of 15s")
	require.True(t, f.Mutated)
	require.Len(t, f.Objects, 1)
	report := f.Objects[0]
	require.Contains(t, report.WaitingReason, "exit code 3")
	require.Contains(t, f.Reason, report.WaitingReason)
	require.NotEmpty(t, report.Conditions)
	require.NotEmpty(t, report.Logs)
	require.EqualValues(t, 3, report.Logs[0].GetExitCode())
	require.Contains(t, report.Logs[0].Tail, "cannot go on")
	require.EqualValues(t, 2, r.Mutation.HelmRevision)
	require.Equal(t, "1.0.0", r.Running.Version, "that is what the records say to be deployed")
	require.Equal(t, []string{"1 deployed", "2 failed"}, w.statuses())
}

func TestAnImmutableFieldFailsForGoodAndIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/app.yaml": app("web", "sleep 1000")})
	w.done(w.deploy(chart))
	r := w.deploy(chart, withValues(t, map[string]any{"app": "other"}))
	f := w.failed(r, pb.ClassFailed, `"web"`, "Deployment", "spec.selector", "immutable")
	require.True(t, f.Mutated)
	require.Equal(t, []string{"1 deployed", "2 failed"}, w.statuses())
}

func TestAFailedFirstInstallIsInstalledOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	broken := pack(t, "1.0.0", files{
		"templates/note.yaml": note("kept"), "templates/old.yaml": note("dropped"),
		"templates/hook.yaml": hook("web-first", "post-install", "echo no; exit 4"),
	})
	r := w.deploy(broken)
	f := w.failed(r, pb.ClassFailed, "post-install", "hook Pod "+w.namespace+"/web-first", "exit code 4")
	require.Contains(t, f.Objects[0].Logs[0].Tail, "no")
	require.Nil(t, r.Running)
	require.Equal(t, []string{"1 failed"}, w.statuses())

	r = w.done(w.deploy(pack(t, "1.0.1", files{"templates/note.yaml": note("kept"), "templates/hook.yaml": hook("web-first", "post-install", "true")})))
	require.Equal(t, "install", r.Mutation.Action)
	require.EqualValues(t, 2, r.Mutation.HelmRevision, "numbers rise")
	require.Equal(t, []string{"1 failed", "2 deployed"}, w.statuses())
	require.NotNil(t, w.configMap("kept"))
	require.Nil(t, w.configMap("dropped"), "what the failed install left is gone")
}

// TestRefusedBeforeAnythingIsMutated: nothing is there afterwards, neither a record nor an object nor the namespace.
func TestRefusedBeforeAnythingIsMutated(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 900<<10)
	_, _ = rand.Read(noise) // what cannot be compressed
	for _, row := range []struct {
		name   string
		files  files
		change func(*pb.Command)
		class  string
		texts  []string
	}{
		{
			name: "template", class: pb.ClassFailed, texts: []string{"templates/bad.yaml", "needed"},
			files: files{"templates/bad.yaml": `{{ required "text is needed" .Values.text }}`},
		},
		{
			name: "schema", class: pb.ClassFailed, texts: []string{"replicas", "integer"},
			files:  files{"templates/note.yaml": note("x"), "values.schema.json": `{"properties": {"replicas": {"type": "integer"}}}`},
			change: withValues(t, map[string]any{"replicas": "two"}),
		},
		{
			name: "unknown test", class: pb.ClassFailed, texts: []string{`unknown test "web-smok"`, "known: web-smoke"},
			files: files{"templates/note.yaml": note("x"), "templates/test.yaml": hook("web-smoke", "test", "true")},
			change: func(cmd *pb.Command) {
				cmd.GetDeploy().Test.Filters = &pb.TestFilters{NotName: []string{"web-smok"}}
			},
		},
		{
			name: "record too large", class: pb.ClassFailed, texts: []string{"record would have", "the limit is 1032192"},
			files: files{"templates/note.yaml": note("x"), "blob": string(noise)},
		},
		{
			name: "unknown kind", class: pb.ClassFailed, texts: []string{"no matches for kind", "Unheard"},
			files: files{"templates/odd.yaml": "apiVersion: example.com/v1\nkind: Unheard\nmetadata: {name: x}\n"},
		},
		{
			name: "dependency missing", class: pb.ClassFailed, texts: []string{"redis"},
			files: files{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies: [{name: redis, version: 1.0.0, repository: https://example.com}]\n"},
		},
		{
			name: "values missing", class: pb.ClassFailed, texts: []string{"Secret", "/web-values", "does not exist"},
			files: files{"templates/note.yaml": note("x")},
			change: func(cmd *pb.Command) {
				cmd.GetDeploy().ValuesFrom = []*pb.ValuesFrom{{Kind: "Secret", Name: "web-values"}}
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if row.change == nil {
				row.change = func(*pb.Command) {}
			}
			for _, createNamespace := range []bool{false, true} {
				r := w.deploy(pack(t, "1.0.0", row.files), row.change, withUpgrade(func(o *pb.UpgradeOptions) { o.CreateNamespace = createNamespace }))
				f := w.failed(r, row.class, row.texts...)
				require.False(t, f.Mutated)
				require.Zero(t, r.Mutation.HelmRevision)
				require.Empty(t, w.records())
				require.Nil(t, w.configMap("x"))
			}
		})
	}
}

func TestAnObjectOfSomebodyElseIsNotTakenUnlessAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.client.Clientset.CoreV1().ConfigMaps(w.namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"text": "theirs"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	f := w.failed(w.deploy(chart), pb.ClassFailed, `ConfigMap "x"`, "exists and cannot be imported")
	require.False(t, f.Mutated)
	require.Empty(t, w.records())
	require.Equal(t, "theirs", w.configMap("x").Data["text"])

	w.done(w.deploy(chart, withUpgrade(func(o *pb.UpgradeOptions) { o.TakeOwnership = true })))
	require.Equal(t, "none", w.configMap("x").Data["text"])
}

func TestQuarantinedInputsAreRefusedBeforeAnythingIsMutated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	first := w.done(w.deploy(chart, withValues(t, map[string]any{"text": "a"})))
	quarantined := func(cmd *pb.Command) { cmd.Quarantined = []string{"other", first.Mutation.QuarantineKey} }

	r := w.deploy(chart, withValues(t, map[string]any{"text": "a"}), quarantined)
	f := w.failed(r, pb.ClassRejected, "quarantine")
	require.False(t, f.Mutated)
	require.Equal(t, first.Mutation.QuarantineKey, r.Mutation.QuarantineKey)
	require.Equal(t, []string{"1 deployed"}, w.statuses())

	other := w.done(w.deploy(chart, withValues(t, map[string]any{"text": "b"}), quarantined))
	require.NotEqual(t, first.Mutation.QuarantineKey, other.Mutation.QuarantineKey)
	forced := w.done(w.deploy(chart, withValues(t, map[string]any{"text": "a"}), quarantined, func(cmd *pb.Command) { cmd.GetDeploy().Force = true }))
	require.Equal(t, first.Mutation.QuarantineKey, forced.Mutation.QuarantineKey)

	again := &Runner{Client: w.client, Namespace: w.namespace, Log: w.runner.Log}
	w.runner = again
	w.failed(w.deploy(chart, withValues(t, map[string]any{"text": "a"}), quarantined), pb.ClassRejected, "quarantine")
}

func TestOldRecordsArePrunedButNeverTheProvenOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	for range 5 {
		w.done(w.deploy(chart, withUpgrade(func(o *pb.UpgradeOptions) { o.MaxHistory = 3 }), func(cmd *pb.Command) {
			cmd.Proven = &pb.Proof{Content: &pb.ChartRevision{HelmRevision: 1}}
		}))
	}
	require.Equal(t, []string{"1 superseded", "4 superseded", "5 deployed"}, w.statuses())
}

func TestDefinitionsAreMadeBeforeTheirObjectsAndSkippedOnRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	group := w.namespace + ".example.com"
	chart := pack(t, "1.0.0", files{
		"crds/boat.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: boats." + group + "}\n" +
			"spec:\n  group: " + group + "\n  scope: Namespaced\n  names: {kind: Boat, plural: boats, singular: boat}\n" +
			"  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]\n",
		"templates/boat.yaml": "apiVersion: " + group + "/v1\nkind: Boat\nmetadata: {name: first}\n",
		"templates/note.yaml": note("x"),
		"templates/test.yaml": hook("web-smoke", "test", "true"),
	})
	crd := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats." + group
	rest := w.client.Clientset.Discovery().RESTClient()
	w.Cleanup(func() { _ = rest.Delete().AbsPath(crd).Do(context.WithoutCancel(t.Context())).Error() })

	r := w.deploy(chart, withUpgrade(func(o *pb.UpgradeOptions) { o.Crds = pb.CRDsSkip }))
	w.failed(r, pb.ClassFailed, "no matches for kind")
	r = w.deploy(chart, func(cmd *pb.Command) { cmd.GetDeploy().Test.Filters = &pb.TestFilters{Name: []string{"nope"}} })
	f := w.failed(r, pb.ClassFailed, "unknown test")
	require.False(t, f.Mutated)
	require.Error(t, rest.Get().AbsPath(crd).Do(t.Context()).Error(), "no definition was made")

	w.done(w.deploy(chart))
	require.NoError(t, rest.Get().AbsPath("/apis/"+group+"/v1/namespaces/"+w.namespace+"/boats/first").Do(t.Context()).Error())
}

func TestAMissingNamespaceIsRefusedAndBlamesNoInputs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.namespace += "-none"
	archive := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	r := w.deploy(archive)
	f := w.failed(r, pb.ClassRejected, "namespace "+w.namespace+" does not exist")
	require.Contains(t, f.Next, "upgrade.createNamespace")
	require.False(t, f.Mutated)
	require.Empty(t, r.Mutation.QuarantineKey)

	w.done(w.deploy(archive, withUpgrade(func(o *pb.UpgradeOptions) { o.CreateNamespace = true })))
	require.NoError(t, w.client.Clientset.CoreV1().Namespaces().Delete(t.Context(), w.namespace, metav1.DeleteOptions{}))
}
