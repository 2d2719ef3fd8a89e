package core

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// enter begins a phase, with budgets of its own.
func (d *decision) enter(phase string) {
	a := d.state.Active
	a.Phase = phase
	a.RetryAt, a.TransientSince = nil, nil
	a.TransientTries, a.InterruptedTries = 0, 0
}

// commandOf is the kind of command that a phase gives out.
var commandOf = map[string]string{
	pb.PhaseDeploying:    pb.CommandDeploy,
	pb.PhaseTesting:      pb.CommandTest,
	pb.PhaseRollingBack:  pb.CommandRollback,
	pb.PhaseUninstalling: pb.CommandUninstall,
}

// command gives out the phase's command, under a number that was never used before. While the release is suspended it is
// held back: resume gives it out.
func (d *decision) command() {
	a := d.state.Active
	a.RetryAt = nil
	if d.suspended() {
		return
	}
	d.state.Number++
	a.Open = &pb.OpenCommand{Number: d.state.Number, Kind: commandOf[a.Phase], IssuedAt: d.timestamp()}
	for _, q := range d.state.Quarantine {
		if q.GetKey() != "" {
			a.Open.Quarantined = append(a.Open.Quarantined, q.Key)
		}
	}
	d.send()
}

// send puts the open command into the outbox.
func (d *decision) send() {
	d.state.Outbox = append(d.state.Outbox, &pb.OutboxEntry{Entry: &pb.OutboxEntry_Command{Command: order(d.state)}})
}

// takeBack takes a command out of the outbox whose subject is taken, to try it again later. The longer the subject has
// been taken, the longer the pause.
func (d *decision) takeBack() {
	s := d.state
	s.Outbox = slices.DeleteFunc(s.Outbox, func(e *pb.OutboxEntry) bool {
		return e.GetCommand() != nil && e.GetCommand().Number == d.number
	})
	open := s.Active.GetOpen()
	if open == nil || open.Number != d.number {
		return
	}
	pause := d.now.Sub(open.IssuedAt.AsTime()) / 4
	open.Unpublished = true
	open.PublishAt = d.after(min(max(pause, d.policy.PublishRetry), d.policy.BackoffMax))
}

// publishAgain puts the open command into the outbox again, just as it was.
func (d *decision) publishAgain() {
	open := d.state.Active.Open
	open.Unpublished, open.PublishAt = false, nil
	d.send()
}

// end has the ledger say that the open command is done, with this outcome, so that no worker begins or finishes it.
func (d *decision) end(o *pb.Outcome) {
	a := d.state.Active
	d.state.Outbox = append(d.state.Outbox, &pb.OutboxEntry{Entry: &pb.OutboxEntry_End{End: &pb.CommandEnd{
		Outcome: proto.CloneOf(o),
		Kind:    a.Open.Kind,
		Pool:    pool(a),
	}}})
	d.tell(o)
	a.Open = nil
}

// order returns the open command of the state. It is made of nothing else, and what it is made of does not change while
// the command is open: made again, it is the same.
func order(s *pb.ReleaseState) *pb.Command {
	a := s.Active
	r := a.Request
	c := proto.CloneOf(&pb.Command{
		Release:     s.Release,
		Number:      a.Open.Number,
		Generation:  r.GetGeneration(),
		Request:     r.GetId(),
		IssuedAt:    a.Open.IssuedAt,
		Traceparent: r.GetTraceparent(),
		Requested:   a.Requested,
		Running:     s.Running,
		Proven:      s.Proven,
		Quarantined: a.Open.Quarantined,
	})
	switch a.Open.Kind {
	case pb.CommandDeploy:
		c.Action = &pb.Command_Deploy{Deploy: proto.CloneOf(&pb.DeployCommand{
			ChartDigest: a.Requested.GetDigest(),
			Values:      r.GetValues(),
			ValuesFrom:  r.GetValuesFrom(),
			Upgrade:     r.GetUpgrade(),
			Test:        r.GetTest(),
			Force:       r.GetForce(),
		})}
	case pb.CommandTest:
		c.Action = &pb.Command_Test{Test: proto.CloneOf(&pb.TestCommand{
			HelmRevision:   s.Running.GetHelmRevision(),
			ManifestDigest: s.Running.GetManifestDigest(),
			Options:        r.GetTest(),
			Attempt:        attempt(a),
		})}
	case pb.CommandRollback:
		c.Action = &pb.Command_Rollback{Rollback: proto.CloneOf(&pb.RollbackCommand{
			ToRevision:     a.RollbackTarget.GetHelmRevision(),
			ManifestDigest: a.RollbackTarget.GetManifestDigest(),
			Upgrade:        r.GetUpgrade(),
			FailedRevision: a.FailedRevision,
		})}
	case pb.CommandUninstall:
		c.Action = &pb.Command_Uninstall{Uninstall: proto.CloneOf(&pb.UninstallCommand{
			Options:        uninstallOptions(a),
			FailedRevision: a.FailedRevision,
		})}
	}
	return c
}

// attempt returns the number of the test run that is under way or comes next, from 1.
func attempt(a *pb.Active) int32 { return a.GetAttempt() + a.GetErrorAttempt() + 1 }

// pool returns the tester pool of the open command, empty for the default pool and for commands to executors.
func pool(a *pb.Active) string {
	if a.GetOpen().GetKind() != pb.CommandTest {
		return ""
	}
	return a.Request.GetTest().GetPool()
}

// worker names who takes the open command.
func worker(s *pb.ReleaseState) string {
	cluster, _, _ := strings.Cut(s.Release, "/")
	a := s.Active
	switch {
	case a.Open.Kind != pb.CommandTest:
		return "executor of cluster " + cluster
	case pool(a) == "":
		return "tester of cluster " + cluster
	default:
		return "tester of pool " + pool(a) + " in cluster " + cluster
	}
}
