package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// TestWhateverHappens plays the world at random, and then lets it come to rest: with workers that are well, or with none
// at all. In the end every request has exactly one last word.
func TestWhateverHappens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		with := func(action func()) func(*rapid.T) {
			return func(t *rapid.T) {
				w.t = t
				action()
			}
		}
		actions := map[string]func(*rapid.T){
			"ask":            with(w.ask),
			"refuse":         with(w.refuse),
			"go on":          with(w.goOn),
			"go further":     with(w.goOn),
			"go still":       with(w.goOn),
			"go ahead":       with(w.goOn),
			"request":        with(w.deliverRequest),
			"outcome":        with(w.deliverOutcome),
			"work":           with(w.work),
			"thaw":           with(w.thaw),
			"pass time":      with(w.passTime),
			"publish stale":  with(w.publishStale),
			"planner starts": with(func() { w.fetching = Resolving(w.state).GetId() }),
			"":               with(w.nothingLost),
		}
		for range 3 { // some 100 steps in all
			t.Repeat(actions)
		}
		w.t, w.lucky = t, true
		w.alone = rapid.Bool().Draw(t, "all workers gone")
		w.rest()
	})
}

// rest lets everything that is under way come to its end.
func (w *world) rest() {
	w.fetching = Resolving(w.state).GetId()
	w.busy = nil
	for range 5000 {
		if len(w.requests) == 0 && w.state.GetSuspension().GetSuspended() {
			w.sequence++
			r := newRequest(pb.VerbResume, fmt.Sprintf("resume-%d", w.sequence), w.sequence)
			w.asked[r.Id], w.requests = r, append(w.requests, r)
		}
		if !w.underWay() {
			w.atRest()
			return
		}
		w.goOn()
		w.nothingLost()
	}
	require.Fail(w.t, "does not come to rest", "%v", w.state)
}

func (w *world) underWay() bool {
	return len(w.requests)+len(w.refusals)+len(w.outcomes) > 0 || w.working() || phase(w.state) != idle || w.state.GetWaiting() != nil ||
		len(w.state.GetOutbox()) > 0
}

func (w *world) working() bool { return !w.alone && (w.busy != nil || len(w.queue) > 0) }

// goOn does what comes next when all goes well.
func (w *world) goOn() {
	switch {
	case len(w.requests) > 0:
		w.deliverRequest()
	case len(w.refusals) > 0:
		w.deliverRefusal()
	case len(w.outcomes) > 0:
		w.deliverOutcome()
	case w.fetching != "":
		w.fetch()
	case w.working():
		w.work()
	default:
		w.passTime()
	}
}

func (w *world) atRest() {
	require.Nil(w.t, w.state.GetWaiting())
	require.Nil(w.t, w.state.GetWaitingTest())
	require.True(w.t, w.ghost || w.alone || w.state.GetRunning().GetHelmRevision() == w.running().GetHelmRevision(),
		"runs: %v, known to run: %v", w.running(), w.state.GetRunning())
	var newest *pb.Request
	for id, r := range w.asked {
		o := w.settled[id]
		require.NotNil(w.t, o, "%s has no last word", id)
		require.Equal(w.t, !strings.HasPrefix(id, "refused"), w.told[id+"/accepted"] != nil, "%s accepted", id)
		if wantsState(r.Verb) && w.told[id+"/accepted"] != nil && r.Sequence > newest.GetSequence() {
			newest = r
		}
	}
	for id, o := range w.settled {
		r, by := w.asked[id], w.asked[o.Settlement.SupersededBy]
		switch {
		case o.Settlement.Result != pb.ResultSuperseded:
		case by.GetVerb() == pb.VerbCancel:
			require.True(w.t, by.Cancels == id || by.Cancels == "" && by.Sequence > r.Sequence, "%s is cancelled by %s", id, by.Id)
			require.Equal(w.t, pb.ResultDone, w.settled[by.Id].Settlement.Result)
		case wantsState(r.Verb):
			require.Less(w.t, r.Sequence, newest.Sequence, "%s is superseded", id)
		}
	}
}

// nothingLost holds between any two steps: what was accepted is active, waits, or has its last word (told, or in the
// outbox to be told).
func (w *world) nothingLost() {
	settled, accepted := map[string]bool{}, map[string]bool{}
	count := func(o *pb.Outcome) {
		switch o.GetKind() {
		case pb.KindSettled:
			settled[o.Request] = true
		case pb.KindAccepted:
			accepted[o.Request] = true
		}
	}
	for _, o := range w.told {
		count(o)
	}
	for _, e := range w.state.GetOutbox() {
		count(e.GetOutcome())
		count(e.GetSettled())
	}
	held := map[string]bool{}
	open := []*pb.Request{w.state.GetActive().GetRequest(), w.state.GetWaiting(), w.state.GetWaitingTest()}
	for _, r := range append(open, w.state.GetActive().GetCancels()...) {
		if r != nil {
			held[r.Id] = true
		}
	}
	var states uint32
	for id := range accepted {
		require.NotEqual(w.t, settled[id], held[id], "%s: settled %v, active or waiting %v", id, settled[id], held[id])
		if wantsState(w.asked[id].Verb) {
			states++
		}
	}
	require.Equal(w.t, states, w.state.GetGeneration(), "one generation for each accepted request for a new state")
}

// decide calls the core and checks what holds for each step. What follows is noted once the step is stored.
func (w *world) decide(in Input) (step Step, note func()) {
	t, before := w.t, proto.CloneOf(w.state)
	jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
	step, err := Decide(w.policy, w.state, w.now, jitter, in)
	require.NoError(t, err)
	require.True(t, proto.Equal(before, w.state), "the given state was changed")
	again, err := Decide(w.policy, w.state, w.now, jitter, in)
	require.NoError(t, err)
	require.True(t, proto.Equal(step.State, again.State), "the same is decided differently")
	require.Equal(t, step.Changed, !proto.Equal(step.State, copyState(before)))

	after := step.State
	t.Logf("%s: %s -> %s", shown(in), phase(before), phase(after))
	w.checkTable(before, after, in)
	w.checkState(after)

	kept := before.GetOutbox()
	if _, taken := in.(CommandTaken); taken {
		require.Less(t, len(after.Outbox), len(kept))
		return step, func() {}
	}
	for i, e := range kept {
		require.True(t, proto.Equal(e, after.Outbox[i]), "the outbox lost an entry")
	}
	return step, func() { w.note(before, in, after, after.Outbox[len(kept):]) }
}

// shown is an input in a story that failed.
func shown(in Input) string {
	switch in := in.(type) {
	case RequestReceived:
		return "request " + in.Request.Id
	case OutcomeReceived:
		return fmt.Sprintf("outcome %s %s%s", in.Outcome.Id, in.Outcome.GetTestRun().GetVerdict(), in.Outcome.GetFailure().GetClass())
	}
	return fmt.Sprintf("%T", in)
}

// checkTable checks that the table says where this leads.
func (w *world) checkTable(before, after *pb.ReleaseState, in Input) {
	d := &decision{policy: w.policy, now: w.now, state: copyState(before)}
	row := transitions[edge{phase(before), d.read(in)}]
	may := slices.Concat(row.then, phases{phase(before)})
	active, next := before.GetActive().GetRequest().GetId(), after.GetActive().GetRequest().GetId()
	switch {
	case active == "" && next != "", active == next:
		require.Contains(w.t, may, phase(after), "%s in %s", row.on, phase(before))
	case active == "":
		require.True(w.t, slices.Contains(may, settled) || slices.Contains(row.phases, idle), "%s in %s", row.on, phase(before))
	default:
		require.Contains(w.t, may, settled, "%s in %s", row.on, phase(before))
	}
}

func copyState(s *pb.ReleaseState) *pb.ReleaseState {
	if s == nil {
		return &pb.ReleaseState{}
	}
	return proto.CloneOf(s)
}

// checkState checks what holds for each state.
func (w *world) checkState(s *pb.ReleaseState) {
	t, a := w.t, s.Active
	require.LessOrEqual(t, len(s.Revisions), w.policy.MaxRevisions)
	require.LessOrEqual(t, len(s.Quarantine), w.policy.MaxQuarantined)
	for _, r := range s.Revisions {
		require.Empty(t, r.Content.Annotations, "annotations are kept once")
	}
	require.Empty(t, a.GetDeployed().GetAnnotations())
	require.Empty(t, a.GetRollbackTarget().GetAnnotations())
	if s.Proven != nil {
		require.True(t, slices.ContainsFunc(s.Revisions, func(r *pb.RevisionRecord) bool {
			return r.Content.HelmRevision == s.Proven.Content.HelmRevision && r.Standing == pb.StandingProven
		}), "the last proven revision is remembered: %v, not in %v", s.Proven, s.Revisions)
	}
	require.Less(t, proto.Size(s), 64<<10)

	_, deadline := NextTick(w.policy, s)
	if s.Suspension.GetSuspended() {
		if a == nil || held(a) {
			require.False(t, deadline, "what is held back has no deadline")
			return
		}
	} else if a == nil {
		require.Nil(t, s.Waiting)
		require.Nil(t, s.WaitingTest)
	}
	require.Equal(t, a != nil, deadline, "an active request has a deadline, whatever happens, and nothing else has")
	if a == nil {
		return
	}
	require.Equal(t, a.Phase != pb.PhaseResolving && a.RetryAt == nil, a.Open != nil, "a command is out, or a pause")
	if a.Open != nil {
		require.Equal(t, s.Number, a.Open.Number)
		require.Equal(t, commandOf[a.Phase], a.Open.Kind)
		if c := w.orders[a.Open.Number]; c != nil {
			require.True(t, proto.Equal(c, order(s)), "the open command can be made again from the state")
		}
	}
	if s.Waiting != nil || len(a.Cancels) > 0 {
		require.NotNil(t, a.Open, "a request that has nothing running gives way at once")
		require.NotEqual(t, pb.PhaseTesting, a.Phase, "a test gives way at once")
	}
}

// note checks and remembers what follows from one step.
func (w *world) note(before *pb.ReleaseState, in Input, after *pb.ReleaseState, entries []*pb.OutboxEntry) {
	t, open := w.t, before.GetActive().GetOpen()
	r := before.GetActive().GetRequest()
	if in, ok := in.(OutcomeReceived); ok && open != nil && in.Outcome.Number == open.Number && in.Outcome.Service != service {
		o := in.Outcome
		switch o.Kind {
		case pb.KindDeployFailed, pb.KindRollbackFailed:
			if o.Kind == pb.KindDeployFailed && o.Failure.Class == pb.ClassFailed {
				w.badInputs[inputs(r)] = true
			}
			if n := o.Mutation.HelmRevision; n != 0 {
				w.badRevision[n] = true
			}
		case pb.KindUninstalled:
			require.Nil(t, after.Running)
			require.Nil(t, after.Proven)
			require.Empty(t, after.Revisions)
			clear(w.badRevision)
			clear(w.goodContent)
		case pb.KindTested:
			if v := o.TestRun.Verdict; v == pb.VerdictFailed || v == pb.VerdictTimedOut {
				w.verdicts[r.Id]++
				if w.verdicts[r.Id] >= int(r.Test.Attempts) {
					manifest := before.Running.ManifestDigest
					w.badContent[manifest], w.goodContent[manifest] = true, false
					if r.Verb == pb.VerbDeploy {
						w.badInputs[inputs(r)] = true
					}
				}
			}
		}
	}
	for manifest := range w.badContent {
		if !slices.ContainsFunc(after.Revisions, func(r *pb.RevisionRecord) bool { return r.Content.ManifestDigest == manifest }) {
			delete(w.badContent, manifest) // forgotten
		}
	}
	if in, ok := in.(RequestReceived); ok && in.Request.Verb == pb.VerbForgive {
		for key := range w.badInputs {
			if !slices.ContainsFunc(after.Quarantine, func(q *pb.Quarantined) bool { return q.Key == key }) {
				delete(w.badInputs, key)
			}
		}
	}
	ended := map[uint32]bool{}
	for _, e := range entries {
		w.checkOutcome(before, after, cmp.Or(e.GetOutcome(), e.GetSettled(), e.GetEnd().GetOutcome()))
		switch e := e.Entry.(type) {
		case *pb.OutboxEntry_End:
			ended[e.End.Outcome.Number] = true
			_, tick := in.(Tick)
			require.True(t, tick || e.End.Kind == pb.CommandTest, "only a test is cancelled; a mutation ends by itself, or is given up")
		case *pb.OutboxEntry_Command:
			w.checkOrder(before, after, in, e.Command, ended)
		case *pb.OutboxEntry_Settled:
			o := e.Settled
			require.Nil(t, w.settled[o.Request], "%s is settled twice", o.Request)
			if cancel := w.asked[o.Request]; o.Settlement.Result == pb.ResultDone && cancel.Verb == pb.VerbCancel {
				for _, r := range []*pb.Request{after.Active.GetRequest(), after.Waiting, after.WaitingTest} {
					require.False(t, r != nil && (cancel.Cancels == r.Id || cancel.Cancels == "" && r.Sequence < cancel.Sequence), "%s was to be cancelled", r.GetId())
				}
			}
			if o.Settlement.Result == pb.ResultProven {
				delete(w.badRevision, o.Running.HelmRevision)
				manifest := o.Running.ManifestDigest
				switch o.Settlement.Verdict {
				case pb.VerdictPassed, pb.VerdictNoTests:
					w.badContent[manifest], w.goodContent[manifest] = false, true
				default:
					require.True(t, w.goodContent[manifest], "%s is proven by nothing", o.Request)
				}
				asked := w.asked[o.Request]
				if asked.Verb == pb.VerbDeploy {
					delete(w.badInputs, inputs(asked))
				}
				if o.Settlement.Verdict != "" {
					delete(w.badInputs, w.inputsOf[o.Running.HelmRevision])
				}
			}
		}
	}
}

// checkOutcome checks that an outcome says what it is about, and what is deployed.
func (w *world) checkOutcome(before, after *pb.ReleaseState, o *pb.Outcome) {
	if o == nil {
		return
	}
	t, r := w.t, w.asked[o.Request]
	require.NotNil(t, r)
	require.Equal(t, release, o.Release)
	require.Equal(t, service, o.Service)
	require.Equal(t, r.Traceparent, o.Traceparent)
	require.True(t, w.now.Equal(o.Time.AsTime()))
	require.NotEmpty(t, o.Message)
	require.True(t, proto.Equal(before.GetRunning(), o.Running) || proto.Equal(after.GetRunning(), o.Running), "%s: running %v", o.Id, o.Running)
	if o.Number != 0 {
		require.Equal(t, fmt.Sprintf("%s/%d/%s", release, o.Number, o.Kind), strings.Join(strings.Split(o.Id, "/")[:5], "/"))
		require.True(t, o.Requested != nil || w.orders[o.Number].GetUninstall() != nil || after.Active.GetOpen().GetKind() == pb.CommandUninstall, o.Id)
	} else {
		require.Equal(t, o.Request+"/"+o.Kind, o.Id)
	}
	if a := before.GetActive(); a.GetRequest().GetId() == o.Request && a.Phase != pb.PhaseResolving && a.Phase != pb.PhaseUninstalling {
		require.True(t, o.Requested.GetDigest() != "" || o.Requested.GetHelmRevision() != 0, "%s: requested %v", o.Id, o.Requested)
	}
	if o.Running != nil {
		require.NotEmpty(t, o.Running.Annotations, "%s: running %v", o.Id, o.Running)
		require.NotEmpty(t, o.Running.Name)
		require.Positive(t, o.Running.HelmRevision)
		require.NotEmpty(t, o.Running.ManifestDigest)
	}
}

// checkOrder checks a command that is given out.
func (w *world) checkOrder(before, after *pb.ReleaseState, in Input, c *pb.Command, ended map[uint32]bool) {
	t := w.t
	if open := before.GetActive().GetOpen(); open != nil && open.Number == c.Number {
		require.True(t, open.Unpublished, "given out twice")
		return
	} else if open != nil {
		o, _ := in.(OutcomeReceived)
		require.True(t, o.Outcome.GetNumber() == open.Number || ended[open.Number], "command %d is still open when %d is given out", open.Number, c.Number)
	}
	require.Equal(t, before.GetNumber()+1, c.Number, "numbers rise")
	require.False(t, after.Suspension.GetSuspended(), "commanded while suspended")
	require.Equal(t, after.Active.Request.Id, c.Request)
	require.Equal(t, after.Active.Request.Generation, c.Generation)
	require.True(t, proto.Equal(after.Running, c.Running))
	require.True(t, c.Requested != nil || c.GetUninstall() != nil)
	r := after.Active.Request
	switch kindOf(c) {
	case pb.CommandTest:
		require.NotEmpty(t, c.GetTest().Options.Timeout, "no test without a time-out")
		require.Less(t, w.verdicts[r.Id], int(r.Test.Attempts), "tested again after a bad verdict")
	case pb.CommandRollback:
		to := c.GetRollback().ToRevision
		require.Positive(t, to, "a rollback names its revision")
		if before.GetActive().GetRequest().GetId() == r.Id && before.GetActive().GetRollbackTarget().GetHelmRevision() == to {
			return // tried again
		}
		if w.ghost && int(to) > len(w.helm) {
			return // the executor will see
		}
		target := w.helm[to-1].chart
		known := slices.ContainsFunc(before.GetRevisions(), func(r *pb.RevisionRecord) bool { return r.Content.HelmRevision == to })
		if !known {
			require.Equal(t, pb.VerbRollback, r.Verb)
			require.Equal(t, r.ToRevision, to)
			return
		}
		require.Equal(t, target.ManifestDigest, c.GetRollback().ManifestDigest)
		require.False(t, w.badContent[target.ManifestDigest], "back to what has failed")
		require.False(t, w.badRevision[to], "back to a revision that has failed")
		if after.Active.Failure != nil {
			require.True(t, w.goodContent[target.ManifestDigest] || w.generations[to] < r.Generation, "back to what was neither proven nor there before")
		}
	}
}
