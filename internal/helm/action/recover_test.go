package action

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	helmrelease "helm.sh/helm/v3/pkg/release"
	helmtime "helm.sh/helm/v3/pkg/time"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// again is the order of the same command for its next holder.
func (w *world) again(cmd *pb.Command) Order {
	return Order{Command: cmd, Actor: kube.Actor{
		Service: "executor", Version: "test", Number: cmd.Number, Fence: 900 + uint64(cmd.Number), Gate: helmtest.Open{}, RequestTimeout: 10 * time.Second,
	}}
}

// change changes the newest record.
func (w *world) change(change func(*helmrelease.Release)) {
	w.Helper()
	all := w.records()
	change(all[len(all)-1])
	require.NoError(w, w.storage().Update(all[len(all)-1]))
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x"), "templates/test.yaml": hook("web-test", "test", "true")})
	var cmd *pb.Command
	keep := func(c *pb.Command) { cmd = c }

	r := w.deploy(chart, keep)
	w.done(r)
	recovered := w.done(w.runner.Recover(t.Context(), w.again(cmd)))
	require.True(t, recovered.Mutation.Recovered)
	recovered.Mutation.Recovered = false
	require.True(t, proto.Equal(r.Mutation, recovered.Mutation), "the same as was said, or would have been:\n%v\n%v", r.Mutation, recovered.Mutation)
	require.True(t, proto.Equal(r.Running, recovered.Running))

	never := w.order(&pb.Command{Action: cmd.Action}).Command
	w.failed(w.runner.Recover(t.Context(), w.again(never)), pb.ClassInterrupted, "before it made a record")

	w.done(w.deploy(chart, keep))
	w.change(func(rel *helmrelease.Release) { rel.Info.Status = helmrelease.StatusPendingUpgrade })
	f := w.failed(w.runner.Recover(t.Context(), w.again(cmd)), pb.ClassInterrupted, "revision 2 was pending-upgrade")
	require.True(t, f.Mutated)
	require.Equal(t, []string{"1 superseded", "2 failed"}, w.statuses())
	// Its holder may die before it can say so.
	w.failed(w.runner.Recover(t.Context(), w.again(cmd)), pb.ClassInterrupted)

	broken := pack(t, "1.0.1", files{"templates/note.yaml": note("x"), "templates/hook.yaml": hook("web-after", "post-upgrade", "exit 6")})
	r = w.deploy(broken, keep)
	w.failed(r, pb.ClassFailed, "exit code 6")
	recovered = w.runner.Recover(t.Context(), w.again(cmd))
	w.failed(recovered, pb.ClassFailed, "post-upgrade", "exit code 6")
	require.Equal(t, r.Mutation.QuarantineKey, recovered.Mutation.QuarantineKey)

	w.done(w.deploy(chart))
	w.done(w.rollback(1, "", keep))
	recovered = w.done(w.runner.Recover(t.Context(), w.again(cmd)))
	require.Equal(t, "rollback", recovered.Mutation.Action)
	require.EqualValues(t, 1, recovered.Mutation.TargetRevision)
	require.Equal(t, chart.Digest, recovered.Running.Digest)
}

// An upgrade inherits the labels of the record before it: a person's own looks stamped, with another's number.
func TestAPersonsUpgradeIsNotTakenForTheCommandsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	var cmd *pb.Command
	w.done(w.deploy(chart, func(c *pb.Command) { cmd = c }))
	helmtest.Deploy(t, w.client, w.namespace, "web", chart.Data) // as a person does
	require.Equal(t, []string{"1 superseded", "2 deployed"}, w.statuses())
	r := w.done(w.runner.Recover(t.Context(), w.again(cmd)))
	require.EqualValues(t, 1, r.Mutation.HelmRevision)
	require.EqualValues(t, 2, r.Running.HelmRevision)
	require.Empty(t, r.Running.Digest, "nobody knows what archive a person has deployed")
}

func TestAPendingRecordOfAFormerCommandIsTakenOverAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	w.done(w.deploy(chart))
	w.change(func(rel *helmrelease.Release) { rel.Info.Status = helmrelease.StatusPendingInstall })
	w.done(w.deploy(chart))
	require.Equal(t, []string{"1 failed", "2 deployed"}, w.statuses())
}

// begunByHand makes the newest record look like the work of a person that goes on.
func (w *world) begunByHand(at time.Time) {
	w.Helper()
	w.change(func(rel *helmrelease.Release) {
		rel.Info.Status, rel.Info.LastDeployed, rel.Labels = helmrelease.StatusPendingUpgrade, helmtime.Time{Time: at}, nil
	})
}

func TestSomebodyElsesPendingRecordIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	w.done(w.deploy(chart))
	w.begunByHand(time.Now())

	order := w.order(&pb.Command{Action: &pb.Command_Deploy{Deploy: &pb.DeployCommand{ChartDigest: chart.Digest, Upgrade: &pb.UpgradeOptions{Timeout: "60s"}}}})
	told := make(chan *pb.Failure, 1)
	order.Blocked = func(_ context.Context, f *pb.Failure) error { told <- f; return nil }
	done := make(chan *Result)
	go func() { done <- w.runner.Deploy(t.Context(), order, chart) }()
	f := <-told
	require.Equal(t, pb.ClassBlocked, f.Class)
	require.Contains(t, f.Reason, "revision 1 is pending-upgrade, begun by the program \"seatrial-test\"")
	require.Equal(t, []string{"1 pending-upgrade"}, w.statuses(), "untouched")
	w.change(func(rel *helmrelease.Release) { rel.Info.Status = helmrelease.StatusDeployed })
	w.done(<-done)
	require.Equal(t, []string{"1 superseded", "2 deployed"}, w.statuses())
}

func TestSomebodyElsesPendingRecordIsGivenUpAtTheTimeOutAndTakenOverLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/note.yaml": note("x")})
	w.done(w.deploy(chart))
	w.begunByHand(time.Now())
	brief := withUpgrade(func(o *pb.UpgradeOptions) { o.Timeout = "2s" })
	f := w.failed(w.deploy(chart, brief), pb.ClassBlocked, "it has not ended within the time-out of 2s")
	require.False(t, f.Mutated)
	require.Equal(t, []string{"1 pending-upgrade"}, w.statuses(), "untouched")
	w.done(w.deploy(chart, brief))
	require.Equal(t, []string{"1 failed", "2 deployed"}, w.statuses())
	require.Contains(t, w.records()[0].Info.Description, "taken over by command 3")
}

// closing is a gate that closes for ever when it is told to.
type closing struct{ closed chan struct{} }

var errClosed = errors.New("the lease is lost")

func (c closing) Check() error {
	select {
	case <-c.closed:
		return errClosed
	default:
		return nil
	}
}

func TestTheEndOfTheContextEndsTheWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	never := pack(t, "1.0.0", files{"templates/app.yaml": app("web", "sleep 1000", neverReady)})
	order := w.order(&pb.Command{Action: &pb.Command_Deploy{Deploy: &pb.DeployCommand{ChartDigest: never.Digest, Upgrade: &pb.UpgradeOptions{Timeout: "5m"}}}})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan *Result)
	go func() { done <- w.runner.Deploy(ctx, order, never) }()
	require.Eventually(t, func() bool { return len(w.records()) == 1 }, patience, tick)
	cancel(errors.New("the process shuts down"))
	f := w.failed(<-done, pb.ClassInterrupted, "the process shuts down")
	require.True(t, f.Mutated)
	require.Equal(t, []string{"1 failed"}, w.statuses(), "Helm has really ended")
	w.failed(w.runner.Recover(t.Context(), w.again(order.Command)), pb.ClassInterrupted)
}

func TestNothingIsMutatedBehindAClosedGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chart := pack(t, "1.0.0", files{"templates/app.yaml": app("web", "sleep 1000", neverReady)})
	order := w.order(&pb.Command{Action: &pb.Command_Deploy{Deploy: &pb.DeployCommand{ChartDigest: chart.Digest, Upgrade: &pb.UpgradeOptions{Timeout: "5m"}}}})
	gate := closing{make(chan struct{})}
	order.Actor.Gate = gate
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan *Result)
	go func() { done <- w.runner.Deploy(ctx, order, chart) }()
	require.Eventually(t, func() bool { return len(w.records()) == 1 }, patience, tick)
	close(gate.closed)
	cancel(errClosed)
	w.failed(<-done, pb.ClassInterrupted)
	require.Equal(t, []string{"1 pending-install"}, w.statuses(), "Helm could not even write down that it failed")
}
