package action

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestRollbackPutsTheContentOfARevisionBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := pack(t, "1.0.0", files{"templates/note.yaml": note("x")}), pack(t, "2.0.0", files{"templates/note.yaml": note("x")})
	first := w.done(w.deploy(one, withValues(t, map[string]any{"text": "a"})))
	w.done(w.deploy(two, withValues(t, map[string]any{"text": "b"})))
	w.done(w.deploy(two, withValues(t, map[string]any{"text": "c"})))

	r := w.done(w.rollback(1, first.Mutation.ManifestDigest))
	require.Equal(t, &pb.Mutation{
		Action: "rollback", FromRevision: 3, TargetRevision: 1, HelmRevision: 4, ManifestDigest: first.Mutation.ManifestDigest,
	}, r.Mutation)
	require.Equal(t, "1.0.0", r.Requested.Version, "the target's, by its record")
	require.Equal(t, "1.0.0", r.Running.Version)
	require.Equal(t, one.Digest, r.Running.Digest)
	require.Equal(t, "c0ffee", r.Running.Annotations["commit_sha"])
	require.Equal(t, "a", w.configMap("x").Data["text"])
	require.Equal(t, []string{"1 superseded", "2 superseded", "3 superseded", "4 deployed"}, w.statuses())

	r = w.done(w.rollback(3, "", func(cmd *pb.Command) {
		cmd.Requested = &pb.ChartRevision{Name: "web", Version: "9.9.9"}
		cmd.GetRollback().FailedRevision = 4
	}))
	require.Equal(t, "9.9.9", r.Requested.Version, "nobody asked for the target")
	require.EqualValues(t, 4, r.Mutation.FailedRevision)
	require.Equal(t, two.Digest, r.Running.Digest)
}

func TestRollbackToWhatIsNotWhatItWasIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	first := w.done(w.deploy(chart, withValues(t, map[string]any{"text": "a"})))
	w.done(w.deploy(chart, withValues(t, map[string]any{"text": "b"})))

	f := w.failed(w.rollback(7, ""), pb.ClassRejected, "revision 7 has no record", "the oldest is 1, the newest 2")
	require.False(t, f.Mutated)

	changed := w.records()[0]
	changed.Manifest += "# somebody was here\n"
	require.NoError(t, w.storage().Update(changed))
	f = w.failed(w.rollback(1, first.Mutation.ManifestDigest), pb.ClassFailed, "revision 1 is not what it was")
	require.False(t, f.Mutated)
	require.Equal(t, []string{"1 superseded", "2 deployed"}, w.statuses())
	require.Equal(t, "b", w.configMap("x").Data["text"])
}

// Helm leaves `pending-rollback` behind when a rollback's hook fails, which blocks every later action.
func TestARollbackWhoseHookFailsIsNotLeftPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.done(w.deploy(pack(t, "1.0.0", files{
		"templates/note.yaml": note("x"), "templates/hook.yaml": hook("web-back", "post-rollback", "exit 5"),
	})))
	two := pack(t, "2.0.0", files{"templates/note.yaml": note("x")})
	w.done(w.deploy(two))
	r := w.rollback(1, first.Mutation.ManifestDigest)
	f := w.failed(r, pb.ClassFailed, "hook Pod "+w.namespace+"/web-back", "exit code 5")
	require.True(t, f.Mutated)
	require.EqualValues(t, 3, r.Mutation.HelmRevision)
	require.Equal(t, "2.0.0", r.Running.Version)
	require.Equal(t, []string{"1 superseded", "2 deployed", "3 failed"}, w.statuses())
	w.done(w.deploy(two))
}
