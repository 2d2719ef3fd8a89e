package bus

import (
	"fmt"
	"sync"
	"time"
)

// Gate lets mutating requests pass while a claim's lease is surely held. Once closed it stays closed.
type Gate struct {
	ttl    time.Duration // of the lease
	margin time.Duration // how long before its end no request may start
	now    func() time.Time

	mu        sync.Mutex
	confirmed time.Time     // when the last renewal that was confirmed had been sent
	changed   chan struct{} // closed and replaced at each change
	closed    error
	onClose   func(error)
}

func newGate(ttl, requestTimeout time.Duration, confirmed time.Time, now func() time.Time, onClose func(error)) *Gate {
	return &Gate{
		ttl: ttl, margin: requestTimeout, now: now,
		confirmed: confirmed, changed: make(chan struct{}), onClose: onClose,
	}
}

// Check returns nil when a mutating request may start now: one that ends within the request time-out ends before
// anybody else can hold the lease. While the last confirmation is too old for that, but the lease has not run out, it
// waits for the next one, for the request time-out at most: a short outage of NATS makes a request late, not fail.
// Otherwise it returns an error that wraps ErrLeaseLost or ErrTakenOver, from then on for ever.
func (g *Gate) Check() error {
	for {
		left, changed, err := g.state()
		if err != nil {
			return err
		}
		if left > g.margin {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// state returns how much of the lease is left, and a channel that is closed when that has changed. It closes the gate
// when nothing is left.
func (g *Gate) state() (left time.Duration, changed <-chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		if left = g.ttl - g.age(); left <= 0 {
			g.closeLocked(fmt.Errorf("%w: not confirmed for %s", ErrLeaseLost, g.ttl-left))
		}
	}
	return left, g.changed, g.closed
}

// age of the last confirmation. The wall clock counts too: the other one stands still while a machine is suspended.
func (g *Gate) age() time.Duration {
	now := g.now()
	return max(now.Sub(g.confirmed), now.Round(0).Sub(g.confirmed.Round(0)))
}

// confirm notes that a renewal was confirmed, and when it had been sent.
func (g *Gate) confirm(sent time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.confirmed = sent
	g.signal()
}

// close closes the gate, with a reason that wraps ErrLeaseLost or ErrTakenOver. The first reason stands.
func (g *Gate) close(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closeLocked(reason)
	}
}

// lost returns why the gate is closed, nil while it is open.
func (g *Gate) lost() error {
	_, _, err := g.state()
	return err
}

// end closes the gate when the work is over.
func (g *Gate) end() { g.close(fmt.Errorf("%w: the work is over", ErrLeaseLost)) }

func (g *Gate) closeLocked(reason error) {
	g.closed = reason
	g.signal()
	g.onClose(reason)
}

func (g *Gate) signal() {
	close(g.changed)
	g.changed = make(chan struct{})
}
