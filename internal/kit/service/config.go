package service

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/seatrial/seatrial/internal/kit/bus"
)

// ErrUsage is wrapped by every error that a person repairs by changing a flag or an environment variable. Main makes
// exit code 2 of it.
var ErrUsage = errors.New("wrong usage")

// Config is what every service can be told. Start from Defaults.
type Config struct {
	// Name is the service: planner, executor, tester, notifier.
	Name string
	// NATS says how to reach the servers.
	NATS bus.Config
	// LogLevel is the lowest level that is logged.
	LogLevel slog.Level
	// LogFormat of the lines on standard error.
	LogFormat LogFormat
	// HTTPAddr is where /healthz, /readyz and /metrics are served; port 0 takes a free one, empty serves none.
	HTTPAddr string
	// Instance tells the processes of one service apart, in logs, leases and outcomes.
	Instance string
	// ShutdownGrace is how long work under way may go on after the service was told to stop.
	ShutdownGrace time.Duration

	// Log is used instead of a logger made from LogLevel and LogFormat. It has no flag: it is for those who run a
	// service in their own process.
	Log *slog.Logger
	// Listening is told the address at which HTTP is served, once. It has no flag either.
	Listening func(net.Addr)
}

// Defaults returns the configuration of the service with that name when nobody says anything.
func Defaults(name string) Config {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Config{
		Name: name,
		NATS: bus.Config{
			URL:  "nats://127.0.0.1:4222",
			Name: "seatrial-" + name,
			// One prefix for each service, so that permissions can keep them out of each other's answers.
			InboxPrefix: "_INBOX_" + name,
		},
		LogLevel:      slog.LevelInfo,
		LogFormat:     LogJSON,
		HTTPAddr:      ":8080",
		Instance:      fmt.Sprintf("%s-%d", host, os.Getpid()),
		ShutdownGrace: 30 * time.Second,
	}
}

// Flags adds a flag for each setting to fs. A service with settings of its own embeds Config, and calls this from its
// own Flags.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.NATS.URL, "nats-url", c.NATS.URL, "NATS servers, as comma-separated `URLs`")
	fs.StringVar(&c.NATS.Creds, "nats-creds", c.NATS.Creds, "`file` with NATS user credentials")
	fs.StringVar(&c.NATS.NKey, "nats-nkey", c.NATS.NKey, "`file` with the seed of a NATS user's NKey")
	fs.StringVar(&c.NATS.CA, "nats-ca", c.NATS.CA, "`file` with the CA certificates that the NATS server is checked against")
	fs.StringVar(&c.NATS.Cert, "nats-cert", c.NATS.Cert, "`file` with the client's TLS certificate")
	fs.StringVar(&c.NATS.Key, "nats-key", c.NATS.Key, "`file` with the client's TLS key")
	fs.TextVar(&c.LogLevel, "log-level", c.LogLevel, "lowest `level` to log: debug, info, warn or error")
	fs.TextVar(&c.LogFormat, "log-format", c.LogFormat, "`format` of log lines: json or text")
	fs.StringVar(&c.HTTPAddr, "http-addr", c.HTTPAddr, "`address` of /healthz, /readyz and /metrics; port 0 takes a free one, empty serves none")
	fs.StringVar(&c.Instance, "instance", c.Instance, "`name` of this process among those of its service")
	fs.DurationVar(&c.ShutdownGrace, "shutdown-grace", c.ShutdownGrace, "how long work under way may go on after SIGTERM")
}

// Validate checks what the types of the flags do not. Run calls it.
func (c Config) Validate() error {
	if c.Instance == "" {
		return fmt.Errorf("%w: --instance is empty", ErrUsage)
	}
	if c.ShutdownGrace < 0 {
		return fmt.Errorf("%w: --shutdown-grace %s: must not be negative", ErrUsage, c.ShutdownGrace)
	}
	if _, _, err := net.SplitHostPort(c.HTTPAddr); err != nil && c.HTTPAddr != "" {
		return fmt.Errorf("%w: --http-addr %q: %w", ErrUsage, c.HTTPAddr, err)
	}
	return nil
}
