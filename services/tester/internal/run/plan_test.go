package run

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	helmrelease "helm.sh/helm/v3/pkg/release"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// hook returns a test hook `<kind> <name>` of that weight.
func hook(kind, name string, weight int, policies ...helmrelease.HookDeletePolicy) *helmrelease.Hook {
	return &helmrelease.Hook{
		Name: name, Kind: kind, Path: "web/templates/" + name + ".yaml", Weight: weight,
		Events: []helmrelease.HookEvent{helmrelease.HookTest}, DeletePolicies: policies,
		Manifest: fmt.Sprintf("apiVersion: v1\nkind: %s\nmetadata: {name: %s}\n", kind, name),
	}
}

// names returns the plan as lists of names: of each barrier its fixtures and its tests, and what is not selected.
func names(p plan) (barriers [][2][]string, notSelected []string) {
	of := func(steps []step) (all []string) {
		for _, s := range steps {
			all = append(all, s.hook.Name)
		}
		return all
	}
	for _, b := range p.barriers {
		barriers = append(barriers, [2][]string{of(b.fixtures), of(b.tests)})
	}
	return barriers, of(p.notSelected)
}

func TestAPlanHasWeightsAsBarriersAndFixturesFirst(t *testing.T) {
	t.Parallel()
	setup := hook("Pod", "setup", -1)
	setup.Events = []helmrelease.HookEvent{helmrelease.HookPreInstall}
	rel := &helmrelease.Release{Namespace: "shop", Hooks: []*helmrelease.Hook{
		hook("Pod", "b", 0), setup, hook("Job", "late", 10), hook("ConfigMap", "z", 0), hook("Job", "a", 0), hook("Secret", "early", -5),
	}}
	for _, row := range []struct {
		name        string
		filters     *pb.TestFilters
		barriers    [][2][]string
		notSelected []string
	}{
		{"all", nil, [][2][]string{{{"early"}, nil}, {{"z"}, {"a", "b"}}, {nil, {"late"}}}, nil},
		{"one by its name, with every fixture", &pb.TestFilters{Name: []string{"late"}},
			[][2][]string{{{"early"}, nil}, {{"z"}, nil}, {nil, {"late"}}}, []string{"a", "b"}},
		{"all but one", &pb.TestFilters{NotName: []string{"a"}},
			[][2][]string{{{"early"}, nil}, {{"z"}, {"b"}}, {nil, {"late"}}}, []string{"a"}},
		{"both kinds of filters", &pb.TestFilters{Name: []string{"a", "b"}, NotName: []string{"a"}},
			[][2][]string{{{"early"}, nil}, {{"z"}, {"b"}}, {nil, nil}}, []string{"a", "late"}},
		{"none: then no fixture either", &pb.TestFilters{NotName: []string{"a", "b", "late"}}, nil, []string{"a", "b", "late"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p, err := newPlan(rel, row.filters)
			require.NoError(t, err)
			barriers, notSelected := names(p)
			require.Equal(t, row.barriers, barriers)
			require.Equal(t, row.notSelected, notSelected)
			require.Equal(t, 3-len(row.notSelected), p.tests)
		})
	}
}

func TestAnUnknownTestInAFilterIsRefused(t *testing.T) {
	t.Parallel()
	rel := &helmrelease.Release{Hooks: []*helmrelease.Hook{hook("Pod", "smoke", 0), hook("ConfigMap", "fixture", 0)}}
	for name, filters := range map[string]*pb.TestFilters{
		"by name":               {Name: []string{"smoke", "smok"}},
		"by exclusion":          {NotName: []string{"smok"}},
		"a fixture is no test":  {Name: []string{"fixture"}},
		"nor can it be dropped": {NotName: []string{"fixture"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := newPlan(rel, filters)
			require.ErrorIs(t, err, ErrUnknownTest)
			require.ErrorContains(t, err, "the revision has smoke")
		})
	}
	_, err := newPlan(&helmrelease.Release{}, &pb.TestFilters{Name: []string{"smoke"}})
	require.ErrorContains(t, err, `unknown test "smoke": the revision has no tests`)
}

func TestAHookThatCannotBeReadIsNamed(t *testing.T) {
	t.Parallel()
	broken := hook("Pod", "smoke", 0)
	broken.Manifest = "kind: [Pod"
	_, err := newPlan(&helmrelease.Release{Hooks: []*helmrelease.Hook{broken}}, nil)
	require.ErrorContains(t, err, "hook smoke (web/templates/smoke.yaml): ")
}

func TestATestIsInTheNamespaceThatItNamesElseInTheReleases(t *testing.T) {
	t.Parallel()
	elsewhere := hook("Pod", "elsewhere", 0)
	elsewhere.Manifest = "kind: Pod\nmetadata: {name: elsewhere, namespace: other}\n"
	p, err := newPlan(&helmrelease.Release{Namespace: "shop", Hooks: []*helmrelease.Hook{hook("Pod", "smoke", 0), elsewhere, hook("Pod", "too", 1)}}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"other", "shop"}, p.namespaces())
}
