package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// PublishCommand queues a command for its worker. It returns nil also when this very command is queued already, and
// ErrSubjectTaken while another one is.
func (c *Conn) PublishCommand(ctx context.Context, cmd *seatrialv1.Command) error {
	release, err := subject.ParseRelease(cmd.GetRelease())
	if err != nil {
		return fmt.Errorf("publish command %d: %w", cmd.GetNumber(), err)
	}
	msg := nats.NewMsg(subjectOf(cmd, release))
	msg.Header.Set(wire.HeaderContentType, wire.Protobuf)
	if msg.Data, err = proto.Marshal(cmd); err != nil {
		return fmt.Errorf("publish command %d of %s: %w", cmd.GetNumber(), release, err)
	}
	id := fmt.Sprintf("%s/%d", release, cmd.GetNumber())
	for pause := newBackoff(); ; {
		err := c.Publish(ctx, msg, id)
		if !isCode(err, codeStoreFailed) {
			return err
		}
		_, queued, lookup := c.queuedCommand(ctx, msg.Subject)
		switch {
		case errors.Is(lookup, ErrNotFound): // acknowledged a moment ago, or it is the whole stream that is full
		case lookup != nil:
			return lookup
		case queued.GetNumber() == cmd.GetNumber():
			return nil
		default:
			return fmt.Errorf("publish command %d of %s: %w: command %d", cmd.GetNumber(), release, ErrSubjectTaken, queued.GetNumber())
		}
		if cause := c.pause(ctx, pause.step()); cause != nil {
			return fmt.Errorf("%w (%w)", err, cause)
		}
	}
}

// subjectOf returns the subject of a command's worker.
func subjectOf(cmd *seatrialv1.Command, release subject.Release) string {
	if test := cmd.GetTest(); test != nil {
		return subject.CommandTest(test.GetOptions().GetPool(), release)
	}
	return subject.CommandExecute(release)
}

// DeleteCommand takes a command out of its queue, be it in work or not. pool is that of a test command. It returns nil
// when the command is not there any more.
func (c *Conn) DeleteCommand(ctx context.Context, kind, pool string, r subject.Release, number uint32) error {
	name := subject.CommandExecute(r)
	if kind == seatrialv1.CommandTest {
		name = subject.CommandTest(pool, r)
	}
	if err := c.deleteQueued(ctx, name, number); err != nil {
		return fmt.Errorf("delete command %d of %s: %w", number, r, err)
	}
	return nil
}

// deleteQueued deletes the command on a subject if it has that number.
func (c *Conn) deleteQueued(ctx context.Context, name string, number uint32) error {
	commands, err := c.JS.Stream(ctx, subject.StreamCommands)
	if err != nil {
		return err
	}
	var failure error
	for {
		sequence, queued, err := c.queuedCommand(ctx, name)
		switch {
		case errors.Is(err, ErrNotFound), err == nil && queued.GetNumber() != number:
			return nil
		case err != nil:
			return err
		case failure != nil:
			return failure
		}
		failure = commands.DeleteMsg(ctx, sequence)
		// The answer is the same whether it was acknowledged a moment ago or must not be deleted: look again.
		if !errors.Is(failure, jetstream.ErrMsgDeleteUnsuccessful) {
			return failure
		}
	}
}

// queuedCommand returns the command that is on a subject, as the stream's leader knows it.
func (c *Conn) queuedCommand(ctx context.Context, name string) (sequence uint64, _ *seatrialv1.Command, err error) {
	commands, err := c.JS.Stream(ctx, subject.StreamCommands)
	if err != nil {
		return 0, nil, fmt.Errorf("command on %s: %w", name, err)
	}
	msg, err := commands.GetLastMsgForSubject(ctx, name)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil, fmt.Errorf("command on %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("command on %s: %w", name, err)
	}
	cmd := &seatrialv1.Command{}
	if err := wire.Unmarshal(msg.Header, msg.Data, cmd); err != nil {
		return 0, nil, fmt.Errorf("command on %s: %w", name, err)
	}
	return msg.Sequence, cmd, nil
}
