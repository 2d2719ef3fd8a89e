// Command seatrial-executor installs, upgrades and rolls back the releases of one cluster, as the planner orders.
package main

import (
	"context"
	"os"

	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/services/executor/app"
)

func main() {
	cfg := app.Defaults()
	os.Exit(service.Main("seatrial-executor", os.Args[1:], cfg.Flags, func(ctx context.Context) error {
		return app.Run(ctx, cfg)
	}))
}
