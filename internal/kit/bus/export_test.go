package bus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// PutWithID is Put under an id of the caller's: called twice it is what a try is whose confirmation was lost.
func PutWithID[M proto.Message](ctx context.Context, b *Bucket[M], key string, m M, expect uint64, id string) (uint64, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return 0, err
	}
	return b.set(ctx, &nats.Msg{Subject: b.subject(key), Data: data}, expect, id)
}

// TakeLease takes a release's lease for a minute. renew writes it again and returns from when on its time counts.
func TakeLease(ctx context.Context, c *Conn, r subject.Release) (renew func() (time.Time, error), err error) {
	bucket, err := OpenBucket[*seatrialv1.Lease](ctx, c, subject.BucketLeases)
	if err != nil {
		return nil, err
	}
	l, err := takeLease(ctx, bucket, r.Key(), &seatrialv1.Lease{Holder: "a"}, time.Minute)
	return func() (time.Time, error) {
		err := l.renew(ctx)
		return l.sent, err
	}, err
}

// SetPatience sets how long a worker's Do may go on when its context has ended.
func SetPatience(w *Worker, patience time.Duration) { w.patience = patience }
