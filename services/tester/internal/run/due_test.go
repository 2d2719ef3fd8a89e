package run

import (
	"testing"

	"github.com/stretchr/testify/require"
	helmrelease "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestDeletePoliciesAreHelmsAndNothingRunsOn(t *testing.T) {
	t.Parallel()
	const (
		before    = helmrelease.HookBeforeHookCreation
		succeeded = helmrelease.HookSucceeded
		failed    = helmrelease.HookFailed
	)
	type policies = []helmrelease.HookDeletePolicy
	for _, row := range []struct {
		name     string
		kind     string
		policies policies
		pod      corev1.PodPhase
		result   string
		due      bool
	}{
		{"passed, no policy", "Pod", nil, corev1.PodSucceeded, pb.VerdictPassed, false},
		{"passed, hook-succeeded", "Pod", policies{before, succeeded}, corev1.PodSucceeded, pb.VerdictPassed, true},
		{"passed, hook-failed", "Pod", policies{failed}, corev1.PodSucceeded, pb.VerdictPassed, false},
		{"failed, no policy", "Pod", nil, corev1.PodFailed, pb.VerdictFailed, false},
		{"failed, hook-succeeded", "Pod", policies{succeeded}, corev1.PodFailed, pb.VerdictFailed, false},
		{"failed, hook-failed", "Pod", policies{failed}, corev1.PodFailed, pb.VerdictFailed, true},
		{"out of time and still running", "Pod", nil, corev1.PodRunning, pb.VerdictTimedOut, true},
		{"stuck and still waiting", "Pod", policies{succeeded}, corev1.PodPending, pb.VerdictErrored, true},
		{"called off, still running", "Pod", nil, corev1.PodRunning, pb.VerdictCancelled, true},
		{"called off, without a result", "Pod", nil, corev1.PodRunning, "", true},
		{"a fixture, no policy", "ConfigMap", nil, "", "", false},
		{"a fixture, hook-succeeded", "ConfigMap", policies{succeeded}, "", "", true},
		{"a fixture, hook-failed", "ConfigMap", policies{failed}, "", "", false},
		{"a definition, whose deletion would take all of its kind", "CustomResourceDefinition", policies{succeeded}, "", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			h := hook(row.kind, "smoke", 0, row.policies...)
			e := &execution{watcher: newWatcher(), results: map[*helmrelease.Hook]*pb.TestResult{}}
			if row.pod != "" {
				seen := pod(corev1.PodStatus{Phase: row.pod})
				seen.UID = "a"
				e.watcher.see(seen)
			}
			if row.result != "" {
				e.results[h] = &pb.TestResult{Phase: row.result}
			}
			require.Equal(t, row.due, e.due(placed{step: step{hook: h}, uid: "a"}))
		})
	}
}

func TestWithoutAPolicyOnlyTheObjectBeforeIsDeleted(t *testing.T) {
	t.Parallel()
	require.True(t, deletes(hook("Pod", "smoke", 0), helmrelease.HookBeforeHookCreation))
	require.False(t, deletes(hook("Pod", "smoke", 0, helmrelease.HookSucceeded), helmrelease.HookBeforeHookCreation))
	require.False(t, deletes(hook("CustomResourceDefinition", "kinds", 0), helmrelease.HookBeforeHookCreation))
}
