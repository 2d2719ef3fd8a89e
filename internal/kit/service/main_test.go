package service

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childVariable makes this test binary a service, so that tests can send it signals and read its exit code.
const childVariable = "SERVICE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

// child is a service with one part; its work under way outlives the signal if --drain says so.
func child() int {
	cfg := Defaults("child")
	cfg.HTTPAddr = "127.0.0.1:0"
	var drain time.Duration
	return Main("seatrial-child", os.Args[1:], func(fs *flag.FlagSet) {
		cfg.Flags(fs)
		fs.DurationVar(&drain, "drain", 0, "how long the work goes on after the signal")
	}, func(ctx context.Context) error {
		return Run(ctx, cfg, func(_ context.Context, s *Service) error {
			s.Defer("flush", func(ctx context.Context) error {
				s.Log.Info("flushed")
				return ctx.Err()
			})
			s.Go("work", func(ctx context.Context) error {
				<-ctx.Done()
				<-time.After(drain)
				s.Log.Info("drained")
				return ctx.Err()
			})
			return nil
		})
	})
}
