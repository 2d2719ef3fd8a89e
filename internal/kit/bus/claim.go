package bus

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Claim is the right to work on one command.
type Claim struct {
	Command *seatrialv1.Command
	// Recovering: a former holder had begun the command, and nobody knows how far it came.
	Recovering bool
	// Gate is to be checked before each mutating request.
	Gate *Gate

	deferred []func(context.Context)
	fence    uint64
	conn     *Conn
	service  string
	instance string
}

// Fence is a number that is higher for each later holder of the release's lease.
func (c *Claim) Fence() uint64 { return c.fence }

// Defer has f called once the command's final outcome stands in the ledger, or the planner has ended the command, while
// the lease is still held: whoever comes after a crash then finds the outcome, not what f has taken away. A command that is
// handed back keeps everything.
func (c *Claim) Defer(f func(ctx context.Context)) { c.deferred = append(c.deferred, f) }

// finish calls what was deferred.
func (c *Claim) finish(ctx context.Context) {
	for _, f := range c.deferred {
		f(ctx)
	}
}

// repeatable are the kinds of outcomes that each holder of a command may report.
var repeatable = []string{
	seatrialv1.KindBlocked,
	seatrialv1.KindDeploying,
	seatrialv1.KindRollingBack,
	seatrialv1.KindUninstalling,
	seatrialv1.KindTesting,
	seatrialv1.KindInterrupted,
}

// Outcome returns an outcome about the command, of which everything is filled in that follows from the command.
func (c *Claim) Outcome(kind string) *seatrialv1.Outcome {
	cmd := c.Command
	id := fmt.Sprintf("%s/%d/%s", cmd.GetRelease(), cmd.GetNumber(), kind)
	if c.Recovering && slices.Contains(repeatable, kind) {
		id = fmt.Sprintf("%s/%d", id, c.fence)
	}
	return &seatrialv1.Outcome{
		Id:          id,
		Kind:        kind,
		Release:     cmd.GetRelease(),
		Generation:  cmd.GetGeneration(),
		Request:     cmd.GetRequest(),
		Number:      cmd.GetNumber(),
		Time:        timestamppb.Now(),
		Service:     c.service,
		Instance:    c.instance,
		Traceparent: cmd.GetTraceparent(),
		Requested:   cmd.GetRequested(),
		Running:     cmd.GetRunning(),
	}
}

// Publish publishes an outcome while the command is in work. It returns the gate's error when the claim has ended.
func (c *Claim) Publish(ctx context.Context, o *seatrialv1.Outcome) error {
	if err := c.Gate.Check(); err != nil {
		return fmt.Errorf("publish outcome %s: %w", o.GetId(), err)
	}
	return c.conn.PublishOutcome(ctx, o)
}
