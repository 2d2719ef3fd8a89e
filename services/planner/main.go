// Command seatrial-planner decides what happens to releases: it takes requests, gives commands to executors and testers,
// and says the last word on each request. Any number of them share the work.
package main

import (
	"context"
	"os"

	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/services/planner/app"
)

func main() {
	cfg := app.Defaults()
	os.Exit(service.Main("seatrial-planner", os.Args[1:], cfg.Flags, func(ctx context.Context) error {
		return app.Run(ctx, cfg)
	}))
}
