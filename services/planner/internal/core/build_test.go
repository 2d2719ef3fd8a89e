package core

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

const release = "local/shop/web"

// start is when all stories begin.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// newRequest returns a request with the defaults that the planner's door fills in.
func newRequest(verb, id string, sequence uint64) *pb.Request {
	r := &pb.Request{
		Id:          id,
		Release:     release,
		Verb:        verb,
		Sequence:    sequence,
		ReceivedAt:  timestamppb.New(start),
		Traceparent: "00-" + id,
		Upgrade:     &pb.UpgradeOptions{Timeout: "5m", Wait: proto.Bool(true), MaxHistory: 10, OnFailure: pb.OnFailureRollback},
		Test: &pb.TestOptions{
			Enabled: proto.Bool(true), Timeout: "5m", Deadline: "15m", Parallel: 1, Attempts: 1, ErrorAttempts: 2,
			OnFailure: pb.OnFailureRollback, OnError: pb.OnFailureHold,
		},
	}
	switch verb {
	case pb.VerbCancel, pb.VerbSuspend, pb.VerbResume, pb.VerbForgive:
		r.Upgrade, r.Test = nil, nil
	case pb.VerbUninstall:
		r.Upgrade, r.Test = nil, nil
		r.Uninstall = &pb.UninstallOptions{Timeout: "5m", Wait: proto.Bool(true)}
	case pb.VerbDeploy:
		r.Chart = &pb.ChartSource{Object: id + ".tgz"}
		r.Fingerprint = "values"
	case pb.VerbTest:
		r.Upgrade = nil
		r.Test.OnFailure = pb.OnFailureHold
	}
	return r
}

// newChart returns a chart as it is resolved.
func newChart(version string) *pb.ChartRevision {
	return &pb.ChartRevision{
		Name: "web", Version: version, AppVersion: "app-" + version, Digest: "sha256:" + version,
		Annotations: map[string]string{"commit_sha": "commit-" + version},
	}
}

// newOutcome returns what a worker says about a command.
func newOutcome(c *pb.Command, service, kind string, now time.Time) *pb.Outcome {
	return &pb.Outcome{
		Id: release + "/" + kind, Kind: kind, Release: c.Release, Generation: c.Generation, Request: c.Request,
		Number: c.Number, Time: timestamppb.New(now), Service: service, Instance: service + "-0",
		Traceparent: c.Traceparent, Requested: proto.CloneOf(c.Requested), Running: proto.CloneOf(c.Running),
	}
}

// at returns a revision as the executor reads it from its record: without the archive's digest.
func at(c *pb.ChartRevision, revision int32, manifest string) *pb.ChartRevision {
	r := copied(c)
	r.Digest, r.HelmRevision, r.ManifestDigest = "", revision, manifest
	return r
}
