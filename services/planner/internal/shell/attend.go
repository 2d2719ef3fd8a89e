package shell

import (
	"context"
	"sync"
	"time"

	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
)

// Attend sees to it that no release stands still, until ctx ends. It watches all states, and visits each at its next
// deadline, and those whose writer may have died when they have not changed for TakeOver. Every planner does so; the
// first one to come changes the state, and the others then find nothing to do.
func (s *Shell) Attend(ctx context.Context) error {
	a := &attendance{alarms: map[string]*time.Timer{}, slots: make(chan struct{}, s.options.Slots)}
	defer a.end()
	err := s.releases.Watch(ctx, func(key string, state *pb.ReleaseState, _ uint64) {
		at, ok := s.nextVisit(state)
		a.set(key, at, ok, s.options.TakeOver, func() { s.visit(ctx, key) })
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// nextVisit returns when something may be due in a state that stays as it is.
func (s *Shell) nextVisit(state *pb.ReleaseState) (at time.Time, ok bool) {
	at, ok = core.NextTick(s.options.Policy, state)
	if len(state.GetOutbox()) > 0 || core.Resolving(state) != nil {
		if takeOver := time.Now().Add(s.options.TakeOver); !ok || takeOver.Before(at) {
			at, ok = takeOver, true
		}
	}
	return at, ok
}

// visit does what is due: it publishes an outbox, lets a deadline pass, fetches a chart.
func (s *Shell) visit(ctx context.Context, key string) {
	r, err := subject.ParseKey(key)
	if err == nil {
		err = s.apply(ctx, r, func(ctx context.Context, state *pb.ReleaseState) (core.Input, error) {
			return s.due(ctx, r, state)
		})
	}
	var state *pb.ReleaseState
	if err == nil {
		state, _, err = s.load(ctx, r)
	}
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "cannot attend to a release, trying again", "release", r, "error", err)
	}
	if req := core.Resolving(state); req != nil {
		s.resolve(req)
	}
}

// due returns the input of a deadline. After a time without planners, what was reported meanwhile comes first.
func (s *Shell) due(ctx context.Context, r subject.Release, state *pb.ReleaseState) (core.Input, error) {
	open := state.GetActive().GetOpen()
	if open == nil || open.GetUnpublished() {
		return core.Tick{}, nil
	}
	if unread, err := s.conn.UnreadOutcomes(ctx, r); unread || err != nil {
		return nil, err
	}
	if open.GetStartedAt() != nil {
		return core.Tick{}, nil
	}
	worker := subject.ConsumerExecutor(r.Cluster)
	if open.GetKind() == pb.CommandTest {
		worker = subject.ConsumerTester(r.Cluster, state.GetActive().GetRequest().GetTest().GetPool())
	}
	attended, err := s.conn.AtWork(ctx, r.Cluster, worker)
	return core.Tick{Attended: attended}, err
}

// attendance holds an alarm for each release that is to be visited.
type attendance struct {
	slots  chan struct{} // one token per visit
	visits sync.WaitGroup

	mu     sync.Mutex
	alarms map[string]*time.Timer
	ended  bool
}

// set puts the alarm of a key in place of the one before. It rings at the given time and then, for a visit that failed or
// changed nothing, again each time after a pause.
func (a *attendance) set(key string, at time.Time, ok bool, pause time.Duration, visit func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.alarms[key]; old != nil {
		old.Stop()
		delete(a.alarms, key)
	}
	if !ok || a.ended {
		return
	}
	var alarm *time.Timer
	alarm = time.AfterFunc(time.Until(at), func() {
		a.mu.Lock()
		if a.alarms[key] != alarm { // stopped a moment too late
			a.mu.Unlock()
			return
		}
		alarm.Reset(pause)
		a.visits.Add(1)
		a.mu.Unlock()
		defer a.visits.Done()
		a.slots <- struct{}{}
		defer func() { <-a.slots }()
		visit()
	})
	a.alarms[key] = alarm
}

// end stops all alarms and returns when the last visit has ended.
func (a *attendance) end() {
	a.mu.Lock()
	a.ended = true
	for key, alarm := range a.alarms {
		alarm.Stop()
		delete(a.alarms, key)
	}
	a.mu.Unlock()
	a.visits.Wait()
}
