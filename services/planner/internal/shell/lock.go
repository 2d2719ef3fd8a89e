package shell

import (
	"context"
	"sync"
)

// locks lets one at a time work on each key. The zero value is ready.
type locks struct {
	mu   sync.Mutex
	keys map[string]*lock
}

type lock struct {
	held  chan struct{} // holds one token
	users int           // who holds it and who waits
}

// lock waits until nobody works on the key, or ctx ends.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	k := l.keys[key]
	if k == nil {
		if l.keys == nil {
			l.keys = map[string]*lock{}
		}
		k = &lock{held: make(chan struct{}, 1)}
		l.keys[key] = k
	}
	k.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.keys, key)
		}
	}
	select {
	case k.held <- struct{}{}:
		return func() {
			<-k.held
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// set is a set of names. The zero value is empty.
type set struct {
	names sync.Map
}

// add reports whether the name was not in the set before.
func (s *set) add(name string) bool {
	_, was := s.names.LoadOrStore(name, true)
	return !was
}

func (s *set) remove(name string) { s.names.Delete(name) }
