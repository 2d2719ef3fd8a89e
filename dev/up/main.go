// Command seatrial-up runs all of Seatrial on one machine until it is told to stop: NATS and the four services in its own
// process, on the cluster that KUBECONFIG reaches. `make up` builds what it needs and runs it beside an embedded cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/seatrial/seatrial/dev/system"
	"github.com/seatrial/seatrial/internal/kit/service"
)

// config is what a person may choose.
type config struct {
	kubeconfig string
	state      string
	natsPort   int
	httpPort   int
	logLevel   slog.Level
}

func main() {
	cfg := config{kubeconfig: os.Getenv("KUBECONFIG"), natsPort: 4222, httpPort: 8081}
	os.Exit(service.Main("seatrial-up", os.Args[1:], cfg.flags, func(ctx context.Context) error {
		return run(ctx, cfg, os.Stdout)
	}))
}

func (c *config) flags(fs *flag.FlagSet) {
	fs.StringVar(&c.kubeconfig, "kubeconfig", c.kubeconfig, "`file` that says how to reach the cluster; by default that of KUBECONFIG")
	fs.StringVar(&c.state, "state", c.state, "`folder` that keeps the streams for the next time; empty: they are thrown away at the end")
	fs.IntVar(&c.natsPort, "nats-port", c.natsPort, "`port` of NATS on 127.0.0.1; if it is taken, a free one")
	fs.IntVar(&c.httpPort, "http-port", c.httpPort,
		"`port` of the planner's /readyz and /metrics on 127.0.0.1; executor, tester and notifier have the next ones; if one is taken, a free one")
	fs.TextVar(&c.logLevel, "log-level", c.logLevel, "lowest `level` to log on standard error: debug, info, warn or error")
}

// run runs everything until ctx ends or a service fails. When all is ready it says so on out, in one line.
func run(ctx context.Context, cfg config, out io.Writer) (err error) {
	if cfg.kubeconfig == "" {
		return fmt.Errorf("%w: no cluster: set KUBECONFIG, or use `make up`, which brings one", service.ErrUsage)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: cfg.logLevel}))
	state, err := openState(cfg.state)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.close()) }()

	settings := system.Defaults(state.path, cfg.kubeconfig, log)
	settings.NATSPort = portOr(cfg.natsPort, log)
	for i, shared := range []*service.Config{
		&settings.Planner.Config, &settings.Executor.Config, &settings.Tester.Config, &settings.Notifier.Config,
	} {
		port := cfg.httpPort
		if port != 0 {
			port += i
		}
		shared.HTTPAddr = address(portOr(port, log))
	}
	sys, err := system.Start(ctx, settings)
	if ctx.Err() != nil {
		log.Info("stopped before all was ready")
		return nil
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "ready: nats=%s kubeconfig=%s\n", sys.NATS.URL, cfg.kubeconfig)
	select {
	case <-ctx.Done():
		log.Info("stopping: work under way may go on for a while; the next Ctrl-C kills", "at_most", settings.Executor.ShutdownGrace)
	case <-sys.Down():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return sys.Stop(stopping)
}

// portOr returns the port, or 0, which takes a free one, if the port cannot be had.
func portOr(port int, log *slog.Logger) int {
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		log.Warn("the port cannot be had, another one is taken", "port", port, "error", err)
		return 0
	}
	_ = listener.Close()
	return port
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
