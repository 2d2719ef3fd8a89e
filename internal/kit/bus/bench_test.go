package bus_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// quiet returns a connection to a provisioned server that logs nothing.
func quiet(b *testing.B) *bus.Conn {
	b.Helper()
	url := kittest.Provisioned(b, layout()).URL
	c, err := bus.Connect(b.Context(), bus.Config{URL: url}, slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	b.Cleanup(c.NC.Close)
	return c
}

// background runs f until the benchmark ends.
func background(b *testing.B, f func(ctx context.Context) error) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-ended
	})
}

func BenchmarkPublish(b *testing.B) {
	c, r := quiet(b), newRelease()
	data := make([]byte, 1024)
	for i := 0; b.Loop(); i++ {
		require.NoError(b, c.PublishOutcomeBytes(b.Context(), "deployed", r, fmt.Sprint(i), data))
	}
}

// From the call of Publish until the handler of a waiting consumer has the message.
func BenchmarkPublishUntilHandled(b *testing.B) {
	c, r := quiet(b), newRelease()
	handled := make(chan struct{})
	background(b, func(ctx context.Context) error {
		return c.Consume(ctx, bus.ConsumeOptions{Stream: subject.StreamOutcomes, Durable: subject.ConsumerPlanner, Slots: 4},
			func(context.Context, jetstream.Msg) error {
				handled <- struct{}{}
				return nil
			})
	})
	for i := 0; b.Loop(); i++ {
		require.NoError(b, c.PublishOutcomeBytes(b.Context(), "deployed", r, fmt.Sprint(i), []byte("{}")))
		<-handled
	}
}

// From the command until its outcome is published, with nothing to do in between: ledger, lease and gate.
func BenchmarkCommandUntilOutcome(b *testing.B) {
	c, r := quiet(b), newRelease()
	done := make(chan struct{})
	w := &bus.Worker{
		Conn: c, Service: "executor", Instance: "a", Durable: subject.ConsumerExecutor("local"), Slots: 4,
		LeaseTTL: time.Minute, RequestTimeout: 15 * time.Second, Log: slog.New(slog.DiscardHandler),
		Do: func(_ context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
			return claim.Outcome(seatrialv1.KindDeployed), nil
		},
	}
	background(b, w.Run)
	background(b, func(ctx context.Context) error {
		return c.Consume(ctx, bus.ConsumeOptions{Stream: subject.StreamOutcomes, Durable: subject.ConsumerPlanner, Slots: 4},
			func(context.Context, jetstream.Msg) error {
				done <- struct{}{}
				return nil
			})
	})
	for number := uint32(1); b.Loop(); number++ {
		for c.PublishCommand(b.Context(), deployCommand(r, number)) != nil { // the one before is not acknowledged yet
		}
		<-done
	}
}
