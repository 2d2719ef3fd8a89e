package core

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// prove settles what runs as proven: it may be gone back to, and its inputs are in quarantine no longer.
func (d *decision) prove(why string) {
	a := d.state.Active
	d.state.Proven = &pb.Proof{
		Content: proto.CloneOf(d.state.Running),
		Verdict: a.Verdict,
		Request: a.Request.GetId(),
		Number:  d.outcome.GetNumber(),
	}
	d.stand(d.state.Running, pb.StandingProven, a.Verdict)
	d.lift()
	d.settle(pb.ResultProven, fmt.Sprintf("%s is proven: %s", d.subject(), why), nil)
}

// disprove takes the proof from what runs, if it has one, and knows it to be bad: the same content under any number.
func (d *decision) disprove(verdict string) {
	d.stand(d.state.Running, pb.StandingBad, verdict)
	if !same(d.state.Proven.GetContent(), d.state.Running) {
		return
	}
	d.state.Proven = nil
	if last := d.newest(proven); last != nil {
		d.state.Proven = d.proof(last)
	}
}

// inherit gives what runs, which a rollback has put back, the proof that it had before, and reports whether it had one.
func (d *decision) inherit() bool {
	content := d.state.Running
	before := d.newest(func(r *pb.RevisionRecord) bool { return proven(r) && same(r.Content, content) })
	if before == nil {
		d.remember(content, pb.StandingUnproven, "")
		return false
	}
	p := d.proof(before)
	p.Content = proto.CloneOf(content)
	d.remember(content, pb.StandingProven, p.Verdict)
	judgedAs(d.revision(content.HelmRevision), d.revision(before.HelmRevision))
	d.state.Proven = p
	return true
}

// proof returns the proof of a proven revision: the last one whole, an older one as far as it is remembered.
func (d *decision) proof(of *pb.ChartRevision) *pb.Proof {
	if last := d.state.Proven; same(last.GetContent(), of) {
		return proto.CloneOf(last)
	}
	r := d.revision(of.HelmRevision)
	return &pb.Proof{Content: of, Verdict: r.GetVerdict(), Request: r.GetJudgedBy(), Number: r.GetJudgedNumber()}
}

// proven selects the revisions that may be gone back to before all others.
func proven(r *pb.RevisionRecord) bool { return r.GetStanding() == pb.StandingProven }

// same says that two revisions have the same content: what was rendered, whatever it was called. What has no digest of
// that is the same as itself only.
func same(a, b *pb.ChartRevision) bool {
	if a.GetManifestDigest() == "" || b.GetManifestDigest() == "" {
		return a != nil && b != nil && a.HelmRevision == b.HelmRevision
	}
	return a.ManifestDigest == b.ManifestDigest
}
