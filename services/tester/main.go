// Command seatrial-tester runs the Helm tests of one cluster's releases, as the planner orders, and reports the verdicts.
package main

import (
	"context"
	"os"

	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/services/tester/app"
)

func main() {
	cfg := app.Defaults()
	os.Exit(service.Main("seatrial-tester", os.Args[1:], cfg.Flags, func(ctx context.Context) error {
		return app.Run(ctx, cfg)
	}))
}
