package app_test

import (
	"context"
	"os"
	"testing"

	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/services/tester/app"
)

// childVariable makes this test binary a tester, so that tests can kill and freeze it.
const childVariable = "TESTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	cfg := app.Defaults()
	os.Exit(service.Main("seatrial-tester", os.Args[1:], cfg.Flags, func(ctx context.Context) error {
		return app.Run(ctx, cfg)
	}))
}
