// Command seatrial-provision creates and migrates everything that the services need on NATS: streams, buckets, object
// stores, and the consumers of every cluster and tester pool. It needs administrator's rights there. Run it before the
// services, and again after each change of its settings; what is right already stays as it is.
package main

import (
	"context"
	"os"

	"github.com/seatrial/seatrial/deploy/provision/app"
	"github.com/seatrial/seatrial/internal/kit/service"
)

func main() {
	cfg := app.Defaults()
	os.Exit(service.Main("seatrial-provision", os.Args[1:], cfg.Flags, func(ctx context.Context) error {
		return app.Run(ctx, cfg)
	}))
}
