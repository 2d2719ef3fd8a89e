// Package system runs all of Seatrial in one process, for people who try it and for end-to-end tests: an embedded NATS
// server, and the four services as their own programs run them.
package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/service"
	executor "github.com/seatrial/seatrial/services/executor/app"
	notifier "github.com/seatrial/seatrial/services/notifier/app"
	planner "github.com/seatrial/seatrial/services/planner/app"
	tester "github.com/seatrial/seatrial/services/tester/app"
)

// Cluster is the name of the one cluster that the system works in.
const Cluster = "local"

// readyBeat is the pause between two looks whether a service is ready.
const readyBeat = 20 * time.Millisecond

// Config is what a system is made of. Start from Defaults.
type Config struct {
	// Dir keeps the streams. A system that is started later on the same Dir has them again.
	Dir string
	// NATSPort is the port of NATS on 127.0.0.1; 0 takes a free one.
	NATSPort int
	// Log takes what everything logs.
	Log *slog.Logger

	Planner  planner.Config
	Executor executor.Config
	Tester   tester.Config
	Notifier notifier.Config
	// Testers is how many testers there are. Several of them need port 0 in Tester.HTTPAddr.
	Testers int
}

// Defaults returns a system for the cluster that kubeconfig reaches, with one of each service, leases of seconds and free
// ports.
func Defaults(dir, kubeconfig string, log *slog.Logger) Config {
	c := Config{
		Dir: dir, Log: log, Testers: 1,
		Planner: planner.Defaults(), Executor: executor.Defaults(), Tester: tester.Defaults(), Notifier: notifier.Defaults(),
	}
	for _, shared := range []*service.Config{&c.Planner.Config, &c.Executor.Config, &c.Tester.Config, &c.Notifier.Config} {
		shared.HTTPAddr = "127.0.0.1:0"
	}
	c.Executor.Kubeconfig, c.Tester.Kubeconfig = kubeconfig, kubeconfig
	c.Executor.Cluster, c.Tester.Cluster = Cluster, Cluster
	c.Executor.LeaseTTL, c.Tester.LeaseTTL = 4*time.Second, 4*time.Second
	c.Executor.RequestTimeout, c.Tester.RequestTimeout = 2*time.Second, 2*time.Second
	return c
}

// System is a running one.
type System struct {
	// NATS is the embedded server.
	NATS *kittest.Server
	// Conn is a connection with all rights, for those who watch.
	Conn *bus.Conn

	log   *slog.Logger
	stop  context.CancelFunc
	group *errgroup.Group
	down  <-chan struct{}
	// addresses are where the services say whether they are ready; each is told once.
	addresses []<-chan string
}

// Start starts everything, and returns when all services are ready. The system runs until Stop; ctx is for the start
// alone.
func Start(ctx context.Context, cfg Config) (*System, error) {
	server, err := kittest.StartServerAt(cfg.NATSPort, filepath.Join(cfg.Dir, "nats"))
	if err != nil {
		return nil, err
	}
	conn, err := bus.Connect(ctx, bus.Config{URL: server.URL, Name: "system"}, cfg.Log)
	if err != nil {
		server.Stop()
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, running := errgroup.WithContext(running)
	s := &System{NATS: server, Conn: conn, log: cfg.Log, stop: stop, group: group, down: running.Done()}
	if err := bus.Provision(ctx, conn.JS, bus.DefaultLayout(), cfg.Log); err != nil {
		return nil, errors.Join(fmt.Errorf("provision NATS: %w", err), s.Stop(context.WithoutCancel(ctx)))
	}

	s.adopt(&cfg.Planner.Config)
	group.Go(func() error { return planner.Run(running, cfg.Planner) })
	s.adopt(&cfg.Executor.Config)
	group.Go(func() error { return executor.Run(running, cfg.Executor) })
	s.adopt(&cfg.Notifier.Config)
	group.Go(func() error { return notifier.Run(running, cfg.Notifier) })
	for i := range cfg.Testers {
		one := cfg.Tester
		s.adopt(&one.Config)
		one.Instance = fmt.Sprintf("%s-%d", one.Instance, i)
		group.Go(func() error { return tester.Run(running, one) })
	}
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// adopt makes a service part of the system.
func (s *System) adopt(cfg *service.Config) {
	address := make(chan string, 1)
	cfg.NATS.URL, cfg.Log = s.NATS.URL, s.log.With("service", cfg.Name)
	cfg.Listening = func(a net.Addr) { address <- a.String() }
	s.addresses = append(s.addresses, address)
}

// errEnded says that there is no use in waiting. Why a service has ended is Stop's to tell.
var errEnded = errors.New("a service has ended")

// ready returns nil once all services are ready.
func (s *System) ready(ctx context.Context) error {
	for _, told := range s.addresses {
		select {
		case address := <-told:
			if err := s.readyAt(ctx, address); err != nil {
				return err
			}
		case <-s.down:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *System) readyAt(ctx context.Context, address string) error {
	tick := time.NewTicker(readyBeat)
	defer tick.Stop()
	for {
		err := service.Ready(ctx, address)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.down:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// Down is closed when a service has ended although nobody had told it to. Stop then returns why.
func (s *System) Down() <-chan struct{} { return s.down }

// Stop drains the services and stops the server. It returns what went wrong while they ran.
func (s *System) Stop(ctx context.Context) error {
	s.stop()
	err := s.group.Wait()
	err = errors.Join(err, s.Conn.Close(ctx))
	s.NATS.Stop()
	return err
}
