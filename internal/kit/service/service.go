// Package service is what every main shares: flags and environment variables, the logger, health, metrics, and the
// life of a process from its start to its drained end.
//
// A main looks like this:
//
//	func main() {
//		cfg := app.Defaults()
//		os.Exit(service.Main("seatrial-planner", os.Args[1:], cfg.Flags, func(ctx context.Context) error {
//			return app.Run(ctx, cfg)
//		}))
//	}
//
// where app.Config embeds Config, app.Defaults calls Defaults("planner"), and app.Run adds the parts:
//
//	func Run(ctx context.Context, cfg Config) error {
//		return service.Run(ctx, cfg.Config, func(ctx context.Context, s *service.Service) error {
//			conn, err := bus.Connect(ctx, cfg.NATS, s.Log)
//			if err != nil {
//				return err
//			}
//			s.Defer("drain NATS", conn.Close)
//			s.Check("nats", conn.Healthy)
//			s.Go("requests", func(ctx context.Context) error { ... })
//			return nil
//		})
//	}
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// overtime is what a part gets to return after the grace that it gives to its own work.
const overtime = 5 * time.Second

// ErrEnded is returned by Run when a part returned without an error although nobody had told it to stop.
var ErrEnded = errors.New("ended by itself")

// ErrStuck is returned by Run when a part did not return in time after it was told to stop. Its goroutine is still
// there: the process should end.
var ErrStuck = errors.New("did not stop in time")

// Service is one service while it runs: what its parts share, and how they are added.
type Service struct {
	Log *slog.Logger
	// Metrics is this service's own registry: several services can run in one process.
	Metrics *prometheus.Registry

	grace  time.Duration
	health *health
	ctx    context.Context // that of the parts
	stop   context.CancelFunc
	parts  sync.WaitGroup

	mu       sync.Mutex
	running  map[string]int
	errs     []error
	deferred []step
}

// step is something to do at the end.
type step struct {
	name string
	do   func(context.Context) error
}

// Run runs a service until ctx ends or one of its parts returns, and then to its end: the context of every part ends,
// and after the last one has returned, what was deferred is done in reverse order.
//
// setup connects and adds the parts. HTTP is served from the beginning; /readyz says 503 until setup has returned nil,
// and again from the moment the service is told to stop. Run returns nil when ctx has ended and nothing failed.
func Run(ctx context.Context, cfg Config, setup func(ctx context.Context, s *Service) error) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	if cfg.Log == nil {
		cfg.Log = NewLogger(cfg, os.Stderr)
	}
	s := &Service{
		Log:     cfg.Log,
		Metrics: prometheus.NewRegistry(),
		grace:   cfg.ShutdownGrace,
		health:  &health{state: starting},
		running: map[string]int{},
	}
	s.Metrics.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.ctx, s.stop = context.WithCancel(ctx)
	defer s.stop()

	closeHTTP, err := s.serveHTTP(cfg)
	if err != nil {
		return err
	}
	defer closeHTTP()

	s.Log.Info("starting", "version", Version)
	switch err := setup(s.ctx, s); {
	case err == nil:
		s.health.set(ready)
		<-s.ctx.Done()
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()): // told to stop before it was up is no failure
		s.fail(err)
	}
	s.health.set(stopping)
	s.stop()
	s.Log.Info("stopping")
	s.finish(context.WithoutCancel(ctx))
	s.Log.Info("stopped")

	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}

// Go adds a part, which runs until its context ends. A part that returns earlier, with an error or without, stops the
// service: nothing ends unnoticed. Once the context has ended, returning its error is as good as returning nil.
func (s *Service) Go(name string, part func(ctx context.Context) error) {
	s.mu.Lock()
	s.running[name]++
	s.mu.Unlock()
	s.parts.Go(func() {
		err := part(s.ctx)
		switch {
		case s.ctx.Err() == nil && err == nil:
			s.fail(fmt.Errorf("%s %w", name, ErrEnded))
		case err != nil && (s.ctx.Err() == nil || !errors.Is(err, s.ctx.Err())):
			s.fail(fmt.Errorf("%s: %w", name, err))
		}
		s.mu.Lock()
		if s.running[name]--; s.running[name] == 0 {
			delete(s.running, name)
		}
		s.mu.Unlock()
		s.stop()
	})
}

// Check adds a check to /readyz. It returns nil while the service can work, and does not block.
func (s *Service) Check(name string, check func() error) { s.health.add(name, check) }

// Defer adds something to do after all parts have returned, also when setup failed: draining a connection, flushing
// telemetry. Its context is a fresh one that lasts for the grace.
func (s *Service) Defer(name string, do func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deferred = append(s.deferred, step{name, do})
}

// finish waits for the parts and does what was deferred.
func (s *Service) finish(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		s.parts.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(s.grace + overtime):
		s.mu.Lock()
		names := slices.Sorted(maps.Keys(s.running))
		s.mu.Unlock()
		s.fail(fmt.Errorf("%s: %w (%s)", strings.Join(names, ", "), ErrStuck, s.grace+overtime))
	}

	s.mu.Lock()
	steps := s.deferred
	s.mu.Unlock()
	for _, step := range slices.Backward(steps) {
		stepCtx, cancel := context.WithTimeout(ctx, s.grace+overtime)
		if err := step.do(stepCtx); err != nil {
			s.fail(fmt.Errorf("%s: %w", step.name, err))
		}
		cancel()
	}
}

// fail keeps err as a reason of the end. The first one is logged at once: draining can take a while.
func (s *Service) fail(err error) {
	s.Log.Error("failed", "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, err)
}
