// Package app wires the notifier together.
package app

import (
	"context"
	"flag"
	"fmt"
	"strings"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/services/notifier/internal/attribute"
	"github.com/seatrial/seatrial/services/notifier/internal/binding"
	"github.com/seatrial/seatrial/services/notifier/internal/relay"
)

// slots is how many outcomes one notifier works on: one, so that subscribers see the events of a release in the order in
// which things happened. A publication takes about a millisecond.
const slots = 1

// Config is all that a notifier can be told. Start from Defaults.
type Config struct {
	service.Config
	// Annotations say how a chart's annotations become attributes.
	Annotations attribute.Options
	// Mode is how events lie in their messages.
	Mode binding.Mode
}

// Defaults returns the configuration of a notifier when nobody says anything.
func Defaults() Config {
	return Config{Config: service.Defaults("notifier"), Mode: binding.Binary}
}

// Flags adds a flag for each setting to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Config.Flags(fs)
	fs.TextVar(&c.Mode, "event-mode", c.Mode, "`mode` of the events on NATS: binary or structured")
	fs.Func("annotation-aliases", "attribute names of annotations, as comma-separated `key=name`", c.setAliases)
	fs.BoolVar(&c.Annotations.AliasesOnly, "annotation-aliases-only", false, "make attributes of annotations with an alias only: for charts that are not trusted")
	fs.Func("annotation-allow", "comma-separated `patterns` of annotation keys; others become no attributes", list(&c.Annotations.Allow))
	fs.Func("annotation-deny", "comma-separated `patterns` of annotation keys that become no attributes", list(&c.Annotations.Deny))
	fs.StringVar(&c.Annotations.Prefix, "annotation-prefix", "", "`prefix` of the attributes that are made of annotations without an alias")
}

func (c *Config) setAliases(value string) error {
	aliases := map[string]string{}
	for pair := range strings.SplitSeq(value, ",") {
		key, name, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			return fmt.Errorf("%q is not key=name", pair)
		}
		if _, twice := aliases[key]; twice {
			return fmt.Errorf("annotation %q has two aliases", key)
		}
		aliases[key] = name
	}
	c.Annotations.Aliases = aliases
	return nil
}

func list(to *[]string) func(string) error {
	return func(value string) error {
		*to = nil
		for item := range strings.SplitSeq(value, ",") {
			*to = append(*to, strings.TrimSpace(item))
		}
		return nil
	}
}

// Validate checks what the types of the flags do not.
func (c Config) Validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	if err := c.Annotations.Validate(); err != nil {
		return fmt.Errorf("%w: %w", service.ErrUsage, err)
	}
	return nil
}

// Run runs a notifier until ctx ends, and then drains it.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	return service.Run(ctx, cfg.Config, func(ctx context.Context, s *service.Service) error {
		conn, err := bus.Connect(ctx, cfg.NATS, s.Log)
		if err != nil {
			return err
		}
		s.Defer("drain NATS", conn.Close)
		s.Check("nats", conn.Healthy)

		events := &relay.Relay{Conn: conn, Annotations: cfg.Annotations, Mode: cfg.Mode}
		s.Go("events", func(ctx context.Context) error {
			return conn.Consume(ctx, bus.ConsumeOptions{
				Service: cfg.Name,
				Stream:  subject.StreamOutcomes,
				Durable: subject.ConsumerNotifier,
				Slots:   slots,
				Grace:   cfg.ShutdownGrace,
			}, events.Handle)
		})
		return nil
	})
}
