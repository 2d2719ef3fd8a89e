package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

// decode reads the body of a question that is no request.
func decode(q question, m proto.Message) error {
	if err := wire.Unmarshal(q.Headers(), q.Data(), m); err != nil {
		return refuse(codeBadRequest, err.Error(), "correct the body")
	}
	return nil
}

// get answers what is known of a release.
func (a *API) get(ctx context.Context, _ string, r subject.Release, q question) (proto.Message, error) {
	if err := decode(q, &pb.GetRequest{}); err != nil {
		return nil, err
	}
	state, _, err := a.releases.Get(ctx, r.Key())
	if errors.Is(err, bus.ErrNotFound) {
		return nil, unknown(r)
	}
	if err != nil {
		return nil, err
	}
	return core.View(state), nil
}

func unknown(r subject.Release) error {
	return refuse(codeNotFound, fmt.Sprintf("nothing is known of release %s", r), "check the name; a release is known from its first deploy on")
}

const (
	// longestWait is how long a request is waited for.
	longestWait = time.Hour
	// rowPoll is the pause between two looks for the row of a request that may be stored but not read yet.
	rowPoll = 100 * time.Millisecond
)

// tooMany answers those for whose wait there is no room.
func tooMany(context.Context, string, subject.Release, question) (proto.Message, error) {
	return nil, refuse(codeUnavailable, "nobody else can wait at this planner now", "ask again in a moment, or listen to seatrial.outcome.settled.>")
}

// wait answers when a request is settled.
func (a *API) wait(ctx context.Context, _ string, r subject.Release, q question) (proto.Message, error) {
	var body pb.WaitRequest
	if err := decode(q, &body); err != nil {
		return nil, err
	}
	if !request.WellFormed(body.GetRequest()) {
		return nil, refuse(codeBadRequest, "no request is named", `say which: {"request": "<id>"}`,
			&pb.Violation{Field: "request", Value: body.GetRequest(), Message: "must be the id of a request"})
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longestWait,
		refuse(codeTimeout, fmt.Sprintf("request %s was not settled within %s", body.GetRequest(), longestWait), "ask again"))
	defer cancel()
	row, err := a.row(ctx, body.GetRequest())
	if err == nil && row.GetRelease() != r.String() {
		err = bus.ErrNotFound
	}
	if errors.Is(err, bus.ErrNotFound) {
		return nil, refuse(codeNotFound, fmt.Sprintf("no request %s for release %s is known", body.GetRequest(), r),
			"check id and release; ids are remembered for 30 days")
	}
	if err == nil && row.GetSettled() == nil {
		row, err = a.settled(ctx, body.GetRequest())
	}
	if err != nil {
		return nil, err
	}
	return &pb.WaitAnswer{Settled: row.GetSettled()}, nil
}

// row returns the row of a request, and bus.ErrNotFound if nobody has asked for such a one.
//
// A row is written when a planner reads the request, some time after the answer that it is stored. So a request without
// one is unknown for certain only when the planners have read all that was stored before the question; until then it is
// waited for.
func (a *API) row(ctx context.Context, id string) (*pb.RequestRow, error) {
	row, _, err := a.requests.Get(ctx, id)
	if !errors.Is(err, bus.ErrNotFound) {
		return row, err
	}
	stream, err := a.conn.JS.Stream(ctx, subject.StreamRequests)
	if err != nil {
		return nil, err
	}
	stored := stream.CachedInfo().State.LastSeq
	consumer, err := stream.Consumer(ctx, subject.ConsumerPlanner)
	if err != nil {
		return nil, err
	}
	for allRead := false; ; {
		// The look for the row comes after the one that found all to be read, and a moment after it: it may ask a replica
		// that lags behind.
		row, _, err := a.requests.Get(ctx, id)
		if !errors.Is(err, bus.ErrNotFound) || allRead {
			return row, err
		}
		info, err := consumer.Info(ctx)
		if err != nil {
			return nil, err
		}
		allRead = info.AckFloor.Stream >= stored || info.NumPending == 0 && info.NumAckPending == 0
		select {
		case <-time.After(rowPoll):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// settled returns the row of a request as soon as it has a last word.
func (a *API) settled(ctx context.Context, id string) (settled *pb.RequestRow, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	err = a.requests.WatchKey(watching, id, func(_ string, row *pb.RequestRow, _ uint64) {
		if row.GetSettled() != nil {
			settled = row
			stop()
		}
	})
	if settled != nil {
		return settled, nil
	}
	return nil, err
}
