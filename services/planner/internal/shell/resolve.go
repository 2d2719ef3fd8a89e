package shell

import (
	"context"
	"sync"

	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
)

// Resolve fetches charts, until ctx ends.
func (s *Shell) Resolve(ctx context.Context) error {
	var fetchers sync.WaitGroup
	for range s.options.Fetches {
		fetchers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case req := <-s.resolves:
					s.fetch(ctx, req)
				}
			}
		})
	}
	fetchers.Wait()
	return nil
}

// resolve has the chart of a request fetched in the background. If too many wait already, Attend comes upon it again.
func (s *Shell) resolve(req *pb.Request) {
	if !s.fetching.add(req.GetId()) {
		return
	}
	select {
	case s.resolves <- req:
	default:
		s.fetching.remove(req.GetId())
	}
}

// fetch fetches and stores the chart of a request, and tells the core. Nothing is locked meanwhile. A crash at any point
// leaves the state as it was, and Attend has the chart fetched again; twice is harmless, as the archive is stored by
// its digest and the second answer comes too late.
func (s *Shell) fetch(ctx context.Context, req *pb.Request) {
	defer s.fetching.remove(req.GetId())
	in := core.ChartResolved{RequestID: req.GetId()}
	content, err := s.archive(ctx, req.GetChart())
	if err != nil {
		in.Failure = fault.Failure(err)
	}
	if ctx.Err() != nil {
		return // told to stop, which says nothing about the chart
	}
	in.Chart = content
	s.crash("chart stored")
	r, err := subject.ParseRelease(req.GetRelease())
	if err == nil {
		err = s.apply(ctx, r, func(context.Context, *pb.ReleaseState) (core.Input, error) { return in, nil })
	}
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "cannot go on with a chart, it will be fetched again", "release", req.GetRelease(), "request", req.GetId(), "error", err)
	}
}

// archive fetches a chart and stores it under its digest, by which executors find it.
func (s *Shell) archive(ctx context.Context, source *pb.ChartSource) (*pb.ChartRevision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Policy.ResolveTimeout)
	defer cancel()
	archive, content, err := s.options.Fetch(ctx, source)
	if err != nil {
		return nil, err
	}
	if err := s.conn.PutObject(ctx, subject.ObjectsCharts, content.GetDigest(), archive); err != nil {
		return nil, err
	}
	return content, nil
}
