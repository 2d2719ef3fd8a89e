package bus_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	return data
}

func TestACommandIsQueuedForItsWorkerAsProtobuf(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	r := newRelease()
	for name, row := range map[string]struct {
		cmd  *seatrialv1.Command
		want string
	}{
		"deploy":               {deployCommand(r, 1), "seatrial.command.execute." + r.Key()},
		"test":                 {testCommand(r, 2, ""), "seatrial.command.test." + r.Key()},
		"test in a named pool": {testCommand(r, 3, "gpu"), "seatrial.command.test-gpu." + r.Key()},
	} {
		require.NoError(t, c.PublishCommand(t.Context(), row.cmd), name)
		stored := messages(t, c, subject.StreamCommands, row.want)
		require.Len(t, stored, 1, name)
		require.Equal(t, wire.Protobuf, stored[0].Header.Get(wire.HeaderContentType), name)
		got := &seatrialv1.Command{}
		require.NoError(t, wire.Unmarshal(stored[0].Header, stored[0].Data, got), name)
		require.True(t, proto.Equal(row.cmd, got), name)
	}
	rollback := &seatrialv1.Command{Release: newRelease().String(), Number: 1, Action: &seatrialv1.Command_Rollback{Rollback: &seatrialv1.RollbackCommand{}}}
	require.NoError(t, c.PublishCommand(t.Context(), rollback))
	require.Len(t, messages(t, c, subject.StreamCommands, "seatrial.command.execute.>"), 2)
}

// It is the stream that holds this up, with the settings that provisioning gives it.
func testAdmission(t *testing.T, p place) {
	c := kittest.Connect(t, p.url)
	r := p.release(t)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)), "the same one again is no error")
	err := c.PublishCommand(t.Context(), deployCommand(r, 2))
	require.ErrorIs(t, err, bus.ErrSubjectTaken, "queued")
	require.ErrorContains(t, err, "command 2 of "+r.String())
	other := r
	other.Name = "other"
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(other, 1)), "another release is free")

	inWork, leave := make(chan struct{}, 2), make(chan struct{}, 3)
	start(t, func(ctx context.Context) error {
		return c.Consume(ctx, bus.ConsumeOptions{
			Stream: subject.StreamCommands, Durable: subject.ConsumerExecutor(r.Cluster), Slots: 2,
		}, func(context.Context, jetstream.Msg) error {
			inWork <- struct{}{}
			<-leave
			return nil
		})
	})
	receive(t, inWork, "the commands are in work")
	receive(t, inWork, "the commands are in work")
	require.ErrorIs(t, c.PublishCommand(t.Context(), deployCommand(r, 2)), bus.ErrSubjectTaken, "in work")
	leave <- struct{}{}
	leave <- struct{}{}
	eventually(t, func() bool { return !queued(t, c, r) }, "it is acknowledged")
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 2)))
	leave <- struct{}{}
}

func TestPublishCommandWaitsForRoomInTheStream(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	full := streamConfig(t, c, subject.StreamCommands)
	full.MaxBytes = 1
	_, err := c.JS.UpdateStream(t.Context(), full)
	require.NoError(t, err)
	r := newRelease()
	published := make(chan error, 1)
	go func() { published <- c.PublishCommand(t.Context(), deployCommand(r, 1)) }()
	sent := c.NC.Stats().OutMsgs
	eventually(t, func() bool { return c.NC.Stats().OutMsgs > sent+6 }, "it is tried again")
	require.Empty(t, published)
	full.MaxBytes = -1
	_, err = c.JS.UpdateStream(t.Context(), full)
	require.NoError(t, err)
	require.NoError(t, receive(t, published, "the end"))
	require.True(t, queued(t, c, r))
}

func TestTheSameCommandIsKnownAgainWhenTheStreamHasForgottenItsID(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	r := newRelease()
	_, err := c.JS.Publish(t.Context(), subject.CommandExecute(r), encode(t, deployCommand(r, 1)))
	require.NoError(t, err)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	require.Len(t, messages(t, c, subject.StreamCommands, subject.AllCommands), 1)
}

func TestDeleteCommandIsContentWhenTheCommandIsAcknowledgedMeanwhile(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	proxy := kittest.NewProxy(t, s.URL)
	held := proxy.HoldBefore(on("$JS.API.STREAM.MSG.DELETE."))
	deleting := kittest.Connect(t, proxy.URL)
	deleted := make(chan error, 1)
	go func() { deleted <- deleting.DeleteCommand(t.Context(), seatrialv1.CommandDeploy, "", r, 1) }()
	receive(t, held, "the deletion is on its way")
	start(t, executor(t, s.URL, "a", deploys("a")).Run)
	requireSettled(t, c, r, 1, "a")
	proxy.Resume()
	require.NoError(t, receive(t, deleted, "the end"))
}

func TestDeleteCommandTakesOutThatCommandOnly(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	r := newRelease()
	require.NoError(t, c.DeleteCommand(t.Context(), seatrialv1.CommandDeploy, "", r, 1), "a missing one is no error")
	for _, cmd := range []*seatrialv1.Command{deployCommand(r, 5), testCommand(r, 6, ""), testCommand(r, 7, "gpu")} {
		require.NoError(t, c.PublishCommand(t.Context(), cmd))
	}
	count := func(filter string) int { return len(messages(t, c, subject.StreamCommands, filter)) }

	require.NoError(t, c.DeleteCommand(t.Context(), seatrialv1.CommandDeploy, "", r, 4))
	require.Equal(t, 3, count(subject.AllCommands), "another number")
	require.NoError(t, c.DeleteCommand(t.Context(), seatrialv1.CommandTest, "gpu", r, 7))
	require.Equal(t, 0, count("seatrial.command.test-gpu.>"))
	require.NoError(t, c.DeleteCommand(t.Context(), seatrialv1.CommandTest, "", r, 6))
	require.Equal(t, 0, count("seatrial.command.test.>"))
	require.NoError(t, c.DeleteCommand(t.Context(), seatrialv1.CommandRollback, "", r, 5))
	require.Equal(t, 0, count(subject.AllCommands))
}

func TestACommandThatItsSubjectDoesNotNameIsADeadLetter(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	r := newRelease()
	start(t, executor(t, c.NC.ConnectedUrl(), "a", deploys("a")).Run)
	elsewhere, noAction := deployCommand(newRelease(), 1), deployCommand(r, 1)
	noAction.Action = nil
	for _, cmd := range []*seatrialv1.Command{elsewhere, testCommand(r, 1, ""), noAction} {
		before := len(messages(t, c, subject.StreamDead, subject.AllDead))
		msg := nats.NewMsg(subject.CommandExecute(r))
		msg.Header.Set(wire.HeaderContentType, wire.Protobuf)
		msg.Data = encode(t, cmd)
		require.NoError(t, c.Publish(t.Context(), msg, ""))
		eventually(t, func() bool { return !queued(t, c, r) }, "it leaves the queue")
		letters := messages(t, c, subject.StreamDead, subject.AllDead)
		require.Len(t, letters, before+1)
		require.Contains(t, letters[before].Header.Get(bus.HeaderDeadReason), "belongs on seatrial.command.")
	}
	require.Empty(t, kinds(t, c, r))
	require.Nil(t, ledgerRow(t, c, r))
}
