package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"pgregory.net/rapid"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// TestNonsense gives Decide states and inputs that no planner would make: it answers or refuses, and never panics.
func TestNonsense(t *testing.T) {
	t.Parallel()
	rapid.Check(t, nonsense)
}

// FuzzNonsense is TestNonsense, guided by coverage.
func FuzzNonsense(f *testing.F) { f.Fuzz(rapid.MakeFuzz(nonsense)) }

func nonsense(t *rapid.T) {
	state := &pb.ReleaseState{}
	fill(t, state, 5)
	if a := state.Active; a != nil && rapid.Bool().Draw(t, "known phase") {
		a.Phase = rapid.SampledFrom(inActive).Draw(t, "phase")
	}
	in := nonsenseInput(t, state.GetActive())
	before := proto.CloneOf(state)
	p := DefaultPolicy()
	p.MaxRevisions = rapid.IntRange(0, 3).Draw(t, "max revisions")
	now := start.Add(time.Duration(rapid.Int64().Draw(t, "now")))

	step, err := Decide(p, state, now, rapid.Float64Range(0, 1).Draw(t, "jitter"), in)
	require.True(t, proto.Equal(before, state), "the given state was changed")
	if err != nil {
		require.ErrorIs(t, err, ErrInvalidTransition)
		return
	}
	_, err = proto.Marshal(step.State)
	require.NoError(t, err)
	_, _ = NextTick(p, step.State)
	_ = Resolving(step.State)
	require.Equal(t, step.State.Generation, View(step.State).Generation)
}

func nonsenseInput(t *rapid.T, a *pb.Active) Input {
	switch rapid.IntRange(0, 9).Draw(t, "input") {
	case 0:
		return RequestReceived{some(t, &pb.Request{})}
	case 1:
		return RequestRejected{some(t, &pb.Request{}), some(t, &pb.Failure{})}
	case 2:
		return ChartResolved{a.GetRequest().GetId(), some(t, &pb.ChartRevision{}), some(t, &pb.Failure{})}
	case 3:
		return CommandTaken{a.GetOpen().GetNumber()}
	case 4:
		return Tick{}
	case 5:
		return nil
	}
	o := some(t, &pb.Outcome{})
	if o != nil && a.GetOpen() != nil { // as if it were about the open command, with words that exist
		word := func(words ...string) string { return rapid.SampledFrom(words).Draw(t, "word") }
		o.Number, o.Service = a.Open.Number, "worker"
		o.Kind = word(pb.KindTested, pb.KindTested, pb.KindDeployed, pb.KindDeployFailed, pb.KindRolledBack, pb.KindRollbackFailed,
			pb.KindUninstalled, pb.KindUninstallFailed, pb.KindInterrupted, pb.KindBlocked)
		o.TestRun = some(t, &pb.TestRun{})
		if o.TestRun != nil {
			o.TestRun.Verdict = word(pb.VerdictPassed, pb.VerdictFailed, pb.VerdictTimedOut, pb.VerdictErrored, pb.VerdictCancelled, pb.VerdictNoTests)
		}
		if o.Failure != nil {
			o.Failure.Class = word(pb.ClassFailed, pb.ClassRejected, pb.ClassTransient, pb.ClassInterrupted, pb.ClassBlocked)
		}
	}
	return OutcomeReceived{o}
}

func some[M proto.Message](t *rapid.T, m M) M {
	if rapid.IntRange(0, 9).Draw(t, "none") == 9 {
		var none M
		return none
	}
	fill(t, m, 4)
	return m
}

// words that mean something somewhere.
var meaningful = []string{
	"", "id", "other", "nonsense", release, "5m", "sha256:1",
	pb.VerbDeploy, pb.VerbRollback, pb.VerbUninstall, pb.VerbTest, pb.VerbCancel, pb.VerbSuspend, pb.VerbResume, pb.VerbForgive,
	pb.PhaseResolving, pb.PhaseDeploying, pb.PhaseTesting, pb.PhaseRollingBack, pb.PhaseUninstalling,
	pb.KindBlocked, pb.KindDeployed, pb.KindDeployFailed, pb.KindRolledBack, pb.KindRollbackFailed, pb.KindUninstalled, pb.KindTested, pb.KindInterrupted,
	pb.VerdictPassed, pb.VerdictFailed, pb.VerdictErrored, pb.VerdictCancelled, pb.VerdictNoTests,
	pb.ClassRejected, pb.ClassTransient, pb.ClassInterrupted, pb.ClassBlocked,
	pb.OnFailureHold, pb.OnFailureUninstall, pb.StandingProven, pb.StandingUnproven, pb.StandingBad,
}

// fill sets fields of a message at random, to a depth.
func fill(t *rapid.T, m proto.Message, depth int) {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Kind() == protoreflect.MessageKind && (depth == 0 || f.Message().FullName() == "google.protobuf.Struct") {
			continue
		}
		if rapid.IntRange(0, 2).Draw(t, string(f.Name())) == 0 {
			continue
		}
		switch {
		case f.IsMap():
			r.Mutable(f).Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString("value"))
		case f.IsList():
			for range rapid.IntRange(0, 2).Draw(t, "length") {
				list := r.Mutable(f).List()
				if f.Kind() == protoreflect.MessageKind {
					e := list.NewElement()
					fill(t, e.Message().Interface(), depth-1)
					list.Append(e)
				} else {
					list.Append(scalar(t, f))
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			fill(t, r.Mutable(f).Message().Interface(), depth-1)
		default:
			r.Set(f, scalar(t, f))
		}
	}
}

func scalar(t *rapid.T, f protoreflect.FieldDescriptor) protoreflect.Value {
	n := rapid.Int64Range(0, 3).Draw(t, "n")
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.SampledFrom(meaningful).Draw(t, "word"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n) - 1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "any"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("bytes"))
	}
	panic("a field of kind " + f.Kind().String())
}
