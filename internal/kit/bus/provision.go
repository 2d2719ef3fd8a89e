package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Provision makes everything that the layout asks for, and changes what is different. Nothing is ever deleted, and what
// the layout says nothing about stays as it is. It waits for servers that do not answer yet, until ctx ends. It returns
// ErrDrift for a difference that cannot be changed; that stream or consumer then stays as it is. It can be run again after
// any error.
func Provision(ctx context.Context, js jetstream.JetStream, layout Layout, log *slog.Logger) error {
	if err := layout.Validate(); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	p := provisioner{js: js, log: log}
	for _, config := range layout.streams() {
		if err := p.patiently(ctx, func() error { return p.stream(ctx, config) }); err != nil {
			return fmt.Errorf("provision stream %s: %w", config.Name, err)
		}
	}
	for _, config := range layout.buckets() {
		if err := p.patiently(ctx, func() error { return p.bucket(ctx, config) }); err != nil {
			return fmt.Errorf("provision bucket %s: %w", config.Bucket, err)
		}
	}
	for _, config := range layout.objects() {
		if err := p.patiently(ctx, func() error { return p.objects(ctx, config) }); err != nil {
			return fmt.Errorf("provision object store %s: %w", config.Bucket, err)
		}
	}
	for _, c := range layout.consumers() {
		if err := p.patiently(ctx, func() error { return p.consumer(ctx, c) }); err != nil {
			return fmt.Errorf("provision consumer %s of stream %s: %w", c.config.Durable, c.stream, err)
		}
	}
	log.InfoContext(ctx, "all streams, buckets and consumers are as they should be")
	return nil
}

type provisioner struct {
	js  jetstream.JetStream
	log *slog.Logger
}

// patiently tries a step until it ends with anything but servers that cannot do it yet: those that have just started may
// still be choosing a leader.
func (p provisioner) patiently(ctx context.Context, step func() error) error {
	pause := newBackoff()
	var reason error
	for {
		err := step()
		if err == nil || ctx.Err() == nil && !unavailable(err) {
			return err
		}
		if reason == nil || ctx.Err() == nil {
			reason = err
		}
		p.log.InfoContext(ctx, "waiting for JetStream", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("JetStream cannot do it: is it enabled on the servers and for this account, and are there as many servers as replicas? %w (%w)", context.Cause(ctx), reason)
		case <-time.After(pause.step()):
		}
	}
}

// codeNoPeers is the answer of a cluster that has not as many servers as there are to be replicas, or not yet.
const codeNoPeers jetstream.ErrorCode = 10005

// unavailable says that the servers cannot do it now.
func unavailable(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.Code == http.StatusServiceUnavailable || api.ErrorCode == codeNoPeers) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders)
}

func (p provisioner) stream(ctx context.Context, want jetstream.StreamConfig) error {
	create := func() error {
		_, err := p.js.CreateStream(ctx, want)
		return err
	}
	return p.reconcile(ctx, want.Name, create, func(c *jetstream.StreamConfig) {
		c.Description = want.Description
		c.Subjects = want.Subjects
		c.Retention = want.Retention
		c.Storage = want.Storage
		c.Replicas = want.Replicas
		c.MaxAge = want.MaxAge
		c.Discard = want.Discard
		c.DiscardNewPerSubject = want.DiscardNewPerSubject
		c.Duplicates = want.Duplicates
		c.AllowDirect = want.AllowDirect
		c.DenyDelete = want.DenyDelete
		c.DenyPurge = want.DenyPurge
		if want.MaxMsgsPerSubject > 0 {
			c.MaxMsgsPerSubject = want.MaxMsgsPerSubject
		}
	})
}

func (p provisioner) bucket(ctx context.Context, want jetstream.KeyValueConfig) error {
	create := func() error {
		_, err := p.js.CreateKeyValue(ctx, want)
		return err
	}
	return p.reconcile(ctx, bucketStream(want.Bucket), create, func(c *jetstream.StreamConfig) {
		c.Description = want.Description
		c.Retention = jetstream.LimitsPolicy
		c.Storage = want.Storage
		c.Replicas = want.Replicas
		c.MaxAge = want.TTL
		c.MaxMsgsPerSubject = int64(want.History)
		if want.LimitMarkerTTL > 0 {
			c.AllowMsgTTL = true
			c.SubjectDeleteMarkerTTL = want.LimitMarkerTTL
		}
	})
}

func (p provisioner) objects(ctx context.Context, want jetstream.ObjectStoreConfig) error {
	create := func() error {
		_, err := p.js.CreateObjectStore(ctx, want)
		return err
	}
	return p.reconcile(ctx, "OBJ_"+want.Bucket, create, func(c *jetstream.StreamConfig) {
		c.Description = want.Description
		c.Retention = jetstream.LimitsPolicy
		c.Storage = want.Storage
		c.Replicas = want.Replicas
		c.MaxAge = want.TTL
	})
}

// reconcile creates a stream, or makes it what apply says. Buckets and object stores are streams too.
func (p provisioner) reconcile(ctx context.Context, name string, create func() error, apply func(*jetstream.StreamConfig)) error {
	stream, err := p.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err := create(); err != nil {
			return err
		}
		p.log.InfoContext(ctx, "created", "stream", name)
		return nil
	}
	if err != nil {
		return err
	}
	has := stream.CachedInfo().Config
	want := has
	apply(&want)
	if err := drift(
		difference{"retention", has.Retention, want.Retention},
		difference{"storage", has.Storage, want.Storage},
	); err != nil {
		return err
	}
	if reflect.DeepEqual(has, want) {
		p.log.DebugContext(ctx, "unchanged", "stream", name)
		return nil
	}
	if _, err := p.js.UpdateStream(ctx, want); err != nil {
		return err
	}
	p.log.InfoContext(ctx, "changed", "stream", name)
	return nil
}

// consumer creates a durable consumer, or makes it what its configuration says.
func (p provisioner) consumer(ctx context.Context, c consumer) error {
	existing, err := p.js.Consumer(ctx, c.stream, c.config.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if _, err := p.js.CreateConsumer(ctx, c.stream, c.config); err != nil {
			return err
		}
		p.log.InfoContext(ctx, "created", "stream", c.stream, "consumer", c.config.Durable)
		return nil
	}
	if err != nil {
		return err
	}
	has := existing.CachedInfo().Config
	if err := drift(
		difference{"deliver policy", has.DeliverPolicy, c.config.DeliverPolicy},
		difference{"ack policy", has.AckPolicy, c.config.AckPolicy},
	); err != nil {
		return err
	}
	want := has
	want.FilterSubject, want.FilterSubjects = "", c.config.FilterSubjects
	want.AckWait = c.config.AckWait
	want.BackOff = nil
	want.MaxDeliver = c.config.MaxDeliver
	want.MaxAckPending = c.config.MaxAckPending
	if reflect.DeepEqual(has, want) {
		p.log.DebugContext(ctx, "unchanged", "stream", c.stream, "consumer", c.config.Durable)
		return nil
	}
	if _, err := p.js.UpdateConsumer(ctx, c.stream, want); err != nil {
		return err
	}
	p.log.InfoContext(ctx, "changed", "stream", c.stream, "consumer", c.config.Durable)
	return nil
}

// difference is a setting that the server does not change.
type difference struct {
	setting   string
	has, want fmt.Stringer
}

// drift returns ErrDrift for the differences that there are.
func drift(differences ...difference) error {
	var errs []error
	for _, d := range differences {
		if d.has != d.want {
			errs = append(errs, fmt.Errorf("%w: %s is %s, wanted is %s", ErrDrift, d.setting, d.has, d.want))
		}
	}
	return errors.Join(errs...)
}
