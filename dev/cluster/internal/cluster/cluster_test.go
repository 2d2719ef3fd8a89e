package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

func TestNameOr(t *testing.T) {
	t.Parallel()
	first, err := nameOr("")
	require.NoError(t, err)
	second, err := nameOr("")
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	for _, good := range []string{first, "a", "demo-2", strings.Repeat("a", 40)} {
		name, err := nameOr(good)
		require.NoError(t, err)
		require.Equal(t, good, name)
	}
	for _, bad := range []string{"Demo", "a/b", "..", "-a", "a-", "a b", strings.Repeat("a", 41)} {
		_, err := nameOr(bad)
		require.ErrorContains(t, err, "is no name for a cluster")
	}
}

func TestExplainShowsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	require.NoError(t, node.Reset(state))
	path := node.Log(state, node.Etcd)
	failure := &node.ProgramError{Program: node.Etcd, Message: "etcd ended: exit status 1"}

	require.NoError(t, os.WriteFile(path, []byte("the one line\n"), 0o600))
	require.EqualError(t, explain(state, failure), "etcd ended: exit status 1\n--- the end of "+path+":\nthe one line\n---")

	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("long ago\n", 1000)+"just now\n"), 0o600))
	explained := explain(state, failure).Error()
	require.Less(t, len(explained), 2*tailSize)
	require.Contains(t, explained, ":\nlong ago\n")
	require.True(t, strings.HasSuffix(explained, "\njust now\n---"))

	require.Equal(t, "no log", explain(state, &node.ProgramError{Message: "no log"}).Error())
}

func TestProgress(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	told := newProgress(&out, 2)
	told.step("one")
	told.note("more of %s", "one")
	told.step("two")
	require.Regexp(t, `^\[1/2\] one \(0\.\d s\)\n      more of one\n\[2/2\] two \(0\.\d s\)\n$`, out.String())
}

func TestOpenStateIsAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old := filepath.Join(dir, "etcd", "old")
	theirs := filepath.Join(dir, "notes")
	require.NoError(t, os.MkdirAll(old, 0o700))
	require.NoError(t, os.WriteFile(theirs, nil, 0o600))

	opened, err := openState(dir, "name")
	require.NoError(t, err)
	require.NoDirExists(t, old)
	require.FileExists(t, theirs)
	_, err = openState(dir, "other")
	require.ErrorContains(t, err, "another cluster keeps its state in "+dir)

	require.NoError(t, opened.close())
	require.DirExists(t, dir)
}

func TestSchedulable(t *testing.T) {
	t.Parallel()
	ready := func(status corev1.ConditionStatus) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: "why"}}
	}
	for name, test := range map[string]struct {
		conditions []corev1.NodeCondition
		taints     []corev1.Taint
		want       string
	}{
		"new":       {nil, nil, "the node has no condition yet"},
		"not ready": {ready(corev1.ConditionFalse), nil, "the node is not ready: why"},
		"tainted":   {ready(corev1.ConditionTrue), []corev1.Taint{{Key: "not-ready"}}, "the node has the taint not-ready still"},
		"ready":     {ready(corev1.ConditionTrue), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := schedulable(&corev1.Node{
				Spec: corev1.NodeSpec{Taints: test.taints}, Status: corev1.NodeStatus{Conditions: test.conditions},
			})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}
