package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seatrial/seatrial/internal/kit/subject"
)

// UnreadOutcomes reports whether there is an outcome of the release that planners have not been given yet, or have not
// acknowledged.
func (c *Conn) UnreadOutcomes(ctx context.Context, r subject.Release) (bool, error) {
	outcomes, err := c.JS.Stream(ctx, subject.StreamOutcomes)
	if err != nil {
		return false, fmt.Errorf("unread outcomes of %s: %w", r, err)
	}
	planner, err := outcomes.Consumer(ctx, subject.ConsumerPlanner)
	if err != nil {
		return false, fmt.Errorf("unread outcomes of %s: %w", r, err)
	}
	info := planner.CachedInfo()
	if info.NumPending == 0 && info.NumAckPending == 0 {
		return false, nil
	}
	for _, kind := range plannerKinds {
		msg, err := outcomes.GetLastMsgForSubject(ctx, subject.Outcome(kind, r))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
		case err != nil:
			return false, fmt.Errorf("unread outcomes of %s: %w", r, err)
		case msg.Sequence > info.AckFloor.Stream:
			return true, nil
		}
	}
	return false, nil
}
