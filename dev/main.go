// Command seatrial-demo plays the main job: with everything but the cluster in its own process, or on a system that runs
// already. `make demo` builds what it needs and runs it beside an embedded cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/seatrial/seatrial/dev/demo"
	"github.com/seatrial/seatrial/dev/system"
	"github.com/seatrial/seatrial/internal/kit/service"
)

func main() {
	cfg := demo.Config{NATSCLI: "nats", HelmCLI: "helm", Kubeconfig: os.Getenv("KUBECONFIG"), Out: os.Stdout}
	os.Exit(service.Main("seatrial-demo", os.Args[1:], func(fs *flag.FlagSet) {
		fs.StringVar(&cfg.NATSCLI, "nats", cfg.NATSCLI, "`path` of the NATS CLI")
		fs.StringVar(&cfg.HelmCLI, "helm", cfg.HelmCLI, "`path` of the Helm CLI")
		fs.StringVar(&cfg.NATSURL, "nats-url", cfg.NATSURL, "`URL` of the NATS of a system that runs already; empty: the demo starts a system of its own")
		fs.StringVar(&cfg.Kubeconfig, "kubeconfig", cfg.Kubeconfig, "`file` that says how to reach the cluster; by default that of KUBECONFIG")
	}, func(ctx context.Context) error { return run(ctx, cfg) }))
}

// run plays the demo. What is logged meanwhile goes to a file, and stays there when something went wrong.
func run(ctx context.Context, cfg demo.Config) (err error) {
	if cfg.Kubeconfig == "" {
		return fmt.Errorf("%w: no cluster: set KUBECONFIG, or use `make demo`, which brings one", service.ErrUsage)
	}
	cfg.Dir, err = os.MkdirTemp("", "seatrial-demo-")
	if err != nil {
		return err
	}
	logs, err := os.Create(filepath.Join(cfg.Dir, "demo.log"))
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, logs.Close())
		if err != nil {
			err = fmt.Errorf("%w\nWhat this program logged is in %s", err, logs.Name())
			return
		}
		err = os.RemoveAll(cfg.Dir)
	}()
	cfg.Log = slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if cfg.NATSURL != "" {
		return demo.Play(ctx, cfg)
	}
	sys, err := system.Start(ctx, system.Defaults(cfg.Dir, cfg.Kubeconfig, cfg.Log))
	if err != nil {
		return err
	}
	cfg.NATSURL = sys.NATS.URL
	err = demo.Play(ctx, cfg)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, sys.Stop(stopping))
}
