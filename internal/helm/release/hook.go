package release

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	helmrelease "helm.sh/helm/v3/pkg/release"
)

// ManifestDigest returns sha256:<hex> over what a release is made of: its manifest and its hooks. What Helm notes in the
// hooks when they run is left out, so that the digest stays what it was, and that of a rollback is its target's.
func ManifestDigest(rel *helmrelease.Release) string {
	content := struct {
		Manifest string
		Hooks    []hook
	}{Manifest: rel.Manifest}
	for _, h := range rel.Hooks {
		content.Hooks = append(content.Hooks, hook{
			Name: h.Name, Kind: h.Kind, Path: h.Path, Manifest: h.Manifest,
			Events: h.Events, Weight: h.Weight, DeletePolicies: deletePolicies(h),
		})
	}
	data, err := json.Marshal(content)
	if err != nil {
		panic(err) // there is nothing in it that JSON cannot say
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// hook is a hook without what has happened to it.
type hook struct {
	Name, Kind, Path, Manifest string
	Events                     []helmrelease.HookEvent
	Weight                     int
	DeletePolicies             []helmrelease.HookDeletePolicy
}

// deletePolicies returns when a hook's object is deleted. A hook that does not say has Helm's default; Helm writes it into
// the record only when it runs the hook.
func deletePolicies(h *helmrelease.Hook) []helmrelease.HookDeletePolicy {
	if len(h.DeletePolicies) == 0 {
		return []helmrelease.HookDeletePolicy{helmrelease.HookBeforeHookCreation}
	}
	return h.DeletePolicies
}

// TestHooks returns the test hooks of a release, tests and fixtures.
func TestHooks(rel *helmrelease.Release) []*helmrelease.Hook {
	return slices.DeleteFunc(slices.Clone(rel.Hooks), func(h *helmrelease.Hook) bool {
		return !slices.Contains(h.Events, helmrelease.HookTest)
	})
}

// IsTest says that a test hook is a test: a Pod or a Job. Any other kind is a fixture, which is created and never
// counted.
func IsTest(h *helmrelease.Hook) bool { return h.Kind == "Pod" || h.Kind == "Job" }

// CountTests returns how many tests a release has.
func CountTests(rel *helmrelease.Release) int {
	n := 0
	for _, h := range TestHooks(rel) {
		if IsTest(h) {
			n++
		}
	}
	return n
}
