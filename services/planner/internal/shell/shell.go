// Package shell does what the core decides. It reads requests and outcomes, waits for deadlines and fetches charts, and
// brings each of these inputs to a release in the same way:
//
//  1. load the release's state, and first publish an outbox found in it
//  2. decide
//  3. write the new state by compare-and-set, with all that must be published in its outbox
//  4. publish the outbox
//  5. clear it, again by compare-and-set
//  6. acknowledge the input
//
// Any number of planners do so side by side. Who loses a compare-and-set loads and decides again. Whoever crashes, the
// next one goes on: before step 3 nothing has happened, and the message of the input comes again; after it the state
// says all that is left to do, each entry of the outbox may be published twice without harm, and the core knows an
// input that comes again.
package shell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

// Options of a shell.
type Options struct {
	Policy core.Policy
	Rules  request.Rules
	// Fetch fetches a packaged chart. The class of its error decides what becomes of the request.
	Fetch func(ctx context.Context, source *pb.ChartSource) (archive []byte, content *pb.ChartRevision, err error)
	// Instance is this planner's name in the outcomes that it publishes.
	Instance string
	// Slots is how many requests, and how many outcomes, are handled at once; Fetches how many charts are fetched.
	Slots, Fetches int
	// TakeOver is how long a state may stand still before another planner does what its writer should have done at
	// once: publish the outbox, or fetch the chart.
	TakeOver time.Duration
	// Grace is how long the handling of a message may go on when the planner is told to stop.
	Grace time.Duration
}

// Shell brings inputs to releases. Run all of Requests, Outcomes, Attend and Resolve.
type Shell struct {
	options  Options
	conn     *bus.Conn
	log      *slog.Logger
	releases *bus.Bucket[*pb.ReleaseState]
	requests *bus.Bucket[*pb.RequestRow]

	busy     locks
	resolves chan *pb.Request
	fetching set

	// crash is called at the points between which a planner can die. Tests make it die there.
	crash func(point string)
}

// New binds to the buckets.
func New(ctx context.Context, conn *bus.Conn, options Options, log *slog.Logger) (*Shell, error) {
	releases, err := bus.OpenBucket[*pb.ReleaseState](ctx, conn, subject.BucketReleases)
	if err != nil {
		return nil, err
	}
	requests, err := bus.OpenBucket[*pb.RequestRow](ctx, conn, subject.BucketRequests)
	if err != nil {
		return nil, err
	}
	return &Shell{
		options:  options,
		conn:     conn,
		log:      log,
		releases: releases,
		requests: requests,
		resolves: make(chan *pb.Request, 4*options.Fetches),
		crash:    func(string) {},
	}, nil
}

// conflictPause is how long the loser of a compare-and-set waits at most, so that two planners do not lose by turns.
const conflictPause = 50 * time.Millisecond

// nextInput returns what is to be decided on a state.
type nextInput func(context.Context, *pb.ReleaseState) (core.Input, error)

// apply brings an input to a release. Which one is asked after the state was loaded and its outbox published, and again
// after each lost compare-and-set, and is told the state: what an input makes certain then holds for the state that is
// decided on. A nil input is none.
//
// Inputs to one release wait for each other in this process, which would otherwise compete with itself.
func (s *Shell) apply(ctx context.Context, r subject.Release, next nextInput) error {
	unlock, err := s.busy.lock(ctx, r.Key())
	if err != nil {
		return err
	}
	defer unlock()
	for {
		err := s.applyOnce(ctx, r, next)
		if !errors.Is(err, bus.ErrConflict) {
			return err
		}
		if err := pause(ctx, rand.N(conflictPause)); err != nil {
			return err
		}
	}
}

// applyOnce is one try of apply; it returns bus.ErrConflict if it lost a compare-and-set.
func (s *Shell) applyOnce(ctx context.Context, r subject.Release, next nextInput) error {
	state, revision, err := s.load(ctx, r)
	if err != nil {
		return err
	}
	if state, revision, err = s.flush(ctx, r, state, revision); err != nil {
		return err
	}
	in, err := next(ctx, state)
	if in == nil || err != nil {
		return err
	}
	step, err := s.decide(state, in)
	if err != nil || !step.Changed {
		return err
	}
	if revision == 0 && nothingToKeep(step.State) {
		// A release that was never heard of, and a request that is refused: a state would stay for ever. The outbox needs
		// none, as the message that it comes from stays until it is published.
		_, err := s.publishAll(ctx, step.State.GetOutbox())
		return err
	}
	if revision, err = s.releases.Put(ctx, r.Key(), step.State, revision); err != nil {
		return err
	}
	s.crash("state written")
	if step.Resolve != nil {
		s.resolve(step.Resolve)
	}
	_, _, err = s.flush(ctx, r, step.State, revision)
	if errors.Is(err, bus.ErrConflict) {
		return nil // somebody else found the outbox and has published all of it
	}
	return err
}

// load returns the state of a release and its revision; an empty state and 0 for one that was never heard of.
func (s *Shell) load(ctx context.Context, r subject.Release) (*pb.ReleaseState, uint64, error) {
	state, revision, err := s.releases.Get(ctx, r.Key())
	if errors.Is(err, bus.ErrNotFound) {
		return &pb.ReleaseState{}, revision, nil
	}
	return state, revision, err
}

// decide asks the core, and signs what is to be published.
func (s *Shell) decide(state *pb.ReleaseState, in core.Input) (core.Step, error) {
	step, err := core.Decide(s.options.Policy, state, time.Now(), rand.Float64(), in)
	if err != nil {
		return core.Step{}, err
	}
	if received, ok := in.(core.RequestReceived); ok {
		if size, limit := s.size(step.State); size > limit {
			return s.decide(state, core.RequestRejected{Request: received.Request, Failure: tooLarge(received.Request, size, limit)})
		}
	}
	for _, entry := range step.State.GetOutbox() {
		for _, o := range []*pb.Outcome{entry.GetOutcome(), entry.GetSettled(), entry.GetEnd().GetOutcome()} {
			if o != nil {
				o.Instance = s.options.Instance
			}
		}
	}
	return step, nil
}

// size returns how large a state can get until its requests are settled, and how large it may get. All of a release is
// one value of a bucket, which is one message: what is accepted must leave room for the command that it leads to.
func (s *Shell) size(state *pb.ReleaseState) (size, limit int) {
	const chartRevisions = 8 * 32 << 10 // requested, running, proven... in state, command and outcomes, with their annotations
	command := 0
	for _, r := range []*pb.Request{state.GetActive().GetRequest(), state.GetWaiting(), state.GetWaitingTest()} {
		command = max(command, proto.Size(r))
	}
	const headers = 4 << 10
	return proto.Size(state) + command + chartRevisions, int(s.conn.NC.MaxPayload()) - headers
}

func tooLarge(r *pb.Request, size, limit int) *pb.Failure {
	return &pb.Failure{
		Class: pb.ClassRejected,
		Reason: fmt.Sprintf("%s request for %s cannot be accepted: with it, and the requests before it that are not settled yet, "+
			"the state of the release could have %d bytes; at most %d", r.GetVerb(), r.GetRelease(), size, limit),
		Next: "send it again under a new id once the requests before it are settled, or put large values into a ConfigMap and name it in valuesFrom",
	}
}

// nothingToKeep says that a state holds no more than a name and an outbox.
func nothingToKeep(state *pb.ReleaseState) bool {
	return proto.Equal(state, &pb.ReleaseState{Release: state.GetRelease(), Outbox: state.GetOutbox()})
}

// pause waits for d, or returns why ctx ended before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
