// Package app wires the executor together.
package app

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/seatrial/seatrial/internal/helm/action"
	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
)

// Config is all that an executor can be told. Start from Defaults.
type Config struct {
	service.Config
	// Cluster is the name by which subjects call the cluster that this executor works in.
	Cluster string
	// Kubeconfig is the file that says how to reach the cluster; empty means from inside of it.
	Kubeconfig string
	// Namespace is the executor's own: it keeps the key of the quarantine there.
	Namespace string
	// Slots is how many commands are carried out at once.
	Slots int
	// LeaseTTL is how long a release stays with an executor that is not heard of any more.
	LeaseTTL time.Duration
	// RequestTimeout bounds each request to the API server that changes something.
	RequestTimeout time.Duration
}

// Defaults returns the configuration of an executor when nobody says anything.
func Defaults() Config {
	return Config{
		Config:         service.Defaults("executor"),
		Cluster:        "local",
		Namespace:      cmp.Or(os.Getenv("POD_NAMESPACE"), "seatrial-system"),
		Slots:          4,
		LeaseTTL:       time.Minute,
		RequestTimeout: 15 * time.Second,
	}
}

// Flags adds a flag for each setting to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Config.Flags(fs)
	fs.StringVar(&c.Cluster, "cluster", c.Cluster, "`name` of the cluster, as in the subjects")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "`file` that says how to reach the cluster; empty: from inside of it")
	fs.StringVar(&c.Namespace, "namespace", c.Namespace, "the executor's own `namespace`, where it keeps the key of the quarantine; by default that of POD_NAMESPACE")
	fs.IntVar(&c.Slots, "slots", c.Slots, "how many commands are carried out at once")
	fs.DurationVar(&c.LeaseTTL, "lease-ttl", c.LeaseTTL, "how long a release stays with an executor that is not heard of any more")
	fs.DurationVar(&c.RequestTimeout, "request-timeout", c.RequestTimeout, "bound of each request that changes something in the cluster; at most half of the lease TTL")
}

// Run runs an executor until ctx ends, and then drains it: work under way is finished within the grace, or called off.
func Run(ctx context.Context, cfg Config) error {
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

		e := &executor{cfg: cfg, conn: conn, runner: &action.Runner{Client: client, Namespace: cfg.Namespace, Log: s.Log}}
		worker := &bus.Worker{
			Conn:           conn,
			Service:        cfg.Name,
			Instance:       cfg.Instance,
			Durable:        subject.ConsumerExecutor(cfg.Cluster),
			Slots:          cfg.Slots,
			LeaseTTL:       cfg.LeaseTTL,
			RequestTimeout: cfg.RequestTimeout,
			Grace:          cfg.ShutdownGrace,
			Log:            s.Log,
			Do:             e.do,
		}
		if err := worker.Validate(); err != nil {
			return fmt.Errorf("%w: %w", service.ErrUsage, err)
		}
		s.Go("commands", worker.Run)
		return nil
	})
}
