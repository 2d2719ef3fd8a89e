// Package app wires the planner together.
package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/api"
	"github.com/seatrial/seatrial/services/planner/internal/shell"
)

// Run runs a planner until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	rules, err := cfg.rules()
	if err != nil {
		return err
	}
	return service.Run(ctx, cfg.Config, func(ctx context.Context, s *service.Service) error {
		conn, err := bus.Connect(ctx, cfg.NATS, s.Log)
		if err != nil {
			return err
		}
		s.Defer("drain NATS", conn.Close)
		s.Check("nats", conn.Healthy)

		fetcher := cfg.Charts
		fetcher.Uploads, fetcher.AllowPath = uploads{conn}, rules.AllowPaths
		planner, err := shell.New(ctx, conn, shell.Options{
			Policy: cfg.Policy, Rules: rules, Instance: cfg.Instance, Slots: cfg.Slots, Fetches: cfg.Fetches,
			TakeOver: cfg.TakeOver, Grace: cfg.ShutdownGrace,
			Fetch: func(ctx context.Context, source *pb.ChartSource) ([]byte, *pb.ChartRevision, error) {
				archive, err := fetcher.Fetch(ctx, source)
				if err != nil {
					return nil, nil, err
				}
				return archive.Data, archive.Info, nil
			},
		}, s.Log)
		if err != nil {
			return err
		}
		desk, err := api.New(ctx, conn, api.Options{Rules: rules, Version: service.Version, Waiters: cfg.Waiters}, s.Log)
		if err != nil {
			return err
		}
		s.Go("requests", planner.Requests)
		s.Go("outcomes", planner.Outcomes)
		s.Go("deadlines", planner.Attend)
		s.Go("charts", planner.Resolve)
		s.Go("api", desk.Run)
		return nil
	})
}

// uploads is where people put packaged charts.
type uploads struct{ conn *bus.Conn }

// Get implements chart.Objects.
func (u uploads) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	data, err := u.conn.GetObject(ctx, subject.ObjectsUploads, name, limit)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return nil, fault.New(pb.ClassRejected,
			fmt.Sprintf("upload it (nats object put --name %s %s <file>), and ask again under a new id", name, subject.ObjectsUploads), "%w", err)
	case errors.Is(err, bus.ErrTooLarge):
		return nil, fault.New(pb.ClassRejected, "make the packaged chart smaller", "%w", err)
	}
	return data, err
}
