package shell

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

// Requests handles what people and pipelines publish, until ctx ends.
func (s *Shell) Requests(ctx context.Context) error {
	return s.conn.Consume(ctx, bus.ConsumeOptions{
		Service: "planner", Stream: subject.StreamRequests, Durable: subject.ConsumerPlanner,
		Slots: s.options.Slots, Grace: s.options.Grace,
	}, s.handleRequest)
}

func (s *Shell) handleRequest(ctx context.Context, msg jetstream.Msg) error {
	meta, err := msg.Metadata()
	if err != nil {
		return bus.Dead(err)
	}
	verb, r, err := subject.ParseRequest(msg.Subject())
	if err != nil {
		return bus.Dead(fmt.Errorf("nobody can be told, as the subject names no release: %w", err))
	}
	m := request.Message{
		Verb: verb, Release: r, Header: msg.Headers(), Body: msg.Data(),
		Sequence: meta.Sequence.Stream, Received: meta.Timestamp,
	}
	req, violations := s.options.Rules.Decode(m)
	digest := m.Digest()
	err = s.apply(ctx, r, func(ctx context.Context, _ *pb.ReleaseState) (core.Input, error) {
		whose, err := s.claim(ctx, req, digest)
		if whose == claimTaken {
			// The id belongs to another request, which has its own last word. This one is known by its sequence, of which
			// there is no other.
			violations = append(violations, &pb.Violation{Field: "id", Value: req.GetId(), Message: "was used before, for another request"})
			req.Id = request.SequenceID(req.GetSequence())
			whose, err = s.claim(ctx, req, digest)
		}
		switch {
		case err != nil:
			return nil, err
		case whose != claimMine:
			return nil, nil
		case len(violations) > 0:
			return core.RequestRejected{Request: req, Failure: request.Refusal(req, violations)}, nil
		default:
			return core.RequestReceived{Request: req}, nil
		}
	})
	if errors.Is(err, core.ErrInvalidTransition) {
		return bus.Dead(err)
	}
	s.crash("request applied")
	return err
}

// claim is what became of a claim to an id.
type claim int

const (
	claimMine    claim = iota // it is this message's, and the request is not settled yet
	claimSettled              // it is this message's, and it is settled
	claimRepeat               // another message with the same body has it
	claimTaken                // another request has it
)

// claim notes that a request's id belongs to this message, the first one that comes with it.
//
// It writes the row also when it is there already: Get may read from a replica that lags behind, but a compare-and-set
// succeeds only on what is true. As the outbox of the state was published before, a row that is not settled then means
// that this state, or a newer one, has yet to settle the request. So a message that comes again, because its planner
// died before it could acknowledge it, never starts the request anew after it was settled.
func (s *Shell) claim(ctx context.Context, req *pb.Request, digest string) (claim, error) {
	for {
		row, revision, err := s.requests.Get(ctx, req.GetId())
		switch {
		case errors.Is(err, bus.ErrNotFound):
			row = &pb.RequestRow{Release: req.GetRelease(), BodyDigest: digest, Sequence: req.GetSequence()}
		case err != nil:
			return 0, err
		case row.GetBodyDigest() != digest:
			return claimTaken, nil
		case row.GetSequence() != req.GetSequence():
			return claimRepeat, nil
		case row.GetSettled() != nil:
			return claimSettled, nil
		}
		_, err = s.requests.Put(ctx, req.GetId(), row, revision)
		if errors.Is(err, bus.ErrConflict) {
			continue
		}
		// A crash from here on until the state is written: the message comes again and finds the row to be its own.
		s.crash("id claimed")
		return claimMine, err
	}
}
