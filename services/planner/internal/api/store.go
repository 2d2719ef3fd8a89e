package api

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

// store checks a request and publishes it, byte for byte, on the subject where people can publish it themselves.
func (a *API) store(ctx context.Context, verb string, r subject.Release, q question) (proto.Message, error) {
	m := request.Message{Verb: verb, Release: r, Header: q.Headers(), Body: q.Data()}
	req, violations := a.options.Rules.Decode(m)
	if len(violations) > 0 {
		refusal := request.Refusal(req, violations)
		return nil, refuse(codeBadRequest, refusal.GetReason(), "correct what the violations name and send it again; nothing was stored", violations...)
	}
	id := req.GetId()
	if id == "" {
		id = nuid.Next()
	} else if stored, err := a.stored(ctx, id, r, m.Digest()); stored != nil || err != nil {
		return stored, err
	}
	msg := nats.NewMsg(subject.Request(verb, r))
	for _, name := range []string{wire.HeaderContentType, request.HeaderTraceparent} {
		if value := m.Get(name); value != "" {
			msg.Header.Set(name, value)
		}
	}
	msg.Data = m.Body
	ack, err := a.conn.JS.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	if err != nil {
		return nil, refuse(codeUnavailable, fmt.Sprintf("the stream did not confirm request %s: %v", id, err),
			fmt.Sprintf("send it again with the id %s: it is done once, also if it was stored", id))
	}
	if ack.Duplicate {
		// Stored a moment ago: no planner may have seen it yet.
		if err := a.sameAsStored(ctx, id, ack.Sequence, m.Digest()); err != nil {
			return nil, err
		}
	}
	return &pb.StoredAnswer{Request: id, Release: r.String(), Sequence: ack.Sequence, Duplicate: ack.Duplicate}, nil
}

// stored returns the answer to a request whose id is known: the one that the first had. It is nil for a new id.
func (a *API) stored(ctx context.Context, id string, r subject.Release, digest string) (proto.Message, error) {
	row, _, err := a.requests.Get(ctx, id)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case row.GetBodyDigest() != digest:
		return nil, used(id, row.GetSequence())
	}
	return &pb.StoredAnswer{Request: id, Release: r.String(), Sequence: row.GetSequence(), Duplicate: true}, nil
}

// sameAsStored compares a request with the one that the stream has under its id.
func (a *API) sameAsStored(ctx context.Context, id string, sequence uint64, digest string) error {
	requests, err := a.conn.JS.Stream(ctx, subject.StreamRequests)
	if err != nil {
		return err
	}
	msg, err := requests.GetMsg(ctx, sequence)
	if err != nil {
		return err
	}
	verb, r, err := subject.ParseRequest(msg.Subject)
	if err != nil || digest != (request.Message{Verb: verb, Release: r, Body: msg.Data}).Digest() {
		return used(id, sequence)
	}
	return nil
}

func used(id string, sequence uint64) error {
	what := fmt.Sprintf("id %s was used before, for another request (sequence %d in the stream; ids are shared by all releases)", id, sequence)
	return refuse(codeConflict, what, "choose another id; ids are remembered for 30 days",
		&pb.Violation{Field: "id", Value: id, Message: "was used before, for another request"})
}
