// Package app is seatrial-provision.
package app

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/service"
)

// Config says what to provision, and where. Start from Defaults.
type Config struct {
	service.Config
	// Clusters are the names of the Kubernetes clusters.
	Clusters List
	// Pools are the named tester pools, each as cluster/pool.
	Pools List
	// Replicas and AckWait are those of bus.Layout.
	Replicas int
	AckWait  time.Duration
	// Timeout is how long to wait for NATS, and to work, at most.
	Timeout time.Duration
}

// Defaults returns the configuration when nobody says anything: one cluster named `local`, on one server.
func Defaults() Config {
	layout := bus.DefaultLayout()
	cfg := Config{
		Config:   service.Defaults("provision"),
		Replicas: layout.Replicas,
		AckWait:  layout.AckWait,
		Timeout:  time.Minute,
	}
	for _, cluster := range layout.Clusters {
		cfg.Clusters = append(cfg.Clusters, cluster.Name)
	}
	return cfg
}

// Flags adds a flag for each setting to fs; of those of all services, the ones that a program which ends by itself has
// a use for.
func (c *Config) Flags(fs *flag.FlagSet) {
	shared := flag.NewFlagSet("", flag.ContinueOnError)
	c.Config.Flags(shared)
	shared.VisitAll(func(f *flag.Flag) {
		if strings.HasPrefix(f.Name, "nats-") || strings.HasPrefix(f.Name, "log-") {
			fs.Var(f.Value, f.Name, f.Usage)
		}
	})
	fs.Var(&c.Clusters, "clusters", "`names` of the Kubernetes clusters, separated by commas")
	fs.Var(&c.Pools, "pools", "named tester pools as `cluster/pool`, separated by commas; every cluster has the default pool")
	fs.IntVar(&c.Replicas, "replicas", c.Replicas, "`number` of servers that keep each stream and bucket: 1, 3 or 5")
	fs.DurationVar(&c.AckWait, "ack-wait", c.AckWait,
		"after how long without a sign of life a message is given to another process; longer than the restart of a server")
	fs.DurationVar(&c.Timeout, "timeout", c.Timeout, "how long to wait for NATS, and to work, at most")
}

// Layout returns what there is to provision.
func (c Config) Layout() (bus.Layout, error) {
	layout := bus.Layout{Replicas: c.Replicas, AckWait: c.AckWait}
	at := map[string]int{}
	for _, name := range c.Clusters {
		at[name] = len(layout.Clusters)
		layout.Clusters = append(layout.Clusters, bus.Cluster{Name: name})
	}
	for _, entry := range c.Pools {
		name, pool, _ := strings.Cut(entry, "/")
		i, known := at[name]
		if !known || pool == "" {
			return bus.Layout{}, fmt.Errorf("%w: --pools %q: want cluster/pool, with one of the clusters %s", service.ErrUsage, entry, &c.Clusters)
		}
		layout.Clusters[i].Pools = append(layout.Clusters[i].Pools, pool)
	}
	if err := layout.Validate(); err != nil {
		return bus.Layout{}, fmt.Errorf("%w: %w", service.ErrUsage, err)
	}
	return layout, nil
}

// Run provisions, and returns when that is done.
func Run(ctx context.Context, cfg Config) error {
	layout, err := cfg.Layout()
	if err != nil {
		return err
	}
	log := cfg.Log
	if log == nil {
		log = service.NewLogger(cfg.Config, os.Stderr)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout, fmt.Errorf("not done in %s", cfg.Timeout))
	defer cancel()
	conn, err := bus.Connect(ctx, cfg.NATS, log)
	if err != nil {
		return err
	}
	defer conn.NC.Close()
	return bus.Provision(ctx, conn.JS, layout, log)
}

// List is a flag of words that are separated by commas.
type List []string

// String returns the flag's text.
func (l *List) String() string { return strings.Join(*l, ",") }

// Set takes the flag's text. It replaces the words that were there.
func (l *List) Set(text string) error {
	*l = nil
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.TrimSpace(word); word != "" {
			*l = append(*l, word)
		}
	}
	return nil
}
