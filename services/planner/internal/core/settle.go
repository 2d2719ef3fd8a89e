package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// service is what the planner's outcomes name as their service.
const service = "planner"

// settle says the last word on the active request, and makes active what waits.
func (d *decision) settle(result, message string, f *pb.Failure) {
	d.settleAs(&pb.Settlement{Result: result}, message, f)
}

func (d *decision) settleAs(s *pb.Settlement, message string, f *pb.Failure) {
	a := d.state.Active
	s.Verdict, s.FailedRevision = a.Verdict, a.FailedRevision
	d.lastWord(a.Request, s, message, f)
	d.state.Active = nil
	d.cancelled(a, s.Result)
	d.promote()
}

// lastWord settles a request, active or not.
func (d *decision) lastWord(r *pb.Request, s *pb.Settlement, message string, f *pb.Failure) {
	s.Verb = r.GetVerb()
	o := d.about(r, pb.KindSettled, message)
	o.Settlement, o.Failure = s, brief(f)
	d.state.Outbox = append(d.state.Outbox, &pb.OutboxEntry{Entry: &pb.OutboxEntry_Settled{Settled: o}})
}

// reject settles the active request as one that cannot be done, with the failure of the input. A rollback that nobody
// asked for has failed, rather, and so has such an uninstall.
func (d *decision) reject() {
	d.learnFailed()
	a := d.state.Active
	if a.Failure != nil {
		d.fail()
		return
	}
	f := brief(d.failure)
	if q := d.quarantined(d.outcome.GetMutation().GetQuarantineKey(), ""); q != nil {
		f.Reason = also(f.Reason, failedBefore(q))
		f.Next = cmp.Or(f.Next, liftable)
	}
	d.settle(pb.ResultRejected, "rejected: "+f.GetReason(), f)
}

// fail settles the active request `failed` with the failure of the input; if that was a rollback or an uninstall that
// nobody asked for, with the reason for it first.
func (d *decision) fail() {
	d.learnFailed()
	a, f := d.state.Active, brief(d.failure)
	if why := a.Failure; why != nil {
		then := "then the uninstall failed: "
		if a.Phase == pb.PhaseRollingBack {
			then = fmt.Sprintf("then the rollback to revision %d failed: ", a.RollbackTarget.GetHelmRevision())
		}
		f.Reason = also(why.Reason, then+f.GetReason())
		f.Mutated = f.Mutated || why.Mutated
	}
	d.settle(pb.ResultFailed, "failed: "+f.GetReason(), f)
}

// about returns an outcome about a request, with what is known of it.
func (d *decision) about(r *pb.Request, kind, message string) *pb.Outcome {
	o := &pb.Outcome{
		Id:          r.GetId() + "/" + kind,
		Kind:        kind,
		Release:     d.state.Release,
		Generation:  r.GetGeneration(),
		Request:     r.GetId(),
		Time:        d.timestamp(),
		Service:     service,
		Traceparent: r.GetTraceparent(),
		Message:     message,
		Running:     proto.CloneOf(d.state.Running),
	}
	if a := d.state.Active; a != nil && a.Request.GetId() == r.GetId() {
		o.Requested = proto.CloneOf(a.Requested)
	}
	return o
}

// aboutCommand returns an outcome about the open command.
func (d *decision) aboutCommand(kind, message string) *pb.Outcome {
	a := d.state.Active
	o := d.about(a.Request, kind, message)
	o.Number = a.Open.Number
	o.Id = fmt.Sprintf("%s/%d/%s", d.state.Release, o.Number, kind)
	return o
}

// tell publishes an outcome.
func (d *decision) tell(o *pb.Outcome) {
	d.state.Outbox = append(d.state.Outbox, &pb.OutboxEntry{Entry: &pb.OutboxEntry_Outcome{Outcome: o}})
}

func (d *decision) timestamp() *timestamppb.Timestamp { return timestamppb.New(d.now) }

func (d *decision) after(pause time.Duration) *timestamppb.Timestamp {
	return timestamppb.New(d.now.Add(pause))
}

// The longest reasons that are kept, in bytes: of a failure, and in quarantine, where there are many.
const (
	maxReason = 2 << 10
	maxNote   = 256
)

// cut shortens a reason that is longer than most bytes.
func cut(reason string, most int) string {
	if len(reason) <= most {
		return reason
	}
	const more = "..."
	return strings.ToValidUTF8(reason[:most-len(more)], "") + more
}

// also adds to a reason what people must not miss: if one of them is too long, it is the reason that is cut.
func also(reason, more string) string {
	return cut(reason, max(maxReason-len(more), maxNote)) + "; " + more
}

// brief returns a copy of the failure without the reports on objects: those stand in the worker's own outcome.
func brief(f *pb.Failure) *pb.Failure {
	if f == nil {
		return nil
	}
	return &pb.Failure{
		Class:      f.Class,
		Reason:     cut(f.Reason, maxReason),
		Next:       cut(f.Next, maxReason),
		Mutated:    f.Mutated,
		Violations: proto.CloneOf(f).Violations,
	}
}
