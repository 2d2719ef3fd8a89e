package core

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// world is everything around the core, played honestly but with bad luck: planners that die between any two steps,
// streams that repeat and reorder, work queues with one message per subject, the ledger, workers that die or freeze, and
// a Helm that fails in every way. Whatever it meets, it checks what must always hold.
type world struct {
	t      *rapid.T
	policy Policy
	now    time.Time
	luck   int  // something goes wrong about once in so many times
	calm   int  // somebody asks about once in so many times while a request is active
	lucky  bool // nobody dies any more
	alone  bool // there are no workers any more

	// The planner's store, and its fetching of charts.
	state    *pb.ReleaseState
	fetching string

	// The streams: what is not yet acknowledged, and everything that was ever published.
	sequence uint64
	requests []*pb.Request
	refusals []*pb.Request
	outcomes []*pb.Outcome
	asked    map[string]*pb.Request
	told     map[string]*pb.Outcome
	settled  map[string]*pb.Outcome
	orders   map[uint32]*pb.Command

	// The workers' side.
	queue  map[string]*pb.Command // by kind of worker: one message each
	row    ledgerRow
	busy   *job
	frozen []*job
	fences int
	helm   []helmRevision

	// What must be remembered to check what must hold.
	badInputs   map[string]bool  // failed and not proven since
	badContent  map[string]bool  // by manifest: the last verdict was bad
	goodContent map[string]bool  // by manifest: proven, and the last verdict was not bad
	badRevision map[int32]bool   // failed half-way
	inputsOf    map[int32]string // by revision
	verdicts    map[string]int   // final bad verdicts by request
	generations map[int32]uint32 // by revision

	// ghost: a mutation was withdrawn at the very moment at which it was done. Until the planner hears of that, it takes
	// something else for what runs.
	ghost bool
}

type ledgerRow struct {
	number  uint32
	fence   int
	outcome *pb.Outcome // done, if there is one
}

type job struct {
	command *pb.Command
	kind    string
	fence   int
	taken   bool // from a former holder
}

type helmRevision struct {
	chart    *pb.ChartRevision
	deployed bool
}

func newWorld(t *rapid.T) *world {
	p := DefaultPolicy()
	p.MaxRevisions = rapid.SampledFrom([]int{2, 10}).Draw(t, "max revisions")
	return &world{
		t: t, policy: p, now: start,
		luck:  rapid.SampledFrom([]int{1000, 30, 6}).Draw(t, "luck"),
		calm:  rapid.SampledFrom([]int{30, 10, 2}).Draw(t, "calm"),
		asked: map[string]*pb.Request{}, told: map[string]*pb.Outcome{}, settled: map[string]*pb.Outcome{},
		orders: map[uint32]*pb.Command{}, queue: map[string]*pb.Command{},
		badInputs: map[string]bool{}, badContent: map[string]bool{}, goodContent: map[string]bool{},
		badRevision: map[int32]bool{}, inputsOf: map[int32]string{}, verdicts: map[string]int{}, generations: map[int32]uint32{},
	}
}

// roll returns one of 0..n-1, each about as often: rapid alone prefers small numbers. A story shrinks towards 0.
func (w *world) roll(n int, label string) int {
	return int(rapid.Uint64().Draw(w.t, label) * 0x9e3779b97f4a7c15 >> 33 % uint64(n))
}

// oneIn is true about once in n times.
func (w *world) oneIn(n int, label string) bool { return w.roll(n, label) == n-1 }

func (w *world) badLuck(label string) bool { return !w.lucky && w.oneIn(w.luck, label) }

func pick[T any](w *world, label string, from ...T) T { return from[w.roll(len(from), label)] }

// take takes one of a queue out of order, and leaves it there at times, to come again.
func take[T any](w *world, queue *[]T) (one T, ok bool) {
	if len(*queue) == 0 {
		return one, false
	}
	i := w.roll(len(*queue), "which")
	one = (*queue)[i]
	if !w.badLuck("comes again") {
		*queue = slices.Delete(*queue, i, i+1)
	}
	return one, true
}

// The planner's shell.

// plan lets a planner handle an input. It reports false if the planner died before it had stored what follows.
func (w *world) plan(in Input) bool {
	if !w.flush() {
		return false
	}
	step, note := w.decide(in)
	if w.badLuck("dies before it stores") {
		return false
	}
	w.store(step, note)
	w.flush()
	return true
}

func (w *world) store(step Step, note func()) {
	note()
	w.state = step.State
	if step.Resolve != nil {
		w.fetching = step.Resolve.Id
	}
}

// flush works off the outbox. It reports false if the planner died over it: then it is worked off from its beginning.
func (w *world) flush() bool {
	for i := 0; i < len(w.state.GetOutbox()); {
		if w.badLuck("dies in the outbox") {
			w.fetching = Resolving(w.state).GetId()
			return false
		}
		switch e := w.state.Outbox[i].Entry.(type) {
		case *pb.OutboxEntry_Command:
			if !w.order(e.Command) {
				w.store(w.decide(CommandTaken{e.Command.Number}))
				continue
			}
		case *pb.OutboxEntry_Outcome:
			w.tell(e.Outcome)
		case *pb.OutboxEntry_Settled:
			w.tell(e.Settled)
			w.settled[e.Settled.Request] = e.Settled
		case *pb.OutboxEntry_End:
			w.end(e.End)
		}
		i++
	}
	if w.state != nil {
		w.state = proto.CloneOf(w.state)
		w.state.Outbox = nil
	}
	return true
}

// tell publishes an outcome: the same id always is the same fact. Only if a tester ends a run at the very moment at which
// the planner cancels it, there are two; the stream keeps the first.
func (w *world) tell(o *pb.Outcome) {
	if before, again := w.told[o.Id]; again {
		if o.Kind == pb.KindTested && before.Service != o.Service {
			return
		}
		require.True(w.t, proto.Equal(before, o), "%s told differently:\n%v\n%v", o.Id, before, o)
		return
	}
	w.told[o.Id] = o
	w.outcomes = append(w.outcomes, o)
}

// order publishes a command, unless its subject is taken by another one.
func (w *world) order(c *pb.Command) bool {
	if before, again := w.orders[c.Number]; again {
		require.True(w.t, proto.Equal(before, c), "command %d changed:\n%v\n%v", c.Number, before, c)
	}
	w.orders[c.Number] = c
	kind := workerOf(c)
	if other := w.queue[kind]; other != nil && other.Number != c.Number {
		return false
	}
	w.queue[kind] = c
	return true
}

func workerOf(c *pb.Command) string {
	if c.GetTest() != nil {
		return "tester"
	}
	return "executor"
}

// end writes the ledger as the planner does.
func (w *world) end(e *pb.CommandEnd) {
	if w.row.number == e.Outcome.Number && w.row.outcome.GetMutation() != nil {
		w.ghost = true
	}
	if n := e.Outcome.Number; w.row.number < n || w.row.number == n && w.row.outcome == nil {
		w.row = ledgerRow{number: n, outcome: e.Outcome}
	}
	for kind, c := range w.queue {
		if c.Number == e.Outcome.Number {
			delete(w.queue, kind)
		}
	}
}

// What may happen.

func (w *world) ask() {
	if phase(w.state) != idle && !w.oneIn(w.calm, "impatient") {
		return
	}
	w.sequence++
	verb := pick(w, "verb", pb.VerbDeploy, pb.VerbDeploy, pb.VerbDeploy, pb.VerbDeploy, pb.VerbRollback, pb.VerbRollback, pb.VerbTest, pb.VerbTest,
		pb.VerbUninstall, pb.VerbCancel, pb.VerbSuspend, pb.VerbForgive)
	if w.state.GetSuspension().GetSuspended() && w.oneIn(2, "resume") {
		verb = pb.VerbResume
	}
	r := newRequest(verb, fmt.Sprintf("%s-%d", verb, w.sequence), w.sequence)
	w.asked[r.Id] = r
	w.requests = append(w.requests, r)
	switch verb {
	case pb.VerbUninstall:
		r.Uninstall.KeepHistory = w.oneIn(3, "keep history")
		return
	case pb.VerbCancel:
		if w.oneIn(3, "one request") {
			r.Cancels = pick(w, "which request", slices.Sorted(maps.Keys(w.asked))...)
		}
		return
	case pb.VerbForgive:
		if q := w.state.GetQuarantine(); len(q) > 0 && w.oneIn(2, "one key") {
			r.Forgives = q[w.roll(len(q), "which key")].Key
		}
		return
	case pb.VerbSuspend, pb.VerbResume:
		return
	}
	r.Test.Enabled = proto.Bool(!w.oneIn(6, "untested"))
	r.Test.Attempts = pick[int32](w, "attempts", 1, 1, 2)
	r.Test.ErrorAttempts = pick[int32](w, "error attempts", 1, 2)
	r.Test.OnFailure = pick(w, "onFailure", pb.OnFailureRollback, pb.OnFailureRollback, pb.OnFailureHold)
	r.Test.OnError = pick(w, "onError", pb.OnFailureRollback, pb.OnFailureHold)
	r.Test.Required = w.oneIn(4, "required")
	switch verb {
	case pb.VerbDeploy:
		r.Chart.Object = pick(w, "chart", "1.0.0", "1.1.0", "1.2.0")
		r.Fingerprint = pick(w, "values", "", "a", "b")
		r.Force = w.oneIn(4, "force")
		r.Upgrade.OnFailure = pick(w, "upgrade.onFailure", pb.OnFailureRollback, pb.OnFailureHold)
		if w.oneIn(4, "uninstall on failure") {
			r.Test.OnFailure = pb.OnFailureUninstall
		}
	case pb.VerbRollback:
		r.ToRevision = rapid.Int32Range(0, int32(len(w.helm))).Draw(w.t, "to")
	}
}

func (w *world) deliverRequest() {
	w.deliver(&w.requests, func(r *pb.Request) Input { return RequestReceived{r} })
}

func (w *world) deliverRefusal() {
	w.deliver(&w.refusals, func(r *pb.Request) Input {
		return RequestRejected{r, &pb.Failure{Class: pb.ClassRejected, Reason: "malformed"}}
	})
}

// deliver hands a request to a planner. To one that is settled the shell answers by itself, and the outbox comes first.
func (w *world) deliver(queue *[]*pb.Request, input func(*pb.Request) Input) {
	r, ok := take(w, queue)
	if !ok {
		return
	}
	if flushed := w.flush(); !flushed || w.settled[r.Id] == nil && !w.plan(input(r)) {
		*queue = append(*queue, r)
	}
}

func (w *world) refuse() {
	if !w.oneIn(5, "malformed") {
		return
	}
	w.sequence++
	r := newRequest(pb.VerbDeploy, fmt.Sprintf("refused-%d", w.sequence), w.sequence)
	w.asked[r.Id] = r
	w.refusals = append(w.refusals, r)
}

func (w *world) fetch() {
	r := w.asked[w.fetching]
	if r == nil {
		return
	}
	in := ChartResolved{RequestID: r.Id, Chart: newChart(r.Chart.Object)}
	if w.oneIn(8, "fetching fails") {
		class := pick(w, "class", pb.ClassTransient, pb.ClassTransient, pb.ClassRejected, pb.ClassFailed)
		in = ChartResolved{RequestID: r.Id, Failure: &pb.Failure{Class: class, Reason: "fetching failed"}}
	}
	if w.fetching = ""; !w.plan(in) {
		w.fetching = Resolving(w.state).GetId()
	}
}

func (w *world) deliverOutcome() {
	o, ok := take(w, &w.outcomes)
	if ok && !w.plan(OutcomeReceived{o}) {
		w.outcomes = append(w.outcomes, o)
	}
}

func (w *world) passTime() {
	if next, ok := NextTick(w.policy, w.state); ok && (w.lucky || w.oneIn(10, "to the deadline")) {
		w.now = maxTime(w.now, next)
	} else {
		w.now = w.now.Add(time.Duration(rapid.IntRange(0, 40).Draw(w.t, "seconds")) * time.Second)
	}
	w.plan(Tick{})
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// publishStale is a planner that froze before it published a command, long ago.
func (w *world) publishStale() {
	if len(w.orders) == 0 {
		return
	}
	c := w.orders[rapid.Uint32Range(1, uint32(len(w.orders))).Draw(w.t, "stale")]
	if c != nil && w.queue[workerOf(c)] == nil {
		w.queue[workerOf(c)] = c
	}
}

// The workers.

func (w *world) work() {
	if w.alone {
		return
	}
	if w.busy == nil {
		for _, kind := range []string{"executor", "tester"} {
			if w.busy == nil {
				w.begin(kind)
			}
		}
		return
	}
	switch j := w.busy; {
	case w.badLuck("worker dies"):
		w.busy = nil
	case w.badLuck("worker freezes"):
		w.busy, w.frozen = nil, append(w.frozen, j)
	case w.oneIn(2, "says that it works"):
		w.tell(w.word(j, w.started(j)))
	default:
		w.finish(j)
	}
}

// thaw lets a frozen worker try to finish.
func (w *world) thaw() {
	if j, ok := take(w, &w.frozen); ok {
		w.finish(j)
	}
}

// begin takes a command: ledger first.
func (w *world) begin(kind string) {
	c := w.queue[kind]
	switch {
	case c == nil:
	case c.Number < w.row.number:
		delete(w.queue, kind)
	case c.Number == w.row.number && w.row.outcome != nil:
		w.publish(kind, c)
	default:
		taken := c.Number == w.row.number
		w.fences++
		w.row = ledgerRow{number: c.Number, fence: w.fences}
		w.busy = &job{command: c, kind: kind, fence: w.fences, taken: taken}
	}
}

// finish does the work and writes the ledger, if it is still this worker's to write.
func (w *world) finish(j *job) {
	if w.busy == j {
		w.busy = nil
	}
	if w.row.number != j.command.Number || w.row.fence != j.fence || w.row.outcome != nil {
		return
	}
	w.row.outcome = w.do(j)
	if !w.badLuck("dies before it publishes") {
		w.publish(j.kind, j.command)
	}
}

// publish tells the outcome that stands in the ledger, and acknowledges the command.
func (w *world) publish(kind string, c *pb.Command) {
	if w.row.outcome.Service != service { // else the planner has told it
		w.tell(w.row.outcome)
	}
	if q := w.queue[kind]; q != nil && q.Number == c.Number {
		delete(w.queue, kind)
	}
}

func (w *world) word(j *job, kind string) *pb.Outcome {
	o := newOutcome(j.command, j.kind, kind, w.now)
	o.Id = fmt.Sprintf("%s/%d/%s", release, o.Number, kind)
	if kind == w.started(j) {
		o.Id += fmt.Sprintf("/%d-%d", j.fence, w.now.UnixNano())
	}
	return o
}

func (w *world) started(j *job) string {
	return map[string]string{
		pb.CommandDeploy: pb.KindDeploying, pb.CommandTest: pb.KindTesting, pb.CommandRollback: pb.KindRollingBack,
		pb.CommandUninstall: pb.KindUninstalling,
	}[kindOf(j.command)]
}

func kindOf(c *pb.Command) string {
	switch {
	case c.GetDeploy() != nil:
		return pb.CommandDeploy
	case c.GetTest() != nil:
		return pb.CommandTest
	case c.GetUninstall() != nil:
		return pb.CommandUninstall
	}
	return pb.CommandRollback
}

// do carries a command out, well or badly.
func (w *world) do(j *job) *pb.Outcome {
	if j.taken && w.oneIn(2, "interrupted") {
		return w.word(j, pb.KindInterrupted)
	}
	switch c := j.command; kindOf(c) {
	case pb.CommandDeploy:
		inputs := inputs(w.asked[c.Request])
		if slices.Contains(c.Quarantined, inputs) && !c.GetDeploy().Force {
			o := w.word(j, pb.KindDeployFailed)
			o.Mutation = &pb.Mutation{QuarantineKey: inputs}
			o.Failure = &pb.Failure{Class: pb.ClassRejected, Reason: "in quarantine"}
			return o
		}
		require.True(w.t, c.GetDeploy().Force || !w.badInputs[inputs], "%s failed before, and is deployed without force", inputs)
		manifest := "manifest-" + inputs
		return w.mutate(j, pb.KindDeployed, pb.KindDeployFailed, at(c.Requested, 0, manifest), &pb.Mutation{QuarantineKey: inputs, ManifestDigest: manifest})
	case pb.CommandRollback:
		to := c.GetRollback().ToRevision
		if int(to) > len(w.helm) { // uninstalled since
			o := w.word(j, pb.KindRollbackFailed)
			o.Mutation, o.Running = &pb.Mutation{TargetRevision: to}, w.running()
			o.Failure = &pb.Failure{Class: pb.ClassFailed, Reason: "no record"}
			return o
		}
		target := w.helm[to-1].chart
		return w.mutate(j, pb.KindRolledBack, pb.KindRollbackFailed, target, &pb.Mutation{TargetRevision: to, ManifestDigest: target.ManifestDigest})
	case pb.CommandUninstall:
		return w.uninstall(j)
	default:
		require.True(w.t, w.ghost || w.running().GetHelmRevision() == c.GetTest().HelmRevision, "tests something else than what runs")
		o := w.word(j, pb.KindTested)
		o.TestRun = &pb.TestRun{Verdict: pb.VerdictPassed}
		if w.running() == nil {
			o.TestRun.Verdict = pb.VerdictErrored
		} else if w.oneIn(2, "not passed") {
			o.TestRun.Verdict = pick(w, "verdict", pb.VerdictFailed, pb.VerdictFailed, pb.VerdictTimedOut,
				pb.VerdictErrored, pb.VerdictErrored, pb.VerdictNoTests, pb.VerdictCancelled)
		}
		if o.TestRun.Verdict == pb.VerdictNoTests && w.oneIn(2, "filtered out") {
			o.TestRun.Tests = []*pb.TestResult{{Name: "web-smoke", Phase: pb.PhaseNotSelected}}
		}
		return o
	}
}

func (w *world) mutate(j *job, done, failed string, content *pb.ChartRevision, m *pb.Mutation) *pb.Outcome {
	result := "done"
	if w.oneIn(3, "not done") {
		result = pick(w, "result", "record", "record", "mutated", pb.ClassFailed, pb.ClassTransient, pb.ClassTransient,
			pb.ClassRejected, pb.ClassInterrupted, pb.ClassInterrupted, pb.ClassBlocked)
	}
	if result == "done" || result == "record" {
		made := proto.CloneOf(content)
		made.HelmRevision = int32(len(w.helm) + 1)
		w.helm = append(w.helm, helmRevision{chart: made, deployed: result == "done"})
		m.HelmRevision = made.HelmRevision
		w.inputsOf[made.HelmRevision] = m.QuarantineKey
		w.generations[made.HelmRevision] = j.command.Generation
	}
	if result == "done" {
		o := w.word(j, done)
		o.Mutation, o.Running = m, w.running()
		return o
	}
	o := w.word(j, failed)
	o.Mutation, o.Running = m, w.running()
	o.Failure = &pb.Failure{Class: result, Reason: "bad luck"}
	if result == "record" || result == "mutated" {
		o.Failure.Class, o.Failure.Mutated = pb.ClassFailed, true
	}
	return o
}

// uninstall removes the release, or fails, at times half-way.
func (w *world) uninstall(j *job) *pb.Outcome {
	m := &pb.Mutation{Action: "uninstall", FromRevision: w.running().GetHelmRevision()}
	result := "done"
	if w.oneIn(3, "not done") {
		result = pick(w, "result", "half", pb.ClassFailed, pb.ClassTransient, pb.ClassTransient, pb.ClassRejected, pb.ClassInterrupted, pb.ClassBlocked)
	}
	requested := proto.CloneOf(w.running())
	if result == "done" || result == "half" {
		for i := range w.helm {
			w.helm[i].deployed = false
		}
	}
	if result == "done" {
		if !j.command.GetUninstall().GetOptions().GetKeepHistory() {
			w.helm, w.inputsOf, w.generations = nil, map[int32]string{}, map[int32]uint32{}
		}
		o := w.word(j, pb.KindUninstalled)
		o.Mutation, o.Requested, o.Running = m, requested, nil
		return o
	}
	o := w.word(j, pb.KindUninstallFailed)
	o.Mutation, o.Running = m, w.running()
	o.Failure = &pb.Failure{Class: result, Reason: "bad luck"}
	if result == "half" {
		o.Failure.Class, o.Failure.Mutated = pb.ClassFailed, true
	}
	return o
}

// running is the newest revision that was deployed.
func (w *world) running() *pb.ChartRevision {
	for _, r := range slices.Backward(w.helm) {
		if r.deployed {
			return r.chart
		}
	}
	return nil
}

// inputs names what decides how a deploy turns out.
func inputs(r *pb.Request) string { return r.Chart.Object + "/" + r.Fingerprint }
