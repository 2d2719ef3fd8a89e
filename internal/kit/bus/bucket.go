package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"google.golang.org/protobuf/proto"
)

// Bucket is a key-value bucket of messages of one type, encoded as protobuf. M is a pointer type.
type Bucket[M proto.Message] struct {
	conn   *Conn
	name   string
	stream jetstream.Stream
	kv     jetstream.KeyValue

	// patience is how long one try to write waits for its confirmation.
	patience time.Duration
}

// bucketStream returns the stream of a bucket.
func bucketStream(bucket string) string { return "KV_" + bucket }

// OpenBucket binds to a bucket that was provisioned. It returns ErrNotFound where there is none.
func OpenBucket[M proto.Message](ctx context.Context, c *Conn, name string) (*Bucket[M], error) {
	kv, err := c.JS.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("bucket %s: %w: has seatrial-provision run?", name, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	stream, err := c.JS.Stream(ctx, bucketStream(name))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", name, err)
	}
	return &Bucket[M]{conn: c, name: name, stream: stream, kv: kv, patience: attemptTimeout}, nil
}

func (b *Bucket[M]) subject(key string) string { return "$KV." + b.name + "." + key }

// new returns an empty message.
func (b *Bucket[M]) new() M {
	var m M
	return m.ProtoReflect().New().Interface().(M)
}

// Get returns the value of a key and its revision. For a key without a value it returns ErrNotFound and the revision
// that Put expects to make one. The value may be out of date by a moment: a Put with its revision then is a conflict.
func (b *Bucket[M]) Get(ctx context.Context, key string) (m M, revision uint64, err error) {
	var none M
	stored, err := b.stream.GetLastMsgForSubject(ctx, b.subject(key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return none, 0, fmt.Errorf("%s/%s: %w", b.name, key, ErrNotFound)
	}
	if err != nil {
		return none, 0, fmt.Errorf("%s/%s: %w", b.name, key, err)
	}
	if isMarker(stored.Header) {
		return none, stored.Sequence, fmt.Errorf("%s/%s: %w", b.name, key, ErrNotFound)
	}
	m = b.new()
	if err := proto.Unmarshal(stored.Data, m); err != nil {
		return none, stored.Sequence, fmt.Errorf("%s/%s: revision %d: %w", b.name, key, stored.Sequence, err)
	}
	return m, stored.Sequence, nil
}

// Keys returns the keys that match a key with wildcards, sorted. A key that has lost its value is among them.
func (b *Bucket[M]) Keys(ctx context.Context, filter string) ([]string, error) {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter(b.subject(filter)))
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", b.name, filter, err)
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for name := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(name, b.subject("")))
	}
	slices.Sort(keys)
	return keys, nil
}

// Put sets a key that has the revision expect now, where 0 means that there is none, and returns its new revision. It
// returns ErrConflict when the key has another one, ErrTooLarge for a value over the limit, and tries until it knows or
// ctx ends.
func (b *Bucket[M]) Put(ctx context.Context, key string, m M, expect uint64) (revision uint64, err error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return 0, fmt.Errorf("%s/%s: %w", b.name, key, err)
	}
	return b.set(ctx, &nats.Msg{Subject: b.subject(key), Data: data}, expect, nuid.Next())
}

// set publishes a message of a key by compare-and-set. By its id, which nobody else has, it knows the message again when
// the confirmation of an earlier try was lost: a stream on one server then says that the revision is another one now,
// a replicated one that it has the message already.
func (b *Bucket[M]) set(ctx context.Context, msg *nats.Msg, expect uint64, id string, opts ...jetstream.PublishOpt) (revision uint64, err error) {
	opts = append(opts, jetstream.WithExpectLastSequencePerSubject(expect))
	pause := newBackoff()
	for {
		ack, err := b.conn.publish(ctx, msg, id, b.patience, opts...)
		if err == nil {
			return ack.Sequence, nil
		}
		if !isCode(err, jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
			return 0, err
		}
		last, err := b.stream.GetLastMsgForSubject(ctx, msg.Subject)
		switch {
		case err == nil && last.Header.Get(jetstream.MsgIDHeader) == id:
			return last.Sequence, nil
		case err == nil && last.Sequence > expect, errors.Is(err, jetstream.ErrMsgNotFound) && expect > 0:
			return 0, fmt.Errorf("%s: %w", msg.Subject, ErrConflict)
		}
		// The answer is missing, or comes from a replica that lags behind.
		if cause := b.conn.pause(ctx, pause.step()); cause != nil {
			return 0, fmt.Errorf("%s: %w", msg.Subject, cause)
		}
	}
}

// Watch calls fn for all keys, then for each change, until ctx ends or the connection is closed for good; it returns why.
// m is nil for a key that has lost its value. After a fault all keys come again. fn is not called concurrently.
func (b *Bucket[M]) Watch(ctx context.Context, fn func(key string, m M, revision uint64)) error {
	return b.WatchKey(ctx, jetstream.AllKeys, fn)
}

// WatchKey is Watch for one key, or for those that match a key with wildcards.
func (b *Bucket[M]) WatchKey(ctx context.Context, key string, fn func(key string, m M, revision uint64)) error {
	pause := newBackoff()
	for {
		err := b.watchOnce(ctx, key, func(key string, m M, revision uint64) {
			pause = newBackoff()
			fn(key, m, revision)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		b.conn.log.WarnContext(ctx, "watch ended, starting again", "bucket", b.name, "key", key, "error", err)
		if cause := b.conn.pause(ctx, pause.step()); cause != nil {
			return cause
		}
	}
}

// watchOnce watches until the watcher ends.
func (b *Bucket[M]) watchOnce(ctx context.Context, key string, fn func(key string, m M, revision uint64)) error {
	// A watcher lives on the server, and notices only after a while that it is gone after a restart.
	reconnected := b.conn.reconnected()
	watcher, err := b.kv.Watch(ctx, key)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-reconnected:
			return errors.New("the connection was made anew")
		case entry, ok := <-watcher.Updates():
			switch {
			case !ok:
				return errors.New("the watcher was closed")
			case entry == nil: // all keys were told
			case entry.Operation() != jetstream.KeyValuePut:
				var none M
				fn(entry.Key(), none, entry.Revision())
			default:
				m := b.new()
				if err := proto.Unmarshal(entry.Value(), m); err != nil {
					b.conn.log.ErrorContext(ctx, "unreadable value", "bucket", b.name, "key", entry.Key(), "revision", entry.Revision(), "error", err)
					continue
				}
				fn(entry.Key(), m, entry.Revision())
			}
		}
	}
}

// isMarker says that the headers are those of a deleted or expired key.
func isMarker(h nats.Header) bool {
	return h.Get(headerOperation) != "" || h.Get(jetstream.MarkerReasonHeader) != ""
}

// headerOperation says of a bucket's message that it is no value.
const headerOperation = "KV-Operation"
