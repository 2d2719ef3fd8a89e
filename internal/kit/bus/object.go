package bus

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"
)

// PutObject stores data under a name. An object of that name is replaced.
func (c *Conn) PutObject(ctx context.Context, bucket, name string, data []byte) error {
	store, err := c.objects(ctx, bucket)
	if err != nil {
		return err
	}
	if _, err := store.PutBytes(ctx, name, data); err != nil {
		return fmt.Errorf("put object %s/%s: %w", bucket, name, err)
	}
	return nil
}

// GetObject returns the object of that name, whose digest was checked. It returns ErrNotFound where there is none, and
// ErrTooLarge for one over limit bytes, before it is fetched.
func (c *Conn) GetObject(ctx context.Context, bucket, name string, limit int64) ([]byte, error) {
	store, err := c.objects(ctx, bucket)
	if err != nil {
		return nil, err
	}
	object, err := store.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("object %s/%s: %w", bucket, name, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get object %s/%s: %w", bucket, name, err)
	}
	defer func() { _ = object.Close() }()
	info, err := object.Info()
	if err != nil {
		return nil, fmt.Errorf("get object %s/%s: %w", bucket, name, err)
	}
	if info.Size > uint64(limit) {
		return nil, fmt.Errorf("object %s/%s: %w: %d bytes, the limit is %d", bucket, name, ErrTooLarge, info.Size, limit)
	}
	data, err := io.ReadAll(object)
	if err != nil {
		return nil, fmt.Errorf("get object %s/%s: %w", bucket, name, err)
	}
	return data, nil
}

func (c *Conn) objects(ctx context.Context, bucket string) (jetstream.ObjectStore, error) {
	store, err := c.JS.ObjectStore(ctx, bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("object store %s: %w: has seatrial-provision run?", bucket, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("object store %s: %w", bucket, err)
	}
	return store, nil
}
