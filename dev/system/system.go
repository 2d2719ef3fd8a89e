// Package system runs all of Seatrial in one process, for the demo and for end-to-end tests: an embedded NATS server, and
// the four services as their own programs run them.
package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	executor "github.com/seatrial/seatrial/services/executor/app"
	notifier "github.com/seatrial/seatrial/services/notifier/app"
	planner "github.com/seatrial/seatrial/services/planner/app"
	tester "github.com/seatrial/seatrial/services/tester/app"
)

// Cluster is the name of the one cluster that the system works in.
const Cluster = "local"

// Config is what a system is made of. Start from Defaults.
type Config struct {
	// Dir keeps the streams.
	Dir string
	// Log takes what everything logs.
	Log *slog.Logger

	Planner  planner.Config
	Executor executor.Config
	Tester   tester.Config
	Notifier notifier.Config
	// Testers is how many testers there are.
	Testers int
}

// Defaults returns a system for the cluster that kubeconfig reaches, with one of each service and leases of seconds.
func Defaults(dir, kubeconfig string, log *slog.Logger) Config {
	c := Config{
		Dir: dir, Log: log, Testers: 1,
		Planner: planner.Defaults(), Executor: executor.Defaults(), Tester: tester.Defaults(), Notifier: notifier.Defaults(),
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

	stop  context.CancelFunc
	group *errgroup.Group
}

// Start starts everything. The system runs until Stop; ctx is for the start alone.
func Start(ctx context.Context, cfg Config) (*System, error) {
	server, err := kittest.StartServer(filepath.Join(cfg.Dir, "nats"))
	if err != nil {
		return nil, err
	}
	conn, err := bus.Connect(ctx, bus.Config{URL: server.URL, Name: "system"}, cfg.Log)
	if err != nil {
		server.Stop()
		return nil, err
	}
	if err := bus.Provision(ctx, conn.JS, bus.DefaultLayout(), cfg.Log); err != nil {
		return nil, errors.Join(fmt.Errorf("provision NATS: %w", err), conn.Close(ctx))
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, running := errgroup.WithContext(running)
	s := &System{NATS: server, Conn: conn, stop: stop, group: group}

	cfg.Planner.NATS.URL, cfg.Planner.HTTPAddr, cfg.Planner.Log = server.URL, "", cfg.Log.With("service", "planner")
	group.Go(func() error { return planner.Run(running, cfg.Planner) })
	cfg.Executor.NATS.URL, cfg.Executor.HTTPAddr, cfg.Executor.Log = server.URL, "", cfg.Log.With("service", "executor")
	group.Go(func() error { return executor.Run(running, cfg.Executor) })
	cfg.Notifier.NATS.URL, cfg.Notifier.HTTPAddr, cfg.Notifier.Log = server.URL, "", cfg.Log.With("service", "notifier")
	group.Go(func() error { return notifier.Run(running, cfg.Notifier) })
	for i := range cfg.Testers {
		one := cfg.Tester
		one.NATS.URL, one.HTTPAddr, one.Log = server.URL, "", cfg.Log.With("service", "tester")
		one.Instance = fmt.Sprintf("%s-%d", one.Instance, i)
		group.Go(func() error { return tester.Run(running, one) })
	}
	return s, nil
}

// Stop drains the services and stops the server. It returns what went wrong while they ran.
func (s *System) Stop(ctx context.Context) error {
	s.stop()
	err := s.group.Wait()
	err = errors.Join(err, s.Conn.Close(ctx))
	s.NATS.Stop()
	return err
}
