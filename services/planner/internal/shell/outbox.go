package shell

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
)

// flush publishes the outbox of a state and clears it, until there is none. It returns the state without it, and
// bus.ErrConflict if somebody else has gone on from this state meanwhile, which takes the same publishing first.
func (s *Shell) flush(ctx context.Context, r subject.Release, state *pb.ReleaseState, revision uint64) (*pb.ReleaseState, uint64, error) {
	for len(state.GetOutbox()) > 0 {
		taken, err := s.publishAll(ctx, state.GetOutbox())
		if err != nil {
			return nil, 0, err
		}
		state = proto.CloneOf(state)
		state.Outbox = nil
		for _, number := range taken {
			step, err := s.decide(state, core.CommandTaken{Number: number})
			if err != nil {
				return nil, 0, err
			}
			state = step.State
		}
		// A crash before this line leaves the outbox to whoever comes next, and all of it is published again.
		if revision, err = s.releases.Put(ctx, r.Key(), state, revision); err != nil {
			return nil, 0, err
		}
		s.crash("outbox cleared")
	}
	return state, revision, nil
}

// publishAll publishes the entries in their order, and returns the numbers of the commands whose subject was taken: they
// keep nothing behind them waiting.
//
// Twice is harmless: the stream knows an outcome by its id; a settled request keeps its first last word; the end of a
// command finds its row done; and a command that is queued again is one that its worker has begun or done, or one
// below the highest number, which is dropped.
func (s *Shell) publishAll(ctx context.Context, outbox []*pb.OutboxEntry) (taken []uint32, err error) {
	for _, entry := range outbox {
		switch e := entry.GetEntry().(type) {
		case *pb.OutboxEntry_Command:
			err = s.publishCommand(ctx, e.Command)
			if errors.Is(err, bus.ErrSubjectTaken) {
				taken, err = append(taken, e.Command.GetNumber()), nil
			}
		case *pb.OutboxEntry_Outcome:
			err = s.publishOutcome(ctx, e.Outcome)
		case *pb.OutboxEntry_Settled:
			err = s.publishSettled(ctx, e.Settled)
		case *pb.OutboxEntry_End:
			err = s.conn.EndCommand(ctx, e.End)
		}
		if err != nil {
			return nil, err
		}
		s.crash("entry published")
	}
	return taken, nil
}

// publishCommand gives a command to its worker, and then records it.
func (s *Shell) publishCommand(ctx context.Context, cmd *pb.Command) error {
	if err := s.conn.PublishCommand(ctx, cmd); err != nil {
		return err
	}
	s.crash("command published")
	o := s.commanded(cmd)
	err := s.publishOutcome(ctx, o)
	if errors.Is(err, bus.ErrTooLarge) {
		// As JSON, values and annotations of control characters are six times as long. The record then does without.
		o.Message += "; too large to be recorded with its values and annotations"
		o.Command.GetDeploy().Values = nil
		for _, content := range []*pb.ChartRevision{o.Command.GetRequested(), o.Command.GetRunning(), o.Command.GetProven().GetContent()} {
			if content != nil {
				content.Annotations = nil
			}
		}
		err = s.publishOutcome(ctx, o)
	}
	return err
}

// publishOutcome says what the planner has done, also in its own log.
func (s *Shell) publishOutcome(ctx context.Context, o *pb.Outcome) error {
	if err := s.conn.PublishOutcome(ctx, o); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "outcome", "kind", o.GetKind(), "release", o.GetRelease(), "generation", o.GetGeneration(),
		"request", o.GetRequest(), "number", o.GetNumber(), "message", o.GetMessage(), "traceparent", o.GetTraceparent())
	return nil
}

// commanded returns the outcome that records a command: the work queue forgets it.
func (s *Shell) commanded(cmd *pb.Command) *pb.Outcome {
	return &pb.Outcome{
		Id:          fmt.Sprintf("%s/%d/%s", cmd.GetRelease(), cmd.GetNumber(), pb.KindCommanded),
		Kind:        pb.KindCommanded,
		Release:     cmd.GetRelease(),
		Generation:  cmd.GetGeneration(),
		Request:     cmd.GetRequest(),
		Number:      cmd.GetNumber(),
		Time:        cmd.GetIssuedAt(),
		Service:     "planner",
		Instance:    s.options.Instance,
		Traceparent: cmd.GetTraceparent(),
		Message:     fmt.Sprintf("command %d: %s", cmd.GetNumber(), describe(cmd)),
		Requested:   proto.CloneOf(cmd.GetRequested()),
		Running:     proto.CloneOf(cmd.GetRunning()),
		Command:     proto.CloneOf(cmd),
	}
}

func describe(cmd *pb.Command) string {
	switch action := cmd.GetAction().(type) {
	case *pb.Command_Deploy:
		return fmt.Sprintf("deploy %s %s", cmd.GetRequested().GetName(), cmd.GetRequested().GetVersion())
	case *pb.Command_Rollback:
		return fmt.Sprintf("roll back to revision %d", action.Rollback.GetToRevision())
	case *pb.Command_Test:
		return fmt.Sprintf("test revision %d", action.Test.GetHelmRevision())
	case *pb.Command_Uninstall:
		return "uninstall"
	default:
		return "unknown action"
	}
}

// publishSettled says the last word on a request, first to everyone, then to those who wait for it. A crash between the
// two, or before the outbox is cleared, has it said again with the same id.
func (s *Shell) publishSettled(ctx context.Context, o *pb.Outcome) error {
	if err := s.publishOutcome(ctx, o); err != nil {
		return err
	}
	s.crash("settled published")
	for {
		row, revision, err := s.requests.Get(ctx, o.GetRequest())
		switch {
		case errors.Is(err, bus.ErrNotFound):
			row = &pb.RequestRow{Release: o.GetRelease()} // it took more than 30 days
		case err != nil:
			return err
		case row.GetSettled() != nil:
			return nil
		}
		row.Settled = o
		if _, err = s.requests.Put(ctx, o.GetRequest(), row, revision); !errors.Is(err, bus.ErrConflict) {
			return err
		}
	}
}
