package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Worker works on the commands of one durable consumer, as executor or tester: each command by one holder at a time,
// with one final outcome, however often it is delivered and whoever dies in between.
type Worker struct {
	Conn *Conn
	// Service and Instance name this process in leases, in the ledger and in outcomes.
	Service  string
	Instance string
	// Durable is the consumer of SEATRIAL_COMMANDS.
	Durable string
	// Slots is how many commands are worked on at once.
	Slots int
	// LeaseTTL is how long after its last sign of life a holder is taken for dead: whole seconds.
	LeaseTTL time.Duration
	// RequestTimeout is how long a mutating request can take at most: half of LeaseTTL or less.
	RequestTimeout time.Duration
	// Grace is how long work may go on once the process is told to stop.
	Grace time.Duration
	Log   *slog.Logger

	// Do works on a command and returns its final outcome. An error says that nothing is decided: the command is
	// handed back, and whoever gets it next finds it begun. ctx ends with ErrLeaseLost or ErrTakenOver when the claim
	// ends, and with ErrEnded when the planner has ended the command: whatever Do returns is then dropped. It ends with
	// ErrShutdown when the grace is over.
	Do func(ctx context.Context, c *Claim) (*seatrialv1.Outcome, error)

	// patience is how long Do may go on when its context has ended; 0 is a minute.
	patience time.Duration
}

// Validate checks the numbers.
func (w *Worker) Validate() error {
	switch {
	case w.Slots < 1:
		return fmt.Errorf("slots %d: want at least 1", w.Slots)
	case w.LeaseTTL < time.Second || w.LeaseTTL%time.Second != 0: // the server cuts fractions off
		return fmt.Errorf("lease TTL %s: want whole seconds, at least 1s", w.LeaseTTL)
	case w.RequestTimeout <= 0 || w.RequestTimeout > w.LeaseTTL/2: // renewals come at each quarter
		return fmt.Errorf("request time-out %s: want more than 0 and at most half of the lease TTL %s", w.RequestTimeout, w.LeaseTTL)
	}
	return nil
}

// Run works until ctx ends and everything in work has ended. It returns ErrStuck, once the rest has ended or the grace is
// over, when Do does not end with its context: a template may take for ever.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Validate(); err != nil {
		return err
	}
	ledger, err := OpenBucket[*seatrialv1.LedgerRow](ctx, w.Conn, subject.BucketLedger)
	if err != nil {
		return err
	}
	leases, err := OpenBucket[*seatrialv1.Lease](ctx, w.Conn, subject.BucketLeases)
	if err != nil {
		return err
	}
	leases.patience = min(leases.patience, w.LeaseTTL/8)
	r := &run{Worker: w, ledger: ledger, leases: leases, stuck: make(chan error, w.Slots)}
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	consumed := make(chan struct{})
	go func() {
		defer close(consumed)
		err = w.Conn.Consume(consuming, ConsumeOptions{
			Service: w.Service, Stream: subject.StreamCommands, Durable: w.Durable, Slots: w.Slots, Grace: w.Grace,
		}, r.handle)
	}()
	select {
	case <-consumed:
		return err
	case err := <-r.stuck:
		stop()
		select {
		case <-consumed: // it has ended after all
		case <-time.After(w.Grace + lastWords):
		}
		return err
	}
}

// run is a worker with its buckets.
type run struct {
	*Worker
	ledger *Bucket[*seatrialv1.LedgerRow]
	leases *Bucket[*seatrialv1.Lease]
	stuck  chan error
}

// handle looks into the ledger what is to be done about a command, and does it.
func (r *run) handle(ctx context.Context, msg jetstream.Msg) error {
	cmd := &seatrialv1.Command{}
	if err := wire.Unmarshal(msg.Headers(), msg.Data(), cmd); err != nil {
		return Dead(err)
	}
	release, err := subject.ParseRelease(cmd.GetRelease())
	if err != nil {
		return Dead(err)
	}
	if want := subjectOf(cmd, release); msg.Subject() != want || cmd.GetAction() == nil {
		return Dead(fmt.Errorf("command %d on %s says %T of %s: belongs on %s", cmd.GetNumber(), msg.Subject(), cmd.GetAction(), release, want))
	}
	log := r.Log.With("release", release.String(), "number", cmd.GetNumber())
	for {
		row, revision, err := r.ledger.Get(ctx, release.Key())
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		switch {
		case row.GetNumber() > cmd.GetNumber():
			log.InfoContext(ctx, "dropped: a later command was begun", "begun", row.GetNumber())
			return nil
		case row.GetNumber() == cmd.GetNumber() && row.GetState() == seatrialv1.LedgerDone:
			log.InfoContext(ctx, "done before: its outcome is published again")
			return r.Conn.publishRow(ctx, row)
		}
		err = r.claim(ctx, log, release, cmd, row, revision)
		// Somebody else wrote the row: it says now what is to be done.
		if errors.Is(err, errRowChanged) {
			continue
		}
		return err
	}
}

// errRowChanged says that the ledger row is not what was read.
var errRowChanged = errors.New("the ledger row has changed")

// claim takes the lease, writes the row as begun, has the work done, and writes, gives back and publishes what must be.
func (r *run) claim(ctx context.Context, log *slog.Logger, release subject.Release, cmd *seatrialv1.Command, row *seatrialv1.LedgerRow, revision uint64) error {
	key := release.Key()
	lease, err := takeLease(ctx, r.leases, key, &seatrialv1.Lease{Holder: r.Instance, Number: cmd.GetNumber(), Worker: r.Durable}, r.LeaseTTL)
	if err != nil {
		return Later(r.comeAgain(), err)
	}
	// What is finished is written down also when a shutdown has cancelled ctx.
	finish, cancel := outlive(ctx, lastWords, ErrShutdown)
	defer cancel()
	work, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	gate := newGate(r.LeaseTTL, r.RequestTimeout, lease.sent, time.Now, func(reason error) { stop(reason) })
	endKeeping := make(chan struct{})
	var keeping sync.WaitGroup
	keeping.Go(func() { lease.keep(finish, gate, endKeeping) })
	giveBack := sync.OnceFunc(func() {
		close(endKeeping)
		keeping.Wait()
		gate.end() // nothing may be mutated any more, also by what Do may have left running
		if err := lease.release(finish); err != nil {
			log.WarnContext(ctx, "the lease was not given back, it runs out by itself", "error", err)
		}
	})
	defer giveBack()

	begun := &seatrialv1.LedgerRow{
		Release: release.String(), Number: cmd.GetNumber(), State: seatrialv1.LedgerBegun,
		Holder: r.Instance, Fence: lease.fence,
	}
	begunRevision, err := r.ledger.Put(work, key, begun, revision)
	if errors.Is(err, ErrConflict) {
		return errRowChanged
	}
	if err != nil {
		return err
	}
	claim := &Claim{
		Command: cmd, Recovering: row.GetNumber() == cmd.GetNumber(), Gate: gate,
		fence: lease.fence, conn: r.Conn, service: r.Service, instance: r.Instance,
	}
	log = log.With("fence", lease.fence)
	log.InfoContext(ctx, "begun", "recovering", claim.Recovering)
	outcome, err := r.work(work, stop, claim, key, begunRevision)

	lost := gate.lost()
	switch {
	case errors.Is(lost, ErrTakenOver):
		log.WarnContext(ctx, "taken over", "error", lost)
		return errRowChanged
	case lost != nil:
		log.WarnContext(ctx, "lost", "error", lost)
		return Later(r.comeAgain(), lost)
	case errors.Is(context.Cause(work), ErrEnded):
		log.InfoContext(ctx, "ended by the planner")
		claim.finish(finish)
		return errRowChanged
	case err != nil:
		return fmt.Errorf("command %d of %s: %w", cmd.GetNumber(), release, err)
	}
	done := &seatrialv1.LedgerRow{
		Release: begun.Release, Number: begun.Number, State: seatrialv1.LedgerDone, Holder: begun.Holder, Fence: begun.Fence,
	}
	if done.Outcome, err = r.encode(claim, outcome); err != nil {
		return err
	}
	if _, err := r.ledger.Put(finish, key, done, begunRevision); errors.Is(err, ErrConflict) {
		if gate.lost() == nil { // only the planner writes the row of a command whose lease is held
			claim.finish(finish)
		}
		return errRowChanged
	} else if err != nil {
		return err
	}
	claim.finish(finish)
	giveBack()
	log.InfoContext(ctx, "done", "outcome", outcome.GetKind())
	return r.Conn.publishRow(finish, done)
}

// work calls Do. It closes the gate when another holder writes the ledger row, and only calls Do off when the planner
// does: the lease is still held then, and what Do has begun can be brought to an orderly end.
func (r *run) work(ctx context.Context, stop context.CancelCauseFunc, claim *Claim, key string, begunRevision uint64) (*seatrialv1.Outcome, error) {
	watch, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		_ = r.ledger.WatchKey(watch, key, func(_ string, row *seatrialv1.LedgerRow, revision uint64) {
			switch {
			case revision <= begunRevision:
			case row.GetNumber() == claim.Command.GetNumber() && row.GetState() == seatrialv1.LedgerDone && row.GetFence() == 0:
				stop(fmt.Errorf("%w: %s wrote its ledger row", ErrEnded, row.GetHolder()))
			default:
				claim.Gate.close(fmt.Errorf("%w: its row is %s by %s", ErrTakenOver, row.GetState(), row.GetHolder()))
			}
		})
	})
	defer watching.Wait()
	defer unwatch()
	returned := make(chan struct{})
	defer context.AfterFunc(ctx, func() { r.watchEnd(ctx, claim.Command, returned) })()
	outcome, err := r.Do(ctx, claim)
	close(returned)
	if err == nil && outcome == nil {
		err = errors.New("no outcome")
	}
	return outcome, err
}

// watchEnd gives the worker up when Do does not return after its context has ended.
func (r *run) watchEnd(ctx context.Context, cmd *seatrialv1.Command, returned <-chan struct{}) {
	patience := cmp.Or(r.patience, time.Minute)
	select {
	case <-returned:
	case <-time.After(patience):
		r.stuck <- fmt.Errorf("command %d of %s: %w, %s after: %w", cmd.GetNumber(), cmd.GetRelease(), ErrStuck, patience, context.Cause(ctx))
	}
}

// comeAgain is after how long to look whether a lease is free.
func (r *run) comeAgain() time.Duration { return min(2*time.Second, r.LeaseTTL/4) }

// encode returns the bytes of a final outcome. One that could never be published is replaced by one that says so:
// otherwise the command would be worked on for ever.
func (r *run) encode(claim *Claim, outcome *seatrialv1.Outcome) ([]byte, error) {
	data, err := wire.MarshalJSON(outcome)
	if err != nil {
		return nil, err
	}
	limit := int(r.Conn.NC.MaxPayload()) - rowReserve
	if len(data) <= limit {
		return data, nil
	}
	substitute := claim.Outcome(seatrialv1.KindInterrupted)
	substitute.Failure = &seatrialv1.Failure{
		Class: seatrialv1.ClassInterrupted,
		Reason: fmt.Sprintf("%s: outcome `%s` of command %d has %d bytes, the limit is %d",
			outcome.GetRelease(), outcome.GetKind(), outcome.GetNumber(), len(data), limit),
		Next:    "raise max_payload of the NATS servers, or report what the outcome is so full of",
		Mutated: true,
	}
	return wire.MarshalJSON(substitute)
}

// rowReserve is room for the headers of an outcome, and for what a ledger row has besides it.
const rowReserve = 4096

// publishRow publishes the outcome of a row that is done.
func (c *Conn) publishRow(ctx context.Context, row *seatrialv1.LedgerRow) error {
	release, err := subject.ParseRelease(row.GetRelease())
	if err != nil {
		return Dead(fmt.Errorf("ledger row: %w", err))
	}
	// A newer version may have written it.
	o := &seatrialv1.Outcome{}
	if err := wire.UnmarshalKnown(nil, row.GetOutcome(), o); err != nil {
		return Dead(fmt.Errorf("ledger row of %s: %w", release, err))
	}
	return c.PublishOutcomeBytes(ctx, o.GetKind(), release, o.GetId(), row.GetOutcome())
}

// EndCommand ends a command in its worker's stead: it writes the ledger row as done with this outcome, publishes the
// row's outcome, and takes the command out of its queue. A row that is done already, or is a later command's, stays as it
// is; the outcome in it counts.
func (c *Conn) EndCommand(ctx context.Context, end *seatrialv1.CommandEnd) error {
	outcome := end.GetOutcome()
	release, err := subject.ParseRelease(outcome.GetRelease())
	if err != nil {
		return fmt.Errorf("end command %d: %w", outcome.GetNumber(), err)
	}
	row, err := c.endRow(ctx, release, outcome)
	if err != nil {
		return fmt.Errorf("end command %d of %s: %w", outcome.GetNumber(), release, err)
	}
	if row.GetNumber() == outcome.GetNumber() {
		// The holder may have died before it could.
		if err := c.publishRow(ctx, row); err != nil {
			return fmt.Errorf("end command %d of %s: %w", outcome.GetNumber(), release, err)
		}
	}
	return c.DeleteCommand(ctx, end.GetKind(), end.GetPool(), release, outcome.GetNumber())
}

// endRow returns the row that stands.
func (c *Conn) endRow(ctx context.Context, release subject.Release, outcome *seatrialv1.Outcome) (*seatrialv1.LedgerRow, error) {
	ledger, err := OpenBucket[*seatrialv1.LedgerRow](ctx, c, subject.BucketLedger)
	if err != nil {
		return nil, err
	}
	ended := &seatrialv1.LedgerRow{
		Release: release.String(), Number: outcome.GetNumber(), State: seatrialv1.LedgerDone, Holder: outcome.GetService(),
	}
	if ended.Outcome, err = wire.MarshalJSON(outcome); err != nil {
		return nil, err
	}
	for {
		row, revision, err := ledger.Get(ctx, release.Key())
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if row.GetNumber() > outcome.GetNumber() ||
			row.GetNumber() == outcome.GetNumber() && row.GetState() == seatrialv1.LedgerDone {
			return row, nil
		}
		if _, err := ledger.Put(ctx, release.Key(), ended, revision); !errors.Is(err, ErrConflict) {
			return ended, err
		}
	}
}
