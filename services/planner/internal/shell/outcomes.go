package shell

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
)

// Outcomes handles what executors and testers report, until ctx ends.
func (s *Shell) Outcomes(ctx context.Context) error {
	return s.conn.Consume(ctx, bus.ConsumeOptions{
		Service: "planner", Stream: subject.StreamOutcomes, Durable: subject.ConsumerPlanner,
		Slots: s.options.Slots, Grace: s.options.Grace,
	}, s.handleOutcome)
}

func (s *Shell) handleOutcome(ctx context.Context, msg jetstream.Msg) error {
	kind, r, err := subject.ParseOutcome(msg.Subject())
	if err != nil {
		return bus.Dead(err)
	}
	o := &pb.Outcome{}
	if err := wire.UnmarshalKnown(msg.Headers(), msg.Data(), o); err != nil {
		return bus.Dead(err)
	}
	if o.GetKind() != kind || o.GetRelease() != r.String() {
		return bus.Dead(fmt.Errorf("outcome %q says %q of %q, its subject %q of %q", o.GetId(), o.GetKind(), o.GetRelease(), kind, r))
	}
	err = s.apply(ctx, r, func(context.Context, *pb.ReleaseState) (core.Input, error) {
		return core.OutcomeReceived{Outcome: o}, nil
	})
	if errors.Is(err, core.ErrInvalidTransition) {
		return bus.Dead(fmt.Errorf("outcome %s: %w", o.GetId(), err))
	}
	// A crash before the acknowledgement: the outcome comes again, and is one about no open command.
	s.crash("outcome applied")
	return err
}
