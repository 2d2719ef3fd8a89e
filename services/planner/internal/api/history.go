package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
)

// How many last words stand in one answer, unless the question says otherwise, and at most.
const (
	told     = 20
	mostTold = 200
)

// history answers what ran as a release, and what became of the requests: the revisions that the planner remembers, and the
// last words as the audit trail has them, newest first.
func (a *API) history(ctx context.Context, _ string, r subject.Release, q question) (proto.Message, error) {
	var body pb.HistoryRequest
	if err := decode(q, &body); err != nil {
		return nil, err
	}
	limit, err := pageLimit(body.GetLimit(), told, mostTold)
	if err != nil {
		return nil, err
	}
	before, err := strconv.ParseUint(body.GetContinue(), 10, 64)
	if body.GetContinue() != "" && err != nil {
		return nil, badContinue(body.GetContinue())
	}
	answer := &pb.HistoryAnswer{Release: r.String()}
	room := a.room()
	state, _, err := a.releases.Get(ctx, r.Key())
	known := !errors.Is(err, bus.ErrNotFound)
	if err != nil && known {
		return nil, err
	}
	if body.GetContinue() == "" {
		answer.Revisions = core.View(state).GetRevisions()
		slices.Reverse(answer.Revisions)
		size, err := sizeOf(answer)
		if err != nil {
			return nil, err
		}
		room -= size
	}
	outcomes, err := a.conn.JS.Stream(ctx, subject.StreamOutcomes)
	if err != nil {
		return nil, err
	}
	sequences, err := a.settledBefore(ctx, outcomes, r, before)
	if err != nil {
		return nil, err
	}
	if !known && len(sequences) == 0 {
		return nil, unknown(r)
	}
	for i, sequence := range slices.Backward(sequences) {
		o, size, err := lastWord(ctx, outcomes, sequence)
		if err != nil {
			return nil, err
		}
		if n := len(answer.Settled); n == limit || n > 0 && size > room {
			answer.Continue = strconv.FormatUint(sequences[i+1], 10)
			break
		}
		room -= size
		answer.Settled = append(answer.Settled, o)
	}
	return answer, nil
}

// settledBefore returns where the stream has the last words on a release's requests, oldest first, up to the one at before;
// 0 is all. The stream can be read forwards only, so all are gone through, without their bodies.
func (a *API) settledBefore(ctx context.Context, outcomes jetstream.Stream, r subject.Release, before uint64) ([]uint64, error) {
	consumer, err := outcomes.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject.Outcome(pb.KindSettled, r)}, HeadersOnly: true,
	})
	if err != nil {
		return nil, err
	}
	info, err := consumer.Info(ctx)
	if err != nil || info.NumPending == 0 {
		return nil, err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	var found []uint64
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		if before > 0 && meta.Sequence.Stream >= before {
			return found, nil
		}
		found = append(found, meta.Sequence.Stream)
		if meta.NumPending == 0 {
			return found, nil
		}
	}
}

// lastWord returns an outcome of the stream as it is listed, and how many bytes it has.
func lastWord(ctx context.Context, outcomes jetstream.Stream, sequence uint64) (*pb.Outcome, int, error) {
	msg, err := outcomes.GetMsg(ctx, sequence)
	if err != nil {
		return nil, 0, err
	}
	o := &pb.Outcome{}
	if err := wire.UnmarshalKnown(msg.Header, msg.Data, o); err != nil {
		return nil, 0, fmt.Errorf("outcome at %d: %w", sequence, err)
	}
	for _, chart := range []*pb.ChartRevision{o.GetRequested(), o.GetRunning()} {
		if chart != nil {
			chart.Annotations = nil
		}
	}
	size, err := sizeOf(o)
	return o, size, err
}
