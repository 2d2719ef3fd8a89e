package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Handler handles one message, perhaps more than once. What it returns decides what becomes of the message:
//
//	nil         it is acknowledged
//	Later       it comes again after that delay
//	Dead        it goes to the dead letters and never comes again
//	any other   it comes again, each time after a longer delay, from 1 s to 1 min
//
// While the handler works, nobody else gets the message. ctx ends with ErrShutdown when the grace of a shutdown is over.
type Handler func(ctx context.Context, msg jetstream.Msg) error

// ConsumeOptions say what to consume, and how.
type ConsumeOptions struct {
	// Service names the dead letters.
	Service string
	// Stream and Durable name the consumer, which was provisioned.
	Stream  string
	Durable string
	// Slots is how many messages are handled at once.
	Slots int
	// Grace is how long handlers may go on when ctx has ended.
	Grace time.Duration
}

// Later makes a handler's message come again after d. err says why.
func Later(d time.Duration, err error) error { return &later{d, err} }

type later struct {
	delay time.Duration
	err   error
}

func (l *later) Error() string { return l.err.Error() }
func (l *later) Unwrap() error { return l.err }

// Dead gives a handler's message up. err says why.
func Dead(err error) error { return &dead{err} }

type dead struct{ err error }

func (d *dead) Error() string { return d.err.Error() }
func (d *dead) Unwrap() error { return d.err }

const (
	// pullExpiry is how long one request for a message stands, pullHeartbeat how often the server says that it does.
	pullExpiry    = 30 * time.Second
	pullHeartbeat = 2 * time.Second

	// drainWait is how long a message that is under way may take to arrive when ctx has ended.
	drainWait = 500 * time.Millisecond

	// retryMin and retryMax limit the delay after a handler's error.
	retryMin = time.Second
	retryMax = time.Minute
)

// Consume handles messages until ctx ends, and returns nil when all handlers have ended. A message is fetched only for a
// free slot, so that none waits in this process. When the consumer is gone, Consume waits until it is there again,
// and the connection is not healthy meanwhile. It returns ErrClosed when the connection is closed for good.
func (c *Conn) Consume(ctx context.Context, o ConsumeOptions, h Handler) error {
	if o.Slots < 1 {
		return fmt.Errorf("consumer %s/%s: slots %d: want at least 1", o.Stream, o.Durable, o.Slots)
	}
	handlerCtx, cancel := outlive(ctx, o.Grace, ErrShutdown)
	defer cancel()
	w := &work{conn: c, options: o, handler: h, slots: make(chan struct{}, o.Slots)}
	defer w.handlers.Wait()
	pause := newBackoff()
	concern := "consumer " + o.Stream + "/" + o.Durable
	for {
		err := w.consume(ctx, handlerCtx, func() {
			pause = newBackoff()
			c.repaired(concern)
		})
		if ctx.Err() != nil {
			return nil
		}
		c.fault(concern, err)
		c.log.WarnContext(ctx, "cannot consume, trying again", "stream", o.Stream, "consumer", o.Durable, "error", err)
		if cause := c.pause(ctx, pause.step()); cause != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("%s: %w", concern, cause)
		}
	}
}

// work is what one call of Consume does.
type work struct {
	conn     *Conn
	options  ConsumeOptions
	handler  Handler
	slots    chan struct{} // one token per running handler
	handlers sync.WaitGroup
}

// consume binds to the consumer and handles its messages, until ctx ends or the consumer is gone.
func (w *work) consume(ctx, handlerCtx context.Context, bound func()) error {
	consumer, err := w.conn.JS.Consumer(ctx, w.options.Stream, w.options.Durable)
	if err != nil {
		return err
	}
	// One message at most is asked for, and only by Next: nothing is fetched ahead.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1),
		jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(pullHeartbeat))
	if err != nil {
		return err
	}
	defer messages.Stop()
	// Drained, Next still returns a message that has just arrived: it is handed back at once. Without a connection
	// draining does not end.
	defer context.AfterFunc(ctx, messages.Drain)()
	draining, cancel := outlive(ctx, drainWait, ErrShutdown)
	defer cancel()
	bound()

	ackWait := consumer.CachedInfo().Config.AckWait
	for {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		msg, err := messages.Next(jetstream.NextContext(draining))
		if err != nil {
			<-w.slots
			return err
		}
		if ctx.Err() != nil {
			<-w.slots
			_ = msg.Nak()
			continue
		}
		w.handlers.Go(func() {
			defer func() { <-w.slots }()
			w.handle(handlerCtx, msg, ackWait)
		})
	}
}

// handle handles one message, and tells the server that it is in work meanwhile.
func (w *work) handle(ctx context.Context, msg jetstream.Msg, ackWait time.Duration) {
	done := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		beat := time.NewTicker(ackWait / 4)
		defer beat.Stop()
		for {
			select {
			case <-beat.C:
				_ = msg.InProgress() // a missed one is made up for by the next
			case <-done:
				return
			}
		}
	})
	defer beating.Wait()
	defer close(done)

	err := w.handler(ctx, msg)
	if letter, ok := errors.AsType[*dead](err); ok {
		err = w.bury(ctx, msg, letter.err)
	} else if err == nil {
		w.acknowledge(ctx, msg)
	}
	if err == nil {
		return
	}
	delay := retryMax
	if meta, err := msg.Metadata(); err == nil {
		delay = retryDelay(meta.NumDelivered)
	}
	level := slog.LevelWarn
	if later, ok := errors.AsType[*later](err); ok {
		delay, level = later.delay, slog.LevelDebug
	}
	if ctx.Err() != nil { // somebody else may have it at once
		delay, level = 0, slog.LevelInfo
	}
	w.conn.log.Log(ctx, level, "message handed back", "subject", msg.Subject(), "delay", delay, "error", err)
	if err := msg.NakWithDelay(delay); err != nil {
		w.conn.log.WarnContext(ctx, "cannot hand back, the message comes again by itself", "subject", msg.Subject(), "error", err)
	}
}

// retryDelay doubles with each delivery.
func retryDelay(delivered uint64) time.Duration {
	delay := retryMin
	for n := uint64(1); n < delivered && delay < retryMax; n++ {
		delay *= 2
	}
	return min(delay, retryMax)
}

// acknowledge acknowledges a message until the server confirms it. Without success the message comes again.
func (w *work) acknowledge(ctx context.Context, msg jetstream.Msg) {
	ctx, cancel := outlive(ctx, lastWords, ErrShutdown)
	defer cancel()
	pause := newBackoff()
	for {
		err := doubleAck(ctx, msg)
		if err == nil {
			return
		}
		w.conn.log.WarnContext(ctx, "cannot acknowledge yet", "subject", msg.Subject(), "error", err)
		// Nobody answers where the consumer was deleted.
		if errors.Is(err, nats.ErrNoResponders) || w.conn.pause(ctx, pause.step()) != nil {
			return
		}
	}
}

func doubleAck(ctx context.Context, msg jetstream.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return msg.DoubleAck(ctx)
}

// bury moves a message to the dead letters.
func (w *work) bury(ctx context.Context, msg jetstream.Msg, reason error) error {
	w.conn.log.ErrorContext(ctx, "message given up", "subject", msg.Subject(), "error", reason)
	if err := w.conn.DeadLetter(ctx, w.options.Service, msg, reason); err != nil {
		return err
	}
	if err := msg.TermWithReason(oneLine(reason.Error())); err != nil {
		w.conn.log.WarnContext(ctx, "cannot end the message, it comes again", "subject", msg.Subject(), "error", err)
	}
	return nil
}

// lastWords is how long a finished handler may still write down and acknowledge what it did, once the grace is over.
const lastWords = 3 * time.Second

// outlive returns a context that ends a while after ctx does, then with this cause.
func outlive(ctx context.Context, while time.Duration, cause error) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(while, func() { cancel(cause) })
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel(nil)
	}
}
