package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

const (
	// attemptTimeout is how long one try waits for the stream's confirmation.
	attemptTimeout = 3 * time.Second

	// maxHeader is what a stream takes of headers.
	maxHeader = math.MaxUint16
)

// Publish stores msg in the stream of its subject under an id, by which the stream knows a repetition. It tries until
// the stream has confirmed the message or ctx ends; a message that the stream refuses is not tried again.
func (c *Conn) Publish(ctx context.Context, msg *nats.Msg, id string) error {
	_, err := c.publish(ctx, msg, id, attemptTimeout)
	return err
}

// publish is Publish with options, and with the time that one try may take. The error of a stream that refuses is a
// *jetstream.APIError.
func (c *Conn) publish(ctx context.Context, msg *nats.Msg, id string, patience time.Duration, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	opts = append(opts, jetstream.WithRetryAttempts(0))
	pause := newBackoff()
	var reason error
	for {
		ack, err := c.publishOnce(ctx, msg, id, patience, opts...)
		if err == nil || refused(err) {
			return ack, err
		}
		if reason == nil || ctx.Err() == nil {
			reason = err
		}
		if cause := c.pause(ctx, pause.step()); cause != nil {
			return nil, fmt.Errorf("%w (%w)", reason, cause)
		}
		c.log.WarnContext(ctx, "cannot publish yet", "subject", msg.Subject, "error", err)
	}
}

// publishOnce is one try of publish.
func (c *Conn) publishOnce(ctx context.Context, msg *nats.Msg, id string, patience time.Duration, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// The options are written into the header: a copy, so that the caller's stays as it is.
	attempt := nats.NewMsg(msg.Subject)
	maps.Copy(attempt.Header, msg.Header)
	attempt.Header.Set(jetstream.MsgIDHeader, id)
	attempt.Data = msg.Data
	if err := c.checkSize(attempt); err != nil {
		return nil, err
	}
	ack, err := c.JS.PublishMsg(ctx, attempt, opts...)
	if err != nil {
		return nil, fmt.Errorf("publish on %s: %w", msg.Subject, err)
	}
	return ack, nil
}

// checkSize refuses what no server would take, before the connection is closed for it.
func (c *Conn) checkSize(msg *nats.Msg) error {
	// Room for the headers that the options add: a revision and a time to live.
	const reserve = 128
	header := msg.Size() - len(msg.Subject) - len(msg.Reply) - len(msg.Data) + reserve
	if header > maxHeader {
		return fmt.Errorf("publish on %s: %w: %d bytes of headers, the limit is %d", msg.Subject, ErrTooLarge, header, maxHeader)
	}
	if size, limit := header+len(msg.Data), c.NC.MaxPayload(); int64(size) > limit && limit > 0 {
		return fmt.Errorf("publish on %s: %w: %d bytes, the limit is %d", msg.Subject, ErrTooLarge, size, limit)
	}
	return nil
}

// refused says that trying again would not help.
func refused(err error) bool {
	if errors.Is(err, ErrTooLarge) || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrBadSubject) {
		return true
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.Code < 500 || api.ErrorCode == codeStoreFailed)
}

// codeStoreFailed is the answer of a stream that is full, be it for one subject; the client has no name for it.
const codeStoreFailed jetstream.ErrorCode = 10077

// isCode says that err is the server's answer with one of the codes.
func isCode(err error, codes ...jetstream.ErrorCode) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode)
}

// PublishOutcome publishes an outcome as JSON on the subject of its kind and release.
func (c *Conn) PublishOutcome(ctx context.Context, o *seatrialv1.Outcome) error {
	release, err := subject.ParseRelease(o.GetRelease())
	if err != nil {
		return fmt.Errorf("publish outcome %s: %w", o.GetId(), err)
	}
	data, err := wire.MarshalJSON(o)
	if err != nil {
		return fmt.Errorf("publish outcome %s: %w", o.GetId(), err)
	}
	return c.PublishOutcomeBytes(ctx, o.GetKind(), release, o.GetId(), data)
}

// PublishOutcomeBytes publishes exactly these bytes, which are the JSON of an outcome with that kind, release and id.
func (c *Conn) PublishOutcomeBytes(ctx context.Context, kind string, r subject.Release, id string, data []byte) error {
	msg := nats.NewMsg(subject.Outcome(kind, r))
	msg.Header.Set(wire.HeaderContentType, wire.JSON)
	msg.Data = data
	return c.Publish(ctx, msg, id)
}

// PublishEvent publishes an event on its subject.
func (c *Conn) PublishEvent(ctx context.Context, subject, id string, header nats.Header, data []byte) error {
	return c.Publish(ctx, &nats.Msg{Subject: subject, Header: header, Data: data}, id)
}
