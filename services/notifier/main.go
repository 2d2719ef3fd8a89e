// Command seatrial-notifier tells everyone what was deployed: it makes a CloudEvent of each outcome that people care
// about.
package main

import (
	"context"
	"os"

	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/services/notifier/app"
)

func main() {
	cfg := app.Defaults()
	os.Exit(service.Main("seatrial-notifier", os.Args[1:], cfg.Flags, func(ctx context.Context) error {
		return app.Run(ctx, cfg)
	}))
}
