package run

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	helmrelease "helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/seatrial/seatrial/internal/helm/release"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// ErrUnknownTest is returned for a filter that names no test of the revision. Nothing runs then: a mistyped name must
// not run everything.
var ErrUnknownTest = errors.New("unknown test")

// step is one test hook of a revision: a test (a Pod or a Job) or a fixture (any other kind).
type step struct {
	hook   *helmrelease.Hook
	object *unstructured.Unstructured
}

// barrier holds the steps of one weight. Its fixtures are created before its tests start, and all of it ends before the
// next barrier begins.
type barrier struct {
	fixtures []step
	tests    []step
}

// plan is what a run will do, in order.
type plan struct {
	barriers    []barrier
	notSelected []step
	// tests counts those that will run.
	tests int
}

// newPlan orders the test hooks of rel: by weight, within a weight by name as Helm does, fixtures first. Filters choose
// tests, never fixtures; a plan without a selected test has no barriers at all.
func newPlan(rel *helmrelease.Release, filters *seatrialv1.TestFilters) (plan, error) {
	hooks := slices.Clone(release.TestHooks(rel))
	slices.SortStableFunc(hooks, func(a, b *helmrelease.Hook) int {
		if a.Weight != b.Weight {
			return a.Weight - b.Weight
		}
		return strings.Compare(a.Name, b.Name)
	})
	if err := checkFilters(hooks, filters); err != nil {
		return plan{}, err
	}

	var p plan
	for i, hook := range hooks {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(hook.Manifest), &object.Object); err != nil {
			return plan{}, fmt.Errorf("hook %s (%s): %w", hook.Name, hook.Path, err)
		}
		if object.GetNamespace() == "" {
			object.SetNamespace(rel.Namespace)
		}
		if i == 0 || hook.Weight != hooks[i-1].Weight {
			p.barriers = append(p.barriers, barrier{})
		}
		current := &p.barriers[len(p.barriers)-1]
		s := step{hook: hook, object: object}
		switch {
		case !release.IsTest(hook):
			current.fixtures = append(current.fixtures, s)
		case selected(hook.Name, filters):
			current.tests = append(current.tests, s)
			p.tests++
		default:
			p.notSelected = append(p.notSelected, s)
		}
	}
	if p.tests == 0 {
		p.barriers = nil
	}
	return p, nil
}

func checkFilters(hooks []*helmrelease.Hook, filters *seatrialv1.TestFilters) error {
	var known []string
	for _, hook := range hooks {
		if release.IsTest(hook) {
			known = append(known, hook.Name)
		}
	}
	for _, name := range slices.Concat(filters.GetName(), filters.GetNotName()) {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%w %q: the revision has %s", ErrUnknownTest, name, list(known))
		}
	}
	return nil
}

func selected(name string, filters *seatrialv1.TestFilters) bool {
	if len(filters.GetName()) > 0 && !slices.Contains(filters.GetName(), name) {
		return false
	}
	return !slices.Contains(filters.GetNotName(), name)
}

func list(names []string) string {
	if len(names) == 0 {
		return "no tests"
	}
	return strings.Join(names, ", ")
}
