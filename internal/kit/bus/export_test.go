package bus

import (
	"context"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"
)

// PutWithID is Put under an id of the caller's: called twice it is what a try is whose confirmation was lost.
func PutWithID[M proto.Message](ctx context.Context, b *Bucket[M], key string, m M, expect uint64, id string) (uint64, error) {
	data, err := proto.Marshal(m)
	if err != nil {
		return 0, err
	}
	return b.set(ctx, &nats.Msg{Subject: b.subject(key), Data: data}, expect, id)
}
