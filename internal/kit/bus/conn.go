// Package bus is the way of every service to NATS: the connection, provisioning, publishing, consuming, buckets with
// compare-and-set, object stores, and the work of executors and testers with its ledger, leases and gate.
//
// What is published is published once: with an id, until the stream has confirmed it. What is consumed is acknowledged
// once its handler has returned, and the acknowledgement is confirmed by the server.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Config says how to reach NATS.
type Config struct {
	// URL names the servers, separated by commas.
	URL string
	// Creds is a file with user credentials, NKey one with the seed of an NKey.
	Creds string
	NKey  string
	// CA, Cert and Key are PEM files: whom to trust, and who this client is.
	CA   string
	Cert string
	Key  string
	// Name is the connection's name in the server's monitoring.
	Name string
	// InboxPrefix is where answers come in. Under restricted permissions every service needs one of its own; empty
	// means _INBOX.
	InboxPrefix string
}

// tellAgain is how often it is logged that NATS cannot be reached: attempts come several times a second.
const tellAgain = 10 * time.Second

// Conn is a connection to NATS that reconnects for ever.
type Conn struct {
	NC *nats.Conn
	JS jetstream.JetStream

	log    *slog.Logger
	closed chan struct{} // the connection is closed for good

	mu     sync.Mutex
	faults map[string]error // why Healthy is not nil, by what is concerned
	anew   chan struct{}    // closed and replaced when the connection was made anew
}

// Connect connects and waits until it is connected, ctx ends, or the servers refuse the credentials.
func Connect(ctx context.Context, cfg Config, log *slog.Logger) (*Conn, error) {
	c := &Conn{log: log, closed: make(chan struct{}), faults: map[string]error{}, anew: make(chan struct{})}
	connected := make(chan struct{})
	var told time.Time // when a failed attempt was last logged
	opts := []nats.Option{
		nats.Name(cfg.Name),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 250*time.Millisecond),
		nats.ConnectHandler(func(*nats.Conn) { close(connected) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("disconnected from NATS", "error", err)
			}
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			if time.Since(told) < tellAgain {
				return
			}
			told = time.Now()
			log.Warn("cannot connect to NATS", "error", err) // it names the server; the URL may hold a password
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("connected to NATS again", "url", nc.ConnectedUrlRedacted())
			c.repaired(permissions)
			c.tellReconnected()
		}),
		nats.ErrorHandler(c.asyncError),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
	}
	opts = append(opts, cfg.options()...)
	var err error
	if c.NC, err = nats.Connect(cfg.URL, opts...); err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", cfg.URL, err)
	}
	if c.JS, err = jetstream.New(c.NC); err != nil {
		c.NC.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", cfg.URL, err)
	}
	select {
	case <-connected:
		return c, nil
	case <-c.closed:
		return nil, fmt.Errorf("connect to NATS at %s: %w", cfg.URL, c.closedError())
	case <-ctx.Done():
		err := errors.Join(context.Cause(ctx), c.NC.LastError())
		c.NC.Close()
		return nil, fmt.Errorf("connect to NATS at %s: %w", cfg.URL, err)
	}
}

// options returns those of the files and the inbox.
func (cfg Config) options() []nats.Option {
	var opts []nats.Option
	if cfg.Creds != "" {
		opts = append(opts, nats.UserCredentials(cfg.Creds))
	}
	if cfg.NKey != "" {
		opts = append(opts, func(o *nats.Options) error {
			option, err := nats.NkeyOptionFromSeed(cfg.NKey)
			if err != nil {
				return err
			}
			return option(o)
		})
	}
	if cfg.CA != "" {
		opts = append(opts, nats.RootCAs(cfg.CA))
	}
	if cfg.Cert != "" || cfg.Key != "" {
		opts = append(opts, nats.ClientCert(cfg.Cert, cfg.Key))
	}
	if cfg.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(cfg.InboxPrefix))
	}
	return opts
}

// permissions is the concern of faults that a refused subject causes.
const permissions = "permissions"

// asyncError logs what the server or the client complains about outside of any call. A permission error also makes the
// connection unhealthy until it is made anew: the call that it concerns only times out, and says nothing of it.
func (c *Conn) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	attrs := []any{"error", err}
	if sub != nil {
		attrs = append(attrs, "subject", sub.Subject)
	}
	c.log.Error("NATS error", attrs...)
	if errors.Is(err, nats.ErrPermissionViolation) {
		c.fault(permissions, err)
	}
}

// fault makes Healthy say err until what it concerns is repaired.
func (c *Conn) fault(concern string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults[concern] = err
}

func (c *Conn) repaired(concern string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.faults, concern)
}

// reconnected returns a channel that is closed when the connection is made anew.
func (c *Conn) reconnected() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.anew
}

func (c *Conn) tellReconnected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.anew)
	c.anew = make(chan struct{})
}

// Healthy returns nil while the connection is up, no subject was refused, and every consumer that is worked on exists.
func (c *Conn) Healthy() error {
	if status := c.NC.Status(); status != nats.CONNECTED {
		return fmt.Errorf("NATS is %s", status)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, concern := range slices.Sorted(maps.Keys(c.faults)) {
		errs = append(errs, fmt.Errorf("%s: %w", concern, c.faults[concern]))
	}
	return errors.Join(errs...)
}

// Close drains the connection: what was published is sent, what was received is handled. It returns when that is done
// or ctx ends; the connection is closed in either case.
func (c *Conn) Close(ctx context.Context) error {
	if err := c.NC.Drain(); errors.Is(err, nats.ErrConnectionClosed) {
		return nil
	} else if err != nil {
		c.NC.Close()
		return fmt.Errorf("drain NATS: %w", err)
	}
	select {
	case <-c.closed:
		return nil
	case <-ctx.Done():
		c.NC.Close()
		return fmt.Errorf("drain NATS: %w", context.Cause(ctx))
	}
}

// closedError says why the connection is closed for good.
func (c *Conn) closedError() error {
	if err := c.NC.LastError(); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return ErrClosed
}

// pause waits for d, or until ctx ends or the connection is closed for good, and returns why it did not wait so long.
func (c *Conn) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.closed:
		return c.closedError()
	}
}

// backoff is a growing pause between tries.
type backoff struct {
	next, most time.Duration
}

func newBackoff() *backoff { return &backoff{next: 100 * time.Millisecond, most: 5 * time.Second} }

// step returns the next pause.
func (b *backoff) step() time.Duration {
	d := b.next
	b.next = min(2*b.next, b.most)
	return d
}
