package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
)

// requests consumes requests as the planner does.
func requests(slots int) bus.ConsumeOptions {
	return bus.ConsumeOptions{
		Service: "planner", Stream: subject.StreamRequests, Durable: subject.ConsumerPlanner, Slots: slots, Grace: soon,
	}
}

// request publishes a request whose body is text.
func request(t *testing.T, c *bus.Conn, text string) {
	t.Helper()
	msg := nats.NewMsg(subject.Request("deploy", newRelease()))
	msg.Data = []byte(text)
	msg.Header.Set("X-Mine", "kept")
	require.NoError(t, c.Publish(t.Context(), msg, msg.Subject))
}

// pending returns how many requests are delivered and not acknowledged, and how many are not delivered.
func pending(t *testing.T, c *bus.Conn) (inWork, waiting int) {
	t.Helper()
	consumer, err := c.JS.Consumer(t.Context(), subject.StreamRequests, subject.ConsumerPlanner)
	require.NoError(t, err)
	return consumer.CachedInfo().NumAckPending, int(consumer.CachedInfo().NumPending)
}

// handled says that nothing is left to do.
func handled(t *testing.T, c *bus.Conn) func() bool {
	return func() bool {
		inWork, waiting := pending(t, c)
		return inWork+waiting == 0
	}
}

func TestAHandledMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	got := make(chan string, 10)
	start(t, func(ctx context.Context) error {
		return c.Consume(ctx, requests(1), func(_ context.Context, msg jetstream.Msg) error {
			got <- string(msg.Data())
			return nil
		})
	})
	for i := range 10 {
		request(t, c, fmt.Sprint(i))
	}
	for i := range 10 {
		require.Equal(t, fmt.Sprint(i), receive(t, got, "a message"))
	}
	eventually(t, handled(t, c), "all are acknowledged")
	require.Empty(t, got)
}

func TestAMessageForLaterAndOneThatFailedComeAgain(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"later":     bus.Later(10*time.Millisecond, errors.New("not now")),
		"any error": errors.New("broken"),
		"wrapped":   fmt.Errorf("in a handler: %w", bus.Later(10*time.Millisecond, errors.New("not now"))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
			deliveries := make(chan uint64, 10)
			start(t, func(ctx context.Context) error {
				return c.Consume(ctx, requests(1), func(_ context.Context, msg jetstream.Msg) error {
					meta, err := msg.Metadata()
					if err != nil {
						return err
					}
					deliveries <- meta.NumDelivered
					if meta.NumDelivered == 1 {
						return failure
					}
					return nil
				})
			})
			request(t, c, "x")
			require.EqualValues(t, 1, receive(t, deliveries, "the first delivery"))
			require.EqualValues(t, 2, receive(t, deliveries, "the second delivery"))
			eventually(t, handled(t, c), "it is acknowledged")
			require.Empty(t, messages(t, c, subject.StreamDead, subject.AllDead))
		})
	}
}

func TestAMessageThatIsGivenUpIsADeadLetterWithAllThatItWas(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	start(t, func(ctx context.Context) error {
		return c.Consume(ctx, requests(1), func(context.Context, jetstream.Msg) error {
			return fmt.Errorf("decode: %w", bus.Dead(errors.New("not\na request")))
		})
	})
	request(t, c, "first")
	request(t, c, "body\nof the second")
	big := strings.Repeat("x", 1<<20-300)
	request(t, c, big)
	eventually(t, handled(t, c), "all are off the queue")

	letters := messages(t, c, subject.StreamDead, subject.Dead("planner"))
	require.Len(t, letters, 3)
	letter := letters[1]
	original := messages(t, c, subject.StreamRequests, subject.AllRequests)[1]
	require.Equal(t, "body\nof the second", string(letter.Data))
	require.Equal(t, "kept", letter.Header.Get("X-Mine"))
	require.Equal(t, "not a request", letter.Header.Get(bus.HeaderDeadReason))
	require.Equal(t, original.Subject, letter.Header.Get(bus.HeaderDeadSubject))
	require.Equal(t, subject.StreamRequests, letter.Header.Get(bus.HeaderDeadStream))
	require.Equal(t, "2", letter.Header.Get(bus.HeaderDeadSequence))
	require.Equal(t, original.Header.Get("Nats-Msg-Id"), letter.Header.Get("Seatrial-Nats-Msg-Id"))

	require.Empty(t, letters[2].Data, "one that does not fit beside its reason is left where it is")
	require.Equal(t, fmt.Sprint(len(big)), letters[2].Header.Get(bus.HeaderDeadLeftOut))
	require.Equal(t, "3", letters[2].Header.Get(bus.HeaderDeadSequence))
}

func TestConsumeWantsASlot(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.NATS(t).URL)
	require.ErrorContains(t, c.Consume(t.Context(), requests(0), nil), "SEATRIAL_REQUESTS/planner: slots 0")
}

func TestAMessageIsFetchedOnlyForAFreeSlot(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	leave := make(chan struct{})
	slow, quick := make(chan string, 10), make(chan string, 10)
	start(t, func(ctx context.Context) error {
		return kittest.Connect(t, s.URL).Consume(ctx, requests(2), func(_ context.Context, msg jetstream.Msg) error {
			slow <- string(msg.Data())
			<-leave
			return nil
		})
	})
	defer close(leave)
	for i := range 10 {
		request(t, c, fmt.Sprint(i))
	}
	receive(t, slow, "the first slot")
	receive(t, slow, "the second slot")
	start(t, func(ctx context.Context) error {
		return c.Consume(ctx, requests(1), func(_ context.Context, msg jetstream.Msg) error {
			quick <- string(msg.Data())
			return nil
		})
	})
	for range 8 { // all the others, without a redelivery
		receive(t, quick, "a message that the slow one has not fetched")
	}
	eventually(t, func() bool { inWork, waiting := pending(t, c); return inWork == 2 && waiting == 0 }, "two in work, none waiting")
	require.Empty(t, slow)
}

func TestASlowHandlerKeepsItsMessage(t *testing.T) {
	t.Parallel()
	l := layout()
	l.AckWait = 3 * time.Second
	c := kittest.Connect(t, kittest.Provisioned(t, l).URL)
	beats := make(chan *nats.Msg, 100)
	sub, err := c.NC.ChanSubscribe("$JS.ACK."+subject.StreamRequests+".>", beats)
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	deliveries, leave := make(chan uint64, 10), make(chan struct{})
	start(t, func(ctx context.Context) error {
		return c.Consume(ctx, requests(2), func(_ context.Context, msg jetstream.Msg) error {
			meta, err := msg.Metadata()
			if err != nil {
				return err
			}
			deliveries <- meta.NumDelivered
			<-leave
			return nil
		})
	})
	request(t, c, "x")
	for range 6 { // a quarter of the wait each, so longer than it takes until a silent message is delivered again
		require.Equal(t, "+WPI", string(receive(t, beats, "a sign of life").Data))
	}
	close(leave)
	eventually(t, handled(t, c), "it is acknowledged")
	require.Len(t, deliveries, 1)
}

func TestConsumeGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	var mu sync.Mutex
	seen := map[string]int{}
	start(t, func(ctx context.Context) error {
		return kittest.Connect(t, s.URL).Consume(ctx, requests(1), func(_ context.Context, msg jetstream.Msg) error {
			mu.Lock()
			defer mu.Unlock()
			seen[string(msg.Data())]++
			return nil
		})
	})
	all := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(seen) == n }
	}
	request(t, c, "before")
	eventually(t, all(1), "handled before")
	s.Stop() // it stands waiting for a message now
	require.NoError(t, s.Start())
	for i := range 5 {
		request(t, c, fmt.Sprint(i))
	}
	eventually(t, all(6), "handled after")
	eventually(t, handled(t, c), "all are acknowledged")
}

func TestConsumeWaitsForAConsumerThatIsGone(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	admin := kittest.Connect(t, s.URL)
	c := kittest.Connect(t, s.URL)
	got := make(chan string, 10)
	start(t, func(ctx context.Context) error {
		return c.Consume(ctx, requests(1), func(_ context.Context, msg jetstream.Msg) error {
			got <- string(msg.Data())
			return nil
		})
	})
	request(t, admin, "before")
	require.Equal(t, "before", receive(t, got, "a message"))
	require.NoError(t, c.Healthy())

	require.NoError(t, admin.JS.DeleteConsumer(t.Context(), subject.StreamRequests, subject.ConsumerPlanner))
	eventually(t, func() bool { return c.Healthy() != nil }, "not healthy without it")
	require.ErrorContains(t, c.Healthy(), "consumer SEATRIAL_REQUESTS/planner")
	request(t, admin, "meanwhile")
	s.Provision(t, layout())
	require.Equal(t, "before", receive(t, got, "the new one begins at the beginning"))
	require.Equal(t, "meanwhile", receive(t, got, "a message"))
	eventually(t, func() bool { return c.Healthy() == nil }, "healthy again")
}

func TestConsumeEndsWhenTheConnectionIsClosedForGood(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	ended := make(chan error, 1)
	got := make(chan struct{}, 1)
	go func() {
		ended <- c.Consume(t.Context(), requests(1), func(context.Context, jetstream.Msg) error {
			got <- struct{}{}
			return nil
		})
	}()
	request(t, c, "x")
	receive(t, got, "it works")
	c.NC.Close()
	require.ErrorIs(t, receive(t, ended, "the end"), bus.ErrClosed)
}

func TestConsumeWaitsForItsHandlersAndTellsThemWhenTheGraceIsOver(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	options := requests(1)
	options.Grace = 50 * time.Millisecond
	begun, leave := make(chan context.Context, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Consume(ctx, options, func(ctx context.Context, _ jetstream.Msg) error {
			begun <- ctx
			<-leave
			return context.Cause(ctx)
		})
	}()
	request(t, c, "x")
	handler := receive(t, begun, "it is begun")
	cancel()
	require.NoError(t, handler.Err(), "the grace has only begun")
	receive(t, handler.Done(), "the grace is over")
	require.ErrorIs(t, context.Cause(handler), bus.ErrShutdown)
	require.Empty(t, ended, "a handler is still there")
	close(leave)
	require.NoError(t, receive(t, ended, "the end"))

	// Handed back, it does not wait until its time is over.
	again := make(chan uint64, 1)
	start(t, func(ctx context.Context) error {
		return c.Consume(ctx, requests(1), func(_ context.Context, msg jetstream.Msg) error {
			meta, err := msg.Metadata()
			again <- meta.NumDelivered
			return err
		})
	})
	require.EqualValues(t, 2, receive(t, again, "somebody else has it"))
}
