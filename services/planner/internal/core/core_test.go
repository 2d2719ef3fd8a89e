package core

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// tell decides one input after the other, each outbox being worked off, and returns what was in the last one.
func tell(t *testing.T, p Policy, state *pb.ReleaseState, inputs ...Input) (*pb.ReleaseState, []*pb.OutboxEntry) {
	t.Helper()
	var outbox []*pb.OutboxEntry
	for _, in := range inputs {
		step, err := Decide(p, state, start, 0, in)
		require.NoError(t, err)
		state, outbox = step.State, step.State.Outbox
		state.Outbox = nil
	}
	return state, outbox
}

// said is what the worker of the open command says.
func said(state *pb.ReleaseState, kind string, more func(*pb.Outcome)) OutcomeReceived {
	o := newOutcome(order(state), "worker", kind, start)
	more(o)
	return OutcomeReceived{o}
}

func TestPausesDoubleUpToTheMaximumAndJitterTakesAtMostHalf(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	for name, row := range map[string]struct {
		tries  int32
		jitter float64
		want   time.Duration
	}{
		"first":            {1, 0, 2 * time.Second},
		"second":           {2, 0, 4 * time.Second},
		"fourth":           {4, 0, 16 * time.Second},
		"at the maximum":   {6, 0, time.Minute},
		"far beyond":       {1000, 0, time.Minute},
		"with half jitter": {2, 0.5, 3 * time.Second},
		"with all jitter":  {2, 1, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &decision{policy: p, jitter: row.jitter}
			require.Equal(t, row.want, d.pause(row.tries))
		})
	}
}

func TestTransientTriesEndWithTheirBudgetOfTime(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.TransientTries, p.TransientBudget = 100, 5*time.Second
	state, _ := tell(t, p, nil, RequestReceived{newRequest(pb.VerbDeploy, "d1", 1)}, ChartResolved{"d1", newChart("1.0.0"), nil})
	now := start
	for try := 1; ; try++ {
		in := said(state, pb.KindDeployFailed, func(o *pb.Outcome) { o.Failure = &pb.Failure{Class: pb.ClassTransient, Reason: "away"} })
		step, err := Decide(p, state, now, 0, in)
		require.NoError(t, err)
		at, more := NextTick(p, step.State)
		if !more {
			require.Equal(t, 2, try, "2 s later there is another try, 4 s after that would be too late")
			require.Contains(t, step.State.Outbox[0].GetSettled().Message, "given up after 2 tries")
			return
		}
		now = at
		step, err = Decide(p, step.State, now, 0, Tick{})
		require.NoError(t, err)
		state = step.State
		state.Outbox = nil
	}
}

func TestQuarantineForgetsTheOldest(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.MaxQuarantined = 2
	var state *pb.ReleaseState
	for i, version := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		state, _ = tell(t, p, state, RequestReceived{newRequest(pb.VerbDeploy, version, uint64(i+1))}, ChartResolved{version, newChart(version), nil})
		state, _ = tell(t, p, state, said(state, pb.KindDeployFailed, func(o *pb.Outcome) {
			o.Failure = &pb.Failure{Class: pb.ClassFailed, Reason: "not a number"}
			o.Mutation = &pb.Mutation{QuarantineKey: "key-" + version}
		}))
	}
	require.Len(t, state.Quarantine, 2)
	require.Equal(t, "key-1.1.0", state.Quarantine[0].Key)
	require.Equal(t, "key-1.2.0", state.Quarantine[1].Key)
}

func TestWhatRunsAndWhatWasProvenLastIsNeverForgotten(t *testing.T) {
	t.Parallel()
	p := DefaultPolicy()
	p.MaxRevisions = 3
	var state *pb.ReleaseState
	for i := range int32(6) {
		id := string('a' + i)
		r := newRequest(pb.VerbDeploy, id, uint64(i+1))
		r.Test.Enabled = proto.Bool(i == 0)
		state, _ = tell(t, p, state, RequestReceived{r}, ChartResolved{id, newChart(id), nil})
		state, _ = tell(t, p, state, said(state, pb.KindDeployed, func(o *pb.Outcome) {
			o.Mutation = &pb.Mutation{HelmRevision: i + 1, ManifestDigest: "manifest-" + id}
		}))
		if i == 0 {
			state, _ = tell(t, p, state, said(state, pb.KindTested, func(o *pb.Outcome) { o.TestRun = &pb.TestRun{Verdict: pb.VerdictPassed} }))
		}
	}
	var kept []int32
	for _, r := range state.Revisions {
		kept = append(kept, r.Content.HelmRevision)
	}
	require.Equal(t, []int32{1, 5, 6}, kept)
}

func TestCommandCarriesAllThatItsWorkerNeeds(t *testing.T) {
	t.Parallel()
	values, err := structpb.NewStruct(map[string]any{"replicas": 2})
	require.NoError(t, err)
	r := newRequest(pb.VerbDeploy, "d1", 1)
	r.Values, r.ValuesFrom = values, []*pb.ValuesFrom{{Kind: "Secret", Name: "web-values"}}
	r.Test.Pool = "big"
	state, outbox := tell(t, DefaultPolicy(), nil, RequestReceived{r}, ChartResolved{"d1", newChart("1.0.0"), nil})
	require.Len(t, outbox, 1)
	want := &pb.Command{
		Release: release, Number: 1, Generation: 1, Request: "d1", Traceparent: "00-d1", IssuedAt: state.Active.Open.IssuedAt,
		Requested: newChart("1.0.0"),
		Action: &pb.Command_Deploy{Deploy: &pb.DeployCommand{
			ChartDigest: "sha256:1.0.0", Values: values, ValuesFrom: r.ValuesFrom, Upgrade: r.Upgrade, Test: r.Test,
		}},
	}
	require.True(t, proto.Equal(want, outbox[0].GetCommand()), "%v", outbox[0].GetCommand())

	running := at(newChart("1.0.0"), 1, "manifest")
	state, outbox = tell(t, DefaultPolicy(), state, said(state, pb.KindDeployed, func(o *pb.Outcome) {
		o.Running = running
		o.Mutation = &pb.Mutation{HelmRevision: 1, ManifestDigest: "manifest"}
	}))
	running.Digest = "sha256:1.0.0" // the executor does not know it, the planner does
	want = &pb.Command{
		Release: release, Number: 2, Generation: 1, Request: "d1", Traceparent: "00-d1", IssuedAt: state.Active.Open.IssuedAt,
		Requested: newChart("1.0.0"), Running: running,
		Action: &pb.Command_Test{Test: &pb.TestCommand{HelmRevision: 1, ManifestDigest: "manifest", Options: r.Test, Attempt: 1}},
	}
	require.True(t, proto.Equal(want, outbox[0].GetCommand()), "%v", outbox[0].GetCommand())

	_, outbox = tell(t, DefaultPolicy(), state, RequestReceived{newRequest(pb.VerbDeploy, "d2", 2)})
	end := outbox[1].GetEnd()
	require.Equal(t, "big", end.Pool)
	require.Equal(t, pb.CommandTest, end.Kind)
	require.Equal(t, release+"/2/tested", end.Outcome.Id)
	require.Equal(t, pb.VerdictCancelled, end.Outcome.TestRun.Verdict)
}

// The state is one value of a key, and no message may be larger than 1 MiB.
func TestTheLargestStateFitsIntoOneMessage(t *testing.T) {
	t.Parallel()
	const inline, annotations, limit = 256 << 10, 32 << 10, 1<<20 - 32<<10 // some room for what else is in a request
	large := func(id string, sequence uint64) *pb.Request {
		r := newRequest(pb.VerbDeploy, id, sequence)
		values, err := structpb.NewStruct(map[string]any{"text": strings.Repeat("v", inline)})
		require.NoError(t, err)
		r.Values = values
		return r
	}
	chart := func(version string) *pb.ChartRevision {
		c := newChart(version)
		c.Annotations["text"] = strings.Repeat("a", annotations)
		return c
	}
	p := DefaultPolicy()
	now := start
	var state *pb.ReleaseState
	sequence := uint64(0)
	decide := func(in Input) {
		step, err := Decide(p, state, now, 0, in)
		require.NoError(t, err)
		require.Less(t, proto.Size(step.State), limit)
		state = step.State
		state.Outbox = nil
	}
	deploy := func(id, version string) {
		sequence++
		decide(RequestReceived{large(id, sequence)})
		decide(ChartResolved{id, chart(version), nil})
	}
	deployed := func(revision int32, version string) {
		decide(said(state, pb.KindDeployed, func(o *pb.Outcome) {
			o.Running = at(chart(version), revision, "manifest-"+version)
			o.Mutation = &pb.Mutation{HelmRevision: revision, ManifestDigest: "manifest-" + version}
		}))
	}
	reason := strings.Repeat("r", 64<<10)

	// A quarantine that is full, with reasons that are too long.
	for range p.MaxQuarantined {
		id := "q" + time.Duration(sequence).String()
		deploy(id, "0.1.0")
		decide(said(state, pb.KindDeployFailed, func(o *pb.Outcome) {
			o.Failure = &pb.Failure{Class: pb.ClassFailed, Reason: reason, Objects: []*pb.ObjectReport{{Events: []string{reason}}}}
			o.Mutation = &pb.Mutation{QuarantineKey: id + strings.Repeat("k", 64)}
		}))
		state.Quarantine[len(state.Quarantine)-1].Fingerprint = id
	}
	deploy("d1", "1.0.0")
	deployed(1, "1.0.0")
	decide(said(state, pb.KindTested, func(o *pb.Outcome) { o.TestRun = &pb.TestRun{Verdict: pb.VerdictPassed} }))
	deploy("d2", "1.1.0")

	// A second one waits while the command is published again, and while it is rolled back.
	sequence++
	decide(RequestReceived{large("d3", sequence)})
	for i := range maxCancels + 1 {
		sequence++
		r := newRequest(pb.VerbCancel, string('a'+rune(i)), sequence)
		r.Cancels = "d2"
		decide(RequestReceived{r})
	}
	require.Len(t, state.Active.Cancels, maxCancels)
	decide(CommandTaken{state.Number})
	now = now.Add(time.Second)
	decide(Tick{})
	require.NotNil(t, state.Waiting)
	require.Len(t, state.Quarantine, p.MaxQuarantined)
	deployed(2, "1.1.0")
	require.Equal(t, "d3", state.Active.Request.Id)
}

func TestReasonsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", maxReason)
	for name, got := range map[string]string{"cut": cut(long, maxReason), "cut, odd": cut("x"+long, maxReason), "also": also(long, "what matters")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.LessOrEqual(t, len(got), maxReason+2)
			require.True(t, utf8.ValidString(got))
			require.Contains(t, got, "üü...")
		})
	}
	require.True(t, strings.HasSuffix(also(long, "what matters"), "; what matters"))
	require.Equal(t, "short; more", also("short", "more"))
}

func TestSpansAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]time.Duration{"30s": 30 * time.Second, "10m": 10 * time.Minute, "1m30s": 90 * time.Second, "1h0m": time.Hour} {
		require.Equal(t, want, span(d))
	}
}

func TestViewShowsTheStateWithoutBodies(t *testing.T) {
	t.Parallel()
	state, _ := tell(t, DefaultPolicy(), nil,
		RequestReceived{newRequest(pb.VerbDeploy, "d1", 1)}, ChartResolved{"d1", newChart("1.0.0"), nil},
		RequestReceived{newRequest(pb.VerbDeploy, "d2", 2)}, RequestReceived{newRequest(pb.VerbTest, "t3", 3)})
	want := &pb.GetAnswer{
		Release: release, Generation: 2, Waiting: "d2", WaitingTest: "t3",
		Active: &pb.ActiveView{Request: "d1", Verb: pb.VerbDeploy, Phase: pb.PhaseDeploying, Requested: newChart("1.0.0"), Command: state.Active.Open},
	}
	require.True(t, proto.Equal(want, View(state)), "%v", View(state))
	require.True(t, proto.Equal(&pb.GetAnswer{}, View(nil)))
}

func TestWhatIsStillInTheOutboxStaysInFront(t *testing.T) {
	t.Parallel()
	first, err := Decide(DefaultPolicy(), nil, start, 0, RequestReceived{newRequest(pb.VerbDeploy, "d1", 1)})
	require.NoError(t, err)
	second, err := Decide(DefaultPolicy(), first.State, start, 0, RequestReceived{newRequest(pb.VerbDeploy, "d2", 2)})
	require.NoError(t, err)
	require.Greater(t, len(second.State.Outbox), len(first.State.Outbox))
	for i, e := range first.State.Outbox {
		require.True(t, proto.Equal(e, second.State.Outbox[i]))
	}
}

func TestAPlannerThatComesUponAStateFetchesItsChart(t *testing.T) {
	t.Parallel()
	require.Nil(t, Resolving(nil))
	state, _ := tell(t, DefaultPolicy(), nil, RequestReceived{newRequest(pb.VerbDeploy, "d1", 1)})
	require.Equal(t, "d1", Resolving(state).GetId())
	paused, _ := tell(t, DefaultPolicy(), state, ChartResolved{"d1", nil, &pb.Failure{Class: pb.ClassTransient, Reason: "away"}})
	require.Nil(t, Resolving(paused), "not in the pause before the next try")
	commanded, _ := tell(t, DefaultPolicy(), state, ChartResolved{"d1", newChart("1.0.0"), nil})
	require.Nil(t, Resolving(commanded))
}

func TestAChartThatIsNeitherThereNorNotIsInvalid(t *testing.T) {
	t.Parallel()
	state, _ := tell(t, DefaultPolicy(), nil, RequestReceived{newRequest(pb.VerbDeploy, "d1", 1)})
	_, err := Decide(DefaultPolicy(), state, start, 0, ChartResolved{RequestID: "d1"})
	require.ErrorIs(t, err, ErrInvalidTransition)
}
