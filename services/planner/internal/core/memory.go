package core

import (
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// learnDone notes what a mutation that succeeded has put there, which was to be wanted, and returns it.
func (d *decision) learnDone(wanted *pb.ChartRevision) *pb.ChartRevision {
	m := d.outcome.GetMutation()
	made := copied(wanted)
	if running := d.outcome.GetRunning(); running.GetHelmRevision() == m.GetHelmRevision() {
		proto.Merge(made, running)
	}
	made.HelmRevision = m.GetHelmRevision()
	if m.GetManifestDigest() != "" {
		made.ManifestDigest = m.ManifestDigest
	}
	d.state.Running = made
	d.state.MutatedNumber = d.outcome.GetNumber()
	return bare(made)
}

// gone notes that nothing is there any more. Helm may count its revisions anew from here on, so none of the old ones may
// be taken for one to come. What is in quarantine stays there.
func (d *decision) gone() {
	d.state.Running = nil
	d.state.MutatedNumber = d.outcome.GetNumber()
	d.forgetRevisions()
}

// startedAnew forgets all revisions if a deploy has made one with a number that is known already: somebody else has
// uninstalled the release meanwhile.
func (d *decision) startedAnew(made int32) {
	if slices.ContainsFunc(d.state.Revisions, func(r *pb.RevisionRecord) bool { return r.GetContent().GetHelmRevision() >= made }) {
		d.forgetRevisions()
	}
}

func (d *decision) forgetRevisions() {
	d.state.Proven, d.state.Revisions = nil, nil
	for _, q := range d.state.Quarantine {
		q.HelmRevision = 0
	}
}

// learnFailed notes that the phase's command, if there is one, is over without success, and what it has left there.
func (d *decision) learnFailed() {
	a, m := d.state.Active, d.outcome.GetMutation()
	a.Open = nil
	if m.GetHelmRevision() != 0 {
		failed := copied(a.Requested)
		if a.Phase == pb.PhaseRollingBack {
			failed = copied(a.RollbackTarget)
		}
		failed.HelmRevision, failed.ManifestDigest = m.HelmRevision, m.ManifestDigest
		d.remember(failed, pb.StandingBad, "")
	}
	if running := d.outcome.GetRunning(); running.GetHelmRevision() != 0 {
		known := d.whole(d.revision(running.HelmRevision).GetContent())
		proto.Merge(known, running)
		d.state.Running = known
	} else if a.Phase == pb.PhaseUninstalling && d.outcome != nil {
		d.state.Running = nil // half of it may be there still, which is no deployed release
	}
}

// learn takes from an outcome that decides nothing any more what it tells of the release: a worker whose command was
// withdrawn may have finished it at the same moment. While a command is open, that one's outcome will tell.
func (d *decision) learn() {
	o := d.outcome
	if d.state.Active.GetOpen() != nil || o.GetNumber() <= d.state.MutatedNumber {
		return
	}
	if o.GetKind() == pb.KindUninstalled {
		d.gone()
		return
	}
	done := o.GetKind() == pb.KindDeployed || o.GetKind() == pb.KindRolledBack
	if !done || o.GetMutation().GetHelmRevision() <= d.state.Running.GetHelmRevision() {
		return
	}
	wanted := &pb.ChartRevision{}
	if o.Kind == pb.KindDeployed {
		proto.Merge(wanted, o.Requested)
	}
	d.record(&pb.RevisionRecord{
		Content:    d.learnDone(wanted),
		Generation: o.Generation,
		Standing:   pb.StandingUnproven,
		Request:    o.Request,
		Since:      o.Time,
		Number:     o.Number,
	})
}

// remember notes a revision that the active request has made.
func (d *decision) remember(content *pb.ChartRevision, standing, verdict string) {
	r := d.state.Active.Request
	d.record(&pb.RevisionRecord{
		Content:    bare(content),
		Generation: r.GetGeneration(),
		Standing:   standing,
		Request:    r.GetId(),
		Verdict:    verdict,
		Since:      d.outcome.GetTime(),
		Number:     d.outcome.GetNumber(),
	})
}

// record keeps a revision, in the place of what was known of it. Content whose tests have failed is bad under its new
// number too, until it is proven.
func (d *decision) record(r *pb.RevisionRecord) {
	for _, known := range d.state.Revisions {
		if r.Standing == pb.StandingUnproven && known.GetStanding() == pb.StandingBad && !broken(known) && same(known.GetContent(), r.Content) {
			judgedAs(r, known)
		}
	}
	d.state.Revisions = slices.DeleteFunc(d.state.Revisions, func(known *pb.RevisionRecord) bool {
		return known.GetContent().GetHelmRevision() == r.Content.HelmRevision
	})
	d.state.Revisions = append(d.state.Revisions, r)
}

// stand gives a revision its standing, and all others of the same content too.
func (d *decision) stand(content *pb.ChartRevision, standing, verdict string) {
	own := d.revision(content.GetHelmRevision())
	if own == nil { // somebody else has deployed it, nobody knows when
		own = &pb.RevisionRecord{Content: bare(content), Generation: d.state.Active.Request.GetGeneration()}
		d.record(own)
	}
	judged := &pb.RevisionRecord{
		Standing:     standing,
		Verdict:      verdict,
		JudgedBy:     d.state.Active.Request.GetId(),
		JudgedNumber: d.outcome.GetNumber(),
		Tests:        passed(d.outcome.GetTestRun()),
	}
	for _, r := range d.state.Revisions {
		if r == own || same(r.GetContent(), content) && !broken(r) {
			judgedAs(r, judged)
		}
	}
}

// judgedAs gives a revision the standing of another one of the same content, and what that comes from.
func judgedAs(r, as *pb.RevisionRecord) {
	r.Standing, r.Verdict = as.GetStanding(), as.GetVerdict()
	r.JudgedBy, r.JudgedNumber, r.Tests = as.GetJudgedBy(), as.GetJudgedNumber(), slices.Clone(as.GetTests())
}

// maxTests is how much is remembered of the names of a revision's tests, in bytes.
const maxTests = 1 << 10

// passed returns the tests that have passed, as many as are remembered.
func passed(run *pb.TestRun) (names []string) {
	size := 0
	for _, test := range run.GetTests() {
		if size += len(test.GetName()); test.GetPhase() == pb.VerdictPassed && size <= maxTests {
			names = append(names, test.Name)
		}
	}
	return names
}

// broken says that a revision was never deployed as a whole: its install, upgrade or rollback has failed. What its content
// is worth, nobody knows.
func broken(r *pb.RevisionRecord) bool {
	return r.GetStanding() == pb.StandingBad && r.GetVerdict() == ""
}

// revision returns what is known of a Helm revision, nil if nothing is.
func (d *decision) revision(number int32) *pb.RevisionRecord {
	for _, r := range d.state.Revisions {
		if number != 0 && r.GetContent().GetHelmRevision() == number {
			return r
		}
	}
	return nil
}

// newest returns the newest revision that the first of the rules selects by which there is any; nil if there is none.
func (d *decision) newest(rules ...func(*pb.RevisionRecord) bool) *pb.ChartRevision {
	for _, rule := range rules {
		for _, r := range slices.Backward(d.state.Revisions) {
			if rule(r) {
				return d.whole(r.GetContent())
			}
		}
	}
	return nil
}

// whole returns a copy of a remembered revision, with its annotations where they are known.
func (d *decision) whole(content *pb.ChartRevision) *pb.ChartRevision {
	for _, known := range []*pb.ChartRevision{d.state.Proven.GetContent(), d.state.Running} {
		if content != nil && known.GetHelmRevision() == content.HelmRevision {
			return proto.CloneOf(known)
		}
	}
	return copied(content)
}

// copied returns a copy, never nil.
func copied(c *pb.ChartRevision) *pb.ChartRevision {
	if c == nil {
		return &pb.ChartRevision{}
	}
	return proto.CloneOf(c)
}

// bare returns a copy without the annotations, which may be large.
func bare(c *pb.ChartRevision) *pb.ChartRevision {
	b := copied(c)
	b.Annotations = nil
	return b
}

// forget keeps the state small: the oldest goes first; what runs and the last proven revision never.
func (d *decision) forget() {
	s := d.state
	running, proven := s.Running.GetHelmRevision(), s.Proven.GetContent().GetHelmRevision()
	for len(s.Revisions) > d.policy.MaxRevisions {
		i := slices.IndexFunc(s.Revisions, func(r *pb.RevisionRecord) bool {
			revision := r.GetContent().GetHelmRevision()
			return revision != running && revision != proven
		})
		if i < 0 {
			break
		}
		s.Revisions = slices.Delete(s.Revisions, i, i+1)
	}
	if n := len(s.Quarantine) - d.policy.MaxQuarantined; n > 0 {
		s.Quarantine = slices.Delete(s.Quarantine, 0, n)
	}
}
