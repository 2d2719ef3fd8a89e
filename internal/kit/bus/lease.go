package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// lease is the right to act on a release, for as long as it is renewed.
type lease struct {
	bucket *Bucket[*seatrialv1.Lease]
	key    string
	ttl    time.Duration
	value  []byte

	fence    uint64    // the revision of the taking
	revision uint64    // the last one
	sent     time.Time // when the request that made it was sent
}

// takeLease takes a release's lease. It returns ErrConflict when somebody has it.
func takeLease(ctx context.Context, bucket *Bucket[*seatrialv1.Lease], key string, value *seatrialv1.Lease, ttl time.Duration) (*lease, error) {
	// A lease that takes its whole time to be taken is of no use.
	ctx, cancel := context.WithTimeoutCause(ctx, ttl, fmt.Errorf("no answer within the lease's %s", ttl))
	defer cancel()
	held, revision, err := bucket.Get(ctx, key)
	if err == nil {
		return nil, fmt.Errorf("lease %s: %w: %s holds it for command %d", key, ErrConflict, held.GetHolder(), held.GetNumber())
	}
	if !errors.Is(err, ErrNotFound) {
		return nil, err
	}
	data, err := proto.Marshal(value)
	if err != nil {
		return nil, err
	}
	l := &lease{bucket: bucket, key: key, ttl: ttl, value: data, revision: revision}
	if err := l.renew(ctx); err != nil {
		return nil, fmt.Errorf("lease %s: %w", key, err)
	}
	l.fence = l.revision
	return l, nil
}

// renew writes the lease again, with its whole time. It returns ErrConflict when the lease is not held any more.
func (l *lease) renew(ctx context.Context) error {
	sent := time.Now()
	// The client's own update of a key would drop its time to live.
	msg := &nats.Msg{Subject: l.bucket.subject(l.key), Data: l.value}
	revision, err := l.bucket.set(ctx, msg, l.revision, nuid.Next(), jetstream.WithMsgTTL(l.ttl))
	if err != nil {
		return err
	}
	l.revision, l.sent = revision, sent
	return nil
}

// keep renews the lease at each quarter of its time until stop is closed, and confirms it to the gate. It closes the
// gate and ends when the lease is lost. A renewal that was sent is waited for, so that the revision is known afterwards.
func (l *lease) keep(ctx context.Context, gate *Gate, stop <-chan struct{}) {
	for {
		timer := time.NewTimer(time.Until(l.sent.Add(l.ttl / 4)))
		select {
		case <-stop:
			timer.Stop()
			return
		case <-timer.C:
		}
		renewal, cancel := context.WithDeadline(ctx, l.sent.Add(l.ttl))
		err := l.renew(renewal)
		cancel()
		if err != nil {
			gate.close(fmt.Errorf("%w: %w", ErrLeaseLost, err))
			return
		}
		gate.confirm(l.sent)
	}
}

// release gives the lease back at once. Without success it runs out.
func (l *lease) release(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, l.sent.Add(l.ttl))
	defer cancel()
	msg := nats.NewMsg(l.bucket.subject(l.key))
	msg.Header.Set(headerOperation, "PURGE")
	msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	_, err := l.bucket.set(ctx, msg, l.revision, nuid.Next(), jetstream.WithMsgTTL(markerTTL))
	return err
}

// AtWork reports whether anybody holds a lease for a command of this consumer in this cluster, and so is alive.
func (c *Conn) AtWork(ctx context.Context, cluster, worker string) (bool, error) {
	leases, err := OpenBucket[*seatrialv1.Lease](ctx, c, subject.BucketLeases)
	if err != nil {
		return false, err
	}
	keys, err := leases.Keys(ctx, subject.Keys(cluster, ""))
	if err != nil {
		return false, err
	}
	for _, key := range keys {
		lease, _, err := leases.Get(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound): // given back or run out
		case err != nil:
			return false, err
		case lease.GetWorker() == worker:
			return true, nil
		}
	}
	return false, nil
}
