// Package app wires the tester together.
package app

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/services/tester/internal/run"
)

// Config is all that a tester can be told. Start from Defaults.
type Config struct {
	service.Config
	// Cluster is the name by which subjects call the cluster that this tester works in.
	Cluster string
	// Pool is the pool of testers that this one belongs to; empty is the default pool.
	Pool string
	// Kubeconfig is the file that says how to reach the cluster; empty means from inside of it.
	Kubeconfig string
	// Slots is how many test runs go on at once.
	Slots int
	// LeaseTTL is how long a release stays with a tester that is not heard of any more.
	LeaseTTL time.Duration
	// RequestTimeout bounds each request to the API server that changes something.
	RequestTimeout time.Duration
	// StuckGrace is how long a waiting reason that does not heal by itself is given before a test counts as errored.
	StuckGrace time.Duration
	// LogTimeout bounds the reading of one test's logs, CleanUpTimeout the deletions after a run.
	LogTimeout     time.Duration
	CleanUpTimeout time.Duration
}

// Defaults returns the configuration of a tester when nobody says anything.
func Defaults() Config {
	return Config{
		Config:         service.Defaults("tester"),
		Cluster:        "local",
		Slots:          8,
		LeaseTTL:       time.Minute,
		RequestTimeout: 15 * time.Second,
		StuckGrace:     10 * time.Second,
		LogTimeout:     10 * time.Second,
		CleanUpTimeout: 30 * time.Second,
	}
}

// Flags adds a flag for each setting to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Config.Flags(fs)
	fs.StringVar(&c.Cluster, "cluster", c.Cluster, "`name` of the cluster, as in the subjects")
	fs.StringVar(&c.Pool, "pool", c.Pool, "`name` of the tester pool; empty is the default pool")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "`file` that says how to reach the cluster; empty: from inside of it")
	fs.IntVar(&c.Slots, "slots", c.Slots, "how many test runs go on at once")
	fs.DurationVar(&c.LeaseTTL, "lease-ttl", c.LeaseTTL, "how long a release stays with a tester that is not heard of any more")
	fs.DurationVar(&c.RequestTimeout, "request-timeout", c.RequestTimeout, "bound of each request that changes something in the cluster; at most half of the lease TTL")
	fs.DurationVar(&c.StuckGrace, "stuck-grace", c.StuckGrace, "how long an image that cannot be pulled, and the like, is given before the test counts as errored")
	fs.DurationVar(&c.LogTimeout, "log-timeout", c.LogTimeout, "bound of the reading of one test's logs")
	fs.DurationVar(&c.CleanUpTimeout, "clean-up-timeout", c.CleanUpTimeout, "bound of the deletions after a run")
}

// Validate checks what the types of the flags do not.
func (c Config) Validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	for name, d := range map[string]time.Duration{"stuck-grace": c.StuckGrace, "log-timeout": c.LogTimeout, "clean-up-timeout": c.CleanUpTimeout} {
		if d <= 0 {
			return fmt.Errorf("%w: --%s %s: must be positive", service.ErrUsage, name, d)
		}
	}
	if err := subject.ValidateCluster(c.Cluster); err != nil {
		return fmt.Errorf("%w: --cluster: %w", service.ErrUsage, err)
	}
	if c.Pool != "" {
		if err := subject.ValidatePool(c.Pool); err != nil {
			return fmt.Errorf("%w: --pool: %w", service.ErrUsage, err)
		}
	}
	if err := c.worker().Validate(); err != nil {
		return fmt.Errorf("%w: %w", service.ErrUsage, err)
	}
	return nil
}

// worker returns the worker of this configuration, without what it works with.
func (c Config) worker() *bus.Worker {
	return &bus.Worker{
		Service:        c.Name,
		Instance:       c.Instance,
		Durable:        subject.ConsumerTester(c.Cluster, c.Pool),
		Slots:          c.Slots,
		LeaseTTL:       c.LeaseTTL,
		RequestTimeout: c.RequestTimeout,
		Grace:          c.ShutdownGrace,
	}
}

// Run runs a tester until ctx ends, and then drains it: work under way is finished within the grace, or handed back.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	return service.Run(ctx, cfg.Config, func(ctx context.Context, s *service.Service) error {
		if cfg.Log == nil { // the process is this service's alone
			kube.LogTo(s.Log)
		}
		client, err := kube.Connect(cfg.Kubeconfig)
		if err != nil {
			return err
		}
		conn, err := bus.Connect(ctx, cfg.NATS, s.Log)
		if err != nil {
			return err
		}
		s.Defer("drain NATS", conn.Close)
		s.Check("nats", conn.Healthy)

		tester := &tester{cfg: cfg, log: s.Log, client: client, runner: run.Runner{
			StuckGrace:     cfg.StuckGrace,
			LogTimeout:     cfg.LogTimeout,
			CleanUpTimeout: cfg.CleanUpTimeout,
		}}
		worker := cfg.worker()
		worker.Conn, worker.Log, worker.Do = conn, s.Log, tester.do
		s.Go("commands", worker.Run)
		return nil
	})
}
