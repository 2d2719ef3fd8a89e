package core

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestScenarios plays the stories in testdata. A line that begins with `>` is an input; what is indented below it is
// what follows from it. testdata/README explains the words.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := play(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(text), got, "go test -update writes what came out")
		})
	}
}

// stage is where a scenario is played: the planner's core with a simple Helm.
type stage struct {
	t        *testing.T
	now      time.Time
	state    *pb.ReleaseState
	command  *pb.Command
	sequence uint64
	revision int32
	history  map[int32]*pb.ChartRevision
	out      bytes.Buffer
}

func play(t *testing.T, text string) string {
	s := &stage{t: t}
	s.clear()
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, ">"):
			s.out.WriteString(line)
			s.input(strings.TrimSpace(strings.TrimPrefix(line, ">")))
		case strings.HasPrefix(line, " "): // the golden output
		default:
			if strings.HasPrefix(line, "==") {
				s.clear()
			}
			s.out.WriteString(line)
		}
	}
	return s.out.String()
}

func (s *stage) clear() {
	s.now, s.state, s.command, s.sequence, s.revision = start, nil, nil, 0, 0
	s.history = map[int32]*pb.ChartRevision{}
}

// args are the words of an input line: `word word key=value : reason`.
type args struct {
	words  []string
	values map[string]string
	reason string
}

func parse(line string) args {
	a := args{values: map[string]string{}}
	head, reason, _ := strings.Cut(line, " : ")
	a.reason = reason
	for _, word := range strings.Fields(head) {
		if key, value, ok := strings.Cut(word, "="); ok {
			a.values[key] = value
		} else {
			a.words = append(a.words, word)
		}
	}
	return a
}

func (a args) has(word string) bool { return slices.Contains(a.words[1:], word) }

func (a args) number(key string, otherwise int) int {
	if n, err := strconv.Atoi(a.values[key]); err == nil {
		return n
	}
	return otherwise
}

func (s *stage) input(line string) {
	a := parse(line)
	switch word := a.words[0]; word {
	case pb.VerbDeploy, pb.VerbRollback, pb.VerbUninstall, pb.VerbTest, pb.VerbCancel, pb.VerbSuspend, pb.VerbResume, pb.VerbForgive:
		s.decide(RequestReceived{s.request(a)})
	case "refused":
		s.decide(RequestRejected{s.request(a), &pb.Failure{Class: pb.ClassRejected, Reason: a.reason}})
	case "resolved":
		c := newChart(a.words[1])
		s.decide(ChartResolved{RequestID: cmp.Or(a.values["request"], s.state.GetActive().GetRequest().GetId()), Chart: c})
	case "unresolved":
		s.decide(ChartResolved{RequestID: s.state.GetActive().GetRequest().GetId(), Failure: s.failure(a)})
	case "taken":
		s.decide(CommandTaken{s.command.GetNumber()})
	case "wait":
		s.wait(a.words[1], slices.Contains(a.words, "busy"))
	case "show":
		s.show()
	default:
		s.decide(OutcomeReceived{s.outcome(a)})
	}
}

func (s *stage) request(a args) *pb.Request {
	verb := a.words[0]
	if verb == "refused" {
		verb = pb.VerbDeploy
	}
	if _, given := a.values["seq"]; !given {
		s.sequence++
	}
	r := newRequest(verb, a.words[1], uint64(a.number("seq", int(s.sequence))))
	s.sequence = max(s.sequence, r.Sequence)
	r.Force = a.has("force")
	r.ToRevision = int32(a.number("to", 0))
	r.Cancels, r.Forgives = a.values["request"], a.values["key"]
	if r.Uninstall != nil {
		r.Uninstall.KeepHistory = a.has("keepHistory")
	}
	if r.Test == nil {
		return r
	}
	if v, ok := a.values["values"]; ok {
		r.Fingerprint = v
	}
	r.Test.Enabled = proto.Bool(!a.has("untested"))
	r.Test.Required = a.has("required")
	r.Test.Attempts = int32(a.number("attempts", 1))
	r.Test.ErrorAttempts = int32(a.number("errorAttempts", 2))
	r.Test.OnFailure = cmp.Or(a.values["test.onFailure"], r.Test.OnFailure)
	r.Test.OnError = cmp.Or(a.values["test.onError"], r.Test.OnError)
	r.Test.Pool = a.values["pool"]
	if r.Upgrade != nil {
		r.Upgrade.OnFailure = cmp.Or(a.values["upgrade.onFailure"], r.Upgrade.OnFailure)
	}
	return r
}

func (s *stage) failure(a args) *pb.Failure {
	return &pb.Failure{Class: a.words[1], Reason: a.reason, Mutated: a.has("mutated")}
}

// outcome makes what the worker of the last command says.
func (s *stage) outcome(a args) *pb.Outcome {
	kind, service := a.words[0], "executor"
	if kind == pb.KindTesting || kind == pb.KindTested {
		service = "tester"
	}
	c := s.command
	o := newOutcome(c, service, kind, s.now)
	o.Number = uint32(a.number("number", int(c.GetNumber())))
	o.Message = a.reason
	m := &pb.Mutation{QuarantineKey: a.values["key"], Tests: int32(a.number("tests", 1))}
	if kind == pb.KindDeployed || kind == pb.KindRolledBack || a.has("recorded") {
		s.revision = int32(a.number("revision", int(s.revision)+1))
		m.HelmRevision = s.revision
	}
	switch kind {
	case pb.KindDeployed, pb.KindDeployFailed:
		if m.QuarantineKey == "" {
			m.QuarantineKey = "key-" + c.GetRequested().GetVersion() + "-" + s.state.GetActive().GetRequest().GetFingerprint()
		}
		m.Action, m.FromRevision = "upgrade", c.GetRunning().GetHelmRevision()
		m.ManifestDigest = cmp.Or(a.values["manifest"], "manifest-"+c.GetRequested().GetVersion())
		s.history[m.HelmRevision] = at(c.GetRequested(), m.HelmRevision, m.ManifestDigest)
	case pb.KindRolledBack, pb.KindRollbackFailed:
		target := s.history[c.GetRollback().GetToRevision()]
		m.Action, m.TargetRevision, m.FailedRevision = "rollback", c.GetRollback().GetToRevision(), c.GetRollback().GetFailedRevision()
		m.ManifestDigest = cmp.Or(a.values["manifest"], target.GetManifestDigest())
		s.history[m.HelmRevision] = at(target, m.HelmRevision, m.ManifestDigest)
	case pb.KindUninstalled, pb.KindUninstallFailed:
		m = &pb.Mutation{Action: "uninstall", FailedRevision: c.GetUninstall().GetFailedRevision(), Recovered: a.has("recovered")}
		if !a.has("nothing") {
			m.FromRevision = int32(a.number("from", int(c.GetRunning().GetHelmRevision())))
		}
	}
	switch kind {
	case pb.KindUninstalled:
		o.Mutation, o.Running = m, nil
		if v := a.values["was"]; v != "" { // deployed by hand
			o.Requested = at(newChart(v), m.FromRevision, "manifest-"+v)
		}
		if !c.GetUninstall().GetOptions().GetKeepHistory() {
			s.revision, s.history = 0, map[int32]*pb.ChartRevision{}
		}
	case pb.KindUninstallFailed:
		o.Mutation, o.Failure = m, s.failure(a)
		if a.has("half") {
			o.Running = nil
		}
	case pb.KindDeployed, pb.KindRolledBack:
		o.Mutation = m
		o.Running = s.history[m.HelmRevision]
	case pb.KindDeployFailed, pb.KindRollbackFailed:
		o.Mutation, o.Failure = m, s.failure(a)
		if n := a.number("runs", 0); n != 0 {
			o.Running = at(newChart("0.9.0"), int32(n), "manifest-0.9.0")
		}
	case pb.KindTested:
		o.TestRun = &pb.TestRun{Verdict: a.words[1], Reason: a.reason, Attempt: c.GetTest().GetAttempt()}
		for _, test := range strings.FieldsFunc(a.values["tests"], func(r rune) bool { return r == ',' }) {
			name, phase, _ := strings.Cut(test, ":")
			o.TestRun.Tests = append(o.TestRun.Tests, &pb.TestResult{Name: name, Phase: phase})
		}
	}
	return o
}

// wait lets time pass, and each deadline in it. Meanwhile the workers may be busy with other releases.
func (s *stage) wait(span string, busy bool) {
	d, err := time.ParseDuration(span)
	require.NoError(s.t, err)
	end := s.now.Add(d)
	for {
		next, ok := NextTick(DefaultPolicy(), s.state)
		if !ok || next.After(end) {
			break
		}
		s.now = next
		s.say("at %s", s.now.Sub(start))
		s.decide(Tick{Attended: busy})
	}
	s.now = end
}

func (s *stage) decide(in Input) {
	step, err := Decide(DefaultPolicy(), s.state, s.now, 0, in)
	if err != nil {
		s.say("error: %v", err)
		return
	}
	s.state = step.State
	for _, e := range s.state.Outbox {
		s.entry(e)
	}
	s.state.Outbox = nil
	if step.Resolve != nil {
		s.say("fetch the chart of %s", step.Resolve.Id)
	}
}

func (s *stage) say(format string, a ...any) { fmt.Fprintf(&s.out, "  "+format+"\n", a...) }

func (s *stage) entry(e *pb.OutboxEntry) {
	switch e := e.Entry.(type) {
	case *pb.OutboxEntry_Command:
		s.command = e.Command
		s.say("command %s", words(e.Command))
	case *pb.OutboxEntry_End:
		s.say("end command %d (%s) as %s", e.End.Outcome.Number, e.End.Kind, e.End.Outcome.Kind)
	case *pb.OutboxEntry_Outcome:
		o := e.Outcome
		what := o.Kind + " " + o.Request
		if o.Number != 0 {
			what += fmt.Sprintf(" command %d", o.Number)
		}
		s.say("%s%s", what, blocks(o))
		s.explain(o)
	case *pb.OutboxEntry_Settled:
		o := e.Settled
		s.say("settled %s %s%s", o.Request, strings.ToUpper(o.Settlement.Result), blocks(o))
		s.explain(o)
	}
}

// explain shows what an outcome tells people.
func (s *stage) explain(o *pb.Outcome) {
	s.say("  %s", o.Message)
	if next := o.GetFailure().GetNext(); next != "" {
		s.say("  next: %s", next)
	}
}

// words shows a command.
func words(c *pb.Command) string {
	head := fmt.Sprintf("%d for %s: ", c.Number, c.Request)
	switch a := c.Action.(type) {
	case *pb.Command_Deploy:
		head += "deploy " + title(c.Requested)
		if a.Deploy.Force {
			head += " by force"
		}
	case *pb.Command_Test:
		head += fmt.Sprintf("test revision %d, run %d", a.Test.HelmRevision, a.Test.Attempt)
		if a.Test.Options.Pool != "" {
			head += ", pool " + a.Test.Options.Pool
		}
	case *pb.Command_Uninstall:
		head += "uninstall"
		if a.Uninstall.Options.KeepHistory {
			head += ", keep the history"
		}
		if a.Uninstall.FailedRevision != 0 {
			head += fmt.Sprintf(", revision %d failed", a.Uninstall.FailedRevision)
		}
	case *pb.Command_Rollback:
		head += fmt.Sprintf("roll back to revision %d", a.Rollback.ToRevision)
		if a.Rollback.ManifestDigest != "" {
			head += " (" + a.Rollback.ManifestDigest + ")"
		}
		if a.Rollback.FailedRevision != 0 {
			head += fmt.Sprintf(", revision %d failed", a.Rollback.FailedRevision)
		}
	}
	if len(c.Quarantined) > 0 {
		head += ", quarantined " + strings.Join(c.Quarantined, " ")
	}
	return head
}

// blocks shows which charts an outcome is about.
func blocks(o *pb.Outcome) string {
	var b string
	if o.Requested != nil {
		b += " | asked " + chart(o.Requested)
	}
	if o.Running != nil {
		b += " | runs " + chart(o.Running)
	}
	if s := o.Settlement; s.GetVerdict() != "" {
		b += " | tests " + s.Verdict
	}
	if s := o.Settlement; s.GetFailedRevision() != 0 {
		b += fmt.Sprintf(" | revision %d failed", s.FailedRevision)
	}
	if o.Failure != nil {
		b += " | class " + o.Failure.Class
	}
	return b
}

func chart(c *pb.ChartRevision) string {
	b := cmp.Or(title(c), "?")
	if c.HelmRevision != 0 {
		b += fmt.Sprintf(" (%d)", c.HelmRevision)
	}
	if len(c.Annotations) == 0 {
		b += " without annotations"
	}
	return b
}

// show says what the planner knows.
func (s *stage) show() {
	st := s.state
	s.say("phase %s, generation %d, number %d", phase(st), st.GetGeneration(), st.GetNumber())
	if st.GetWaiting() != nil || st.GetWaitingTest() != nil {
		s.say("waiting: %s %s", st.GetWaiting().GetId(), st.GetWaitingTest().GetId())
	}
	if by := st.GetSuspension(); by.GetSuspended() {
		s.say(suspendedBy(by))
	}
	if st.GetRunning() != nil {
		s.say("running: %s", chart(st.Running))
	}
	if st.GetProven() != nil {
		s.say("proven: %s, %s by %s", chart(st.Proven.Content), st.Proven.Verdict, st.Proven.Request)
	}
	for _, r := range st.GetRevisions() {
		s.say("revision %d: %s, generation %d, %s", r.Content.HelmRevision, title(r.Content), r.Generation, r.Standing)
	}
	for _, q := range st.GetQuarantine() {
		s.say("quarantine: %s, revision %d of %s: %s", q.Key, q.HelmRevision, q.Request, q.Reason)
	}
}
