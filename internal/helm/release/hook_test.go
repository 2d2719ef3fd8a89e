package release_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	helmrelease "helm.sh/helm/v3/pkg/release"
	helmtime "helm.sh/helm/v3/pkg/time"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/release"
)

func TestTheDigestIsThatOfTheContentAlone(t *testing.T) {
	t.Parallel()
	content := func(change func(*helmrelease.Release)) string {
		rel := &helmrelease.Release{Manifest: "kind: ConfigMap", Version: 1, Hooks: []*helmrelease.Hook{
			{Name: "a", Kind: "Pod", Path: "a.yaml", Manifest: "kind: Pod", Events: []helmrelease.HookEvent{helmrelease.HookTest}, Weight: 1},
			{Name: "b", Kind: "Job", Path: "b.yaml", Manifest: "kind: Job"},
		}}
		change(rel)
		return release.ManifestDigest(rel)
	}
	digest := content(func(*helmrelease.Release) {})
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, digest)
	for _, row := range []struct {
		name   string
		change func(*helmrelease.Release)
		same   bool
	}{
		{"another revision", func(r *helmrelease.Release) { r.Version = 2 }, true},
		{"a hook that has run", func(r *helmrelease.Release) { r.Hooks[0].LastRun.StartedAt = helmtime.Now() }, true},
		{"the default policy written down", func(r *helmrelease.Release) {
			r.Hooks[0].DeletePolicies = []helmrelease.HookDeletePolicy{helmrelease.HookBeforeHookCreation}
		}, true},
		{"no policies, as rendering has it", func(r *helmrelease.Release) { r.Hooks[0].DeletePolicies = []helmrelease.HookDeletePolicy{} }, true},
		{"another manifest", func(r *helmrelease.Release) { r.Manifest = "kind: Secret" }, false},
		{"another hook's manifest", func(r *helmrelease.Release) { r.Hooks[1].Manifest = "kind: Pod" }, false},
		{"another name", func(r *helmrelease.Release) { r.Hooks[0].Name = "c" }, false},
		{"another kind", func(r *helmrelease.Release) { r.Hooks[0].Kind = "Job" }, false},
		{"another path", func(r *helmrelease.Release) { r.Hooks[0].Path = "c.yaml" }, false},
		{"another event", func(r *helmrelease.Release) { r.Hooks[0].Events = []helmrelease.HookEvent{helmrelease.HookPostInstall} }, false},
		{"another weight", func(r *helmrelease.Release) { r.Hooks[0].Weight = 2 }, false},
		{"another policy", func(r *helmrelease.Release) {
			r.Hooks[0].DeletePolicies = []helmrelease.HookDeletePolicy{helmrelease.HookSucceeded}
		}, false},
		{"a hook less", func(r *helmrelease.Release) { r.Hooks = r.Hooks[:1] }, false},
		{"another order", func(r *helmrelease.Release) { slices.Reverse(r.Hooks) }, false},
	} {
		require.Equal(t, row.same, content(row.change) == digest, row.name)
	}
}

func TestHelmTestAndRollbackLeaveTheDigestAsItIs(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	made := helmtest.Deploy(t, client, namespace, "shop", helmtest.Web("1.0.0",
		helmtest.WithTestJob("job", "true", helmtest.Weight(1), helmtest.DeletePolicy("hook-succeeded")),
		helmtest.WithFixture("fixture", helmtest.Weight(-1)),
	))
	digest := release.ManifestDigest(made)
	digestOf := func(revision int) string {
		rel, err := release.Read(t.Context(), client.Clientset, namespace, "shop", revision)
		require.NoError(t, err)
		return release.ManifestDigest(rel)
	}
	require.Equal(t, digest, digestOf(1), "stored as it was rendered")

	test := action.NewReleaseTesting(helmtest.Configuration(t, client, namespace))
	test.Namespace, test.Timeout = namespace, time.Minute
	tested, err := test.Run("shop")
	require.NoError(t, err)
	require.Equal(t, helmrelease.HookPhaseSucceeded, tested.Hooks[0].LastRun.Phase, "Helm writes it into the record")
	require.Equal(t, digest, digestOf(1))

	helmtest.Deploy(t, client, namespace, "shop", helmtest.Web("1.1.0"))
	require.NotEqual(t, digest, digestOf(2))
	rollback := action.NewRollback(helmtest.Configuration(t, client, namespace))
	rollback.Version = 1
	require.NoError(t, rollback.Run("shop"))
	require.Equal(t, digest, digestOf(3))
}

func TestPodsAndJobsAreTestsAndAllElseIsAFixture(t *testing.T) {
	t.Parallel()
	hook := func(name, kind string, events ...helmrelease.HookEvent) *helmrelease.Hook {
		return &helmrelease.Hook{Name: name, Kind: kind, Events: events}
	}
	rel := &helmrelease.Release{Hooks: []*helmrelease.Hook{
		hook("migrate", "Job", helmrelease.HookPreInstall),
		hook("account", "ServiceAccount", helmrelease.HookTest),
		hook("smoke", "Pod", helmrelease.HookTest),
		hook("both", "Job", helmrelease.HookPostInstall, helmrelease.HookTest),
	}}
	names := func(test func(*helmrelease.Hook) bool) (all []string) {
		for _, h := range release.TestHooks(rel) {
			if test(h) {
				all = append(all, h.Name)
			}
		}
		return all
	}
	require.Equal(t, []string{"account", "smoke", "both"}, names(func(*helmrelease.Hook) bool { return true }))
	require.Equal(t, []string{"smoke", "both"}, names(release.IsTest))
	require.Equal(t, 2, release.CountTests(rel))
	require.Len(t, rel.Hooks, 4, "the record is left alone")
	require.Zero(t, release.CountTests(&helmrelease.Release{}))
}
