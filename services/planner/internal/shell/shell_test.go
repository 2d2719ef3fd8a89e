package shell

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestADeployIsAcceptedCommandedTestedAndProven(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a")
	f.workers()
	f.publish("deploy", web, deploy("first", "1.0.0"), "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.wholeAndOnce(map[string]string{"first": pb.ResultProven}, web)

	// accepted and the command leave in this order; what a worker says may overtake the record of its command.
	kinds := map[string]*pb.Outcome{}
	for _, o := range f.outcomes() {
		kinds[o.GetKind()] = o
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", o.GetTraceparent(), o.GetId())
		require.Equal(t, uint32(1), o.GetGeneration(), o.GetId())
	}
	for _, kind := range []string{pb.KindAccepted, pb.KindCommanded, pb.KindDeploying, pb.KindDeployed, pb.KindTesting, pb.KindTested, pb.KindSettled} {
		require.Contains(t, kinds, kind)
	}
	require.Equal(t, "a", kinds[pb.KindSettled].GetInstance())
	require.Equal(t, "abc1.0.0", kinds[pb.KindCommanded].GetRequested().GetAnnotations()["commit_sha"])
	require.Equal(t, int32(1), kinds[pb.KindCommanded].GetCommand().GetTest().GetHelmRevision(), "the last command is recorded whole")

	archive, err := f.conn.GetObject(t.Context(), subject.ObjectsCharts, kinds[pb.KindDeployed].GetRequested().GetDigest(), 1<<20)
	require.NoError(t, err)
	require.Equal(t, "archive of web-1.0.0.tgz", string(archive))
}

func TestARequestThatCannotBeAcceptedIsSettled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a")
	elsewhere := web
	elsewhere.Cluster = "mars"
	nameless := f.publish("deploy", web, `{"chart": {"object": "a"}, "tset": {}}`)
	f.publish("deploy", web, `no JSON`, "Nats-Msg-Id", "broken")
	f.publish("deploy", elsewhere, deploy("unserved", "1.0.0"))
	f.publish("explode", web, `{}`, "Nats-Msg-Id", "verb")
	f.publish("test", web, `{"id": "nothing-to-test"}`)
	f.publish("deploy", web, `{"id": "no-chart", "chart": {"object": "missing"}}`)

	first := fmt.Sprintf("seq-%d", nameless)
	f.wholeAndOnce(map[string]string{
		first: pb.ResultRejected, "broken": pb.ResultRejected, "unserved": pb.ResultRejected, "verb": pb.ResultRejected,
		"nothing-to-test": pb.ResultRejected, "no-chart": pb.ResultRejected,
	}, web, elsewhere)
	o := f.row(first).GetSettled()
	require.Equal(t, pb.ClassRejected, o.GetFailure().GetClass())
	require.Equal(t, "tset", o.GetFailure().GetViolations()[0].GetField())
	require.Contains(t, o.GetFailure().GetReason(), `did you mean "test"?`)
	require.Equal(t, "local/shop/web", o.GetRelease())
	require.Contains(t, f.row("unserved").GetSettled().GetFailure().GetReason(), "known: local")

	state, _ := f.state(elsewhere)
	require.Nil(t, state, "what was only refused leaves no state behind")
}

func TestASubjectThatNamesNoReleaseIsADeadLetter(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a")
	f.publishOn("seatrial.request.deploy.local.shop.UPPER", deploy("a", "1.0.0"))
	f.publishOn("seatrial.request.deploy.local", deploy("b", "1.0.0"))
	f.publish("deploy", web, `{"id": "after", "chart": {"object": "missing"}}`)
	require.Equal(t, map[string]string{"after": pb.ResultRejected}, f.settled("after"), "it blocks nothing")
	require.Eventually(t, func() bool {
		dead := 0
		f.messages(subject.StreamDead, func(msg *jetstream.RawStreamMsg) {
			require.Equal(t, subject.Dead("planner"), msg.Subject)
			dead++
		})
		return dead == 2
	}, soon, 20*time.Millisecond)
	require.Nil(t, f.row("a"))
}

func TestAnOutcomeThatCannotBeReadIsADeadLetter(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a")
	for name, body := range map[string]string{"broken": `{`, "of another release": `{"kind": "deployed", "release": "local/shop/api"}`} {
		require.NoError(t, f.conn.PublishOutcomeBytes(t.Context(), pb.KindDeployed, web, name, []byte(body)))
	}
	require.Eventually(t, func() bool {
		s, err := f.conn.JS.Stream(t.Context(), subject.StreamDead)
		require.NoError(t, err)
		return s.CachedInfo().State.Msgs == 2
	}, soon, 20*time.Millisecond)
}

func TestAnOutcomeOfANewerWorkerIsUnderstood(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a")
	f.publish("deploy", web, deploy("first", "1.0.0"))
	require.Eventually(t, func() bool { return f.count(pb.KindCommanded)["first"] == 1 }, soon, 20*time.Millisecond)
	body := `{"id": "x", "kind": "deployfailed", "release": "local/shop/web", "request": "first", "number": 1, "service": "executor",
		"failure": {"class": "failed", "reason": "no room", "weather": "rain"}, "mood": {"of": ["the", "day"]}}`
	require.NoError(t, f.conn.PublishOutcomeBytes(t.Context(), pb.KindDeployFailed, web, "x", []byte(body)))
	require.Equal(t, map[string]string{"first": pb.ResultFailed}, f.settled("first"))
}

func TestAnIDNamesOneRequest(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a")
	f.workers()
	f.publish("deploy", web, deploy("once", "1.0.0"))
	f.settled("once")
	before := f.row("once")

	again := f.publish("deploy", web, deploy("once", "1.0.0"))
	other := f.publish("deploy", web, deploy("once", "2.0.0"))
	elsewhere := web
	elsewhere.Name = "api"
	moved := f.publish("deploy", elsewhere, deploy("once", "1.0.0"))
	byHeader := f.publish("deploy", web, `{"chart": {"object": "web-1.0.0.tgz"}}`, "Nats-Msg-Id", "once")
	f.publish("deploy", web, deploy("next", "3.0.0"))

	seq := func(n uint64) string { return fmt.Sprintf("seq-%d", n) }
	f.wholeAndOnce(map[string]string{
		"once": pb.ResultProven, "next": pb.ResultProven,
		seq(other): pb.ResultRejected, seq(moved): pb.ResultRejected, seq(byHeader): pb.ResultRejected,
	}, web, elsewhere)
	require.Nil(t, f.row(seq(again)), "the same body again does nothing")
	require.Equal(t, map[string]int{"once": 2, "next": 2}, f.count(pb.KindCommanded))
	require.Equal(t, before.GetSettled().GetTime().AsTime(), f.row("once").GetSettled().GetTime().AsTime())
	require.Equal(t, "id", f.row(seq(other)).GetSettled().GetFailure().GetViolations()[0].GetField())
	require.Equal(t, "once", f.row(seq(other)).GetSettled().GetFailure().GetViolations()[0].GetValue())
}

func TestANewerRequestStopsTheTestsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.supersession()
	f.planner("a")
	f.workers()
	f.wholeAndOnce(f.playSupersession(), web)
	require.Equal(t, "newer", f.row("older").GetSettled().GetSettlement().GetSupersededBy())
}

// supersession has the tests of 1.0.0 run until somebody ends them.
func (f *fleet) supersession() {
	f.test = func(ctx context.Context, c *bus.Claim) (string, error) {
		if c.Command.GetRequest() != "older" {
			return pb.VerdictPassed, nil
		}
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
}

// playSupersession asks for a deploy, and for another one once the tests of the first are running.
func (f *fleet) playSupersession() map[string]string {
	f.t.Helper()
	f.publish("deploy", web, deploy("older", "1.0.0"))
	require.Eventually(f.t, func() bool { return f.count(pb.KindTesting)["older"] == 1 }, soon, 20*time.Millisecond)
	f.publish("deploy", web, deploy("newer", "1.1.0"))
	return map[string]string{"older": pb.ResultSuperseded, "newer": pb.ResultProven}
}

func TestManyPlannersShareTheWork(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		planners int
		start    func(t *testing.T) string
	}{
		{"two on one server", 2, func(t *testing.T) string { return kittest.Provisioned(t, layout()).URL }},
		{"three on one server", 3, func(t *testing.T) string { return kittest.Provisioned(t, layout()).URL }},
		{"three on a cluster of three", 3, func(t *testing.T) string { return kittest.Cluster3(t, layout()).URL }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, test.start(t))
			for i := range test.planners {
				f.planner(fmt.Sprintf("planner-%d", i))
			}
			f.workers()
			want, commands := map[string]string{}, map[string]int{}
			var releases []subject.Release
			for i := range 6 {
				r := subject.Release{Cluster: "local", Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
				releases = append(releases, r)
				id := fmt.Sprintf("first-%d", i)
				for range 3 { // repetitions, which may be read by different planners at once
					f.publish("deploy", r, deploy(id, "1.0.0"))
				}
				want[id], commands[id] = pb.ResultProven, 2
				rejected := fmt.Sprintf("rejected-%d", i)
				f.publish("deploy", r, fmt.Sprintf(`{"id": %q}`, rejected))
				want[rejected] = pb.ResultRejected
			}
			f.wholeAndOnce(want, releases...)
			for i, r := range releases {
				id := fmt.Sprintf("second-%d", i)
				f.publish("test", r, fmt.Sprintf(`{"id": %q}`, id))
				want[id], commands[id] = pb.ResultProven, 1
			}
			f.wholeAndOnce(want, releases...)
			require.Equal(t, commands, f.count(pb.KindCommanded))
		})
	}
}

func TestOnlyTheNewestOfManyWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	for i := range 3 {
		f.planner(fmt.Sprintf("planner-%d", i))
	}
	f.workers()
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("r-%02d", i))
		f.publish("deploy", web, deploy(ids[i], fmt.Sprintf("1.0.%d", i)))
	}
	results := f.settled(ids...)
	require.Equal(t, pb.ResultProven, results["r-19"], "the newest wins, whatever order they are read in")
	f.wholeAndOnce(results, web)
	state, _ := f.state(web)
	require.Equal(t, "1.0.19", state.GetRunning().GetVersion())
	require.Equal(t, uint32(20), state.GetGeneration())
}

func TestACommandWhoseSubjectIsTakenWaitsAndHoldsNothingUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a")
	// Left by an older planner, and no executor is there to drop it.
	require.NoError(t, f.conn.PublishCommand(t.Context(), &pb.Command{Release: web.String(), Number: 77}))
	f.publish("deploy", web, deploy("waits", "1.0.0"))
	require.Eventually(t, func() bool {
		state, _ := f.state(web)
		return state.GetActive().GetOpen().GetUnpublished() && len(state.GetOutbox()) == 0
	}, soon, 10*time.Millisecond)
	require.Empty(t, f.count(pb.KindCommanded), "what was not given out is not recorded as such")

	f.publish("deploy", web, `{"id": "refused"}`)
	require.Equal(t, map[string]string{"refused": pb.ResultRejected}, f.settled("refused"))

	require.NoError(t, f.conn.DeleteCommand(t.Context(), pb.CommandDeploy, "", web, 77))
	f.workers()
	f.wholeAndOnce(map[string]string{"waits": pb.ResultProven, "refused": pb.ResultRejected}, web)
}

func TestNobodyWorks(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	for _, name := range []string{"a", "b"} {
		f.planner(name, func(s *Shell) {
			s.options.Policy.NoWorkerAfter, s.options.Policy.WithdrawAfter = 200*time.Millisecond, time.Second
		})
	}
	f.publish("deploy", web, deploy("lonely", "1.0.0"))
	f.wholeAndOnce(map[string]string{"lonely": pb.ResultFailed}, web)
	require.Equal(t, map[string]int{"lonely": 1}, f.count(pb.KindNoWorker))
	require.Equal(t, map[string]int{"lonely": 1}, f.count(pb.KindWithdrawn))
	require.Contains(t, f.row("lonely").GetSettled().GetFailure().GetReason(), "executor")
}

func TestACommandBehindBusyWorkersIsNotGivenUp(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a", func(s *Shell) {
		s.options.Policy.NoWorkerAfter, s.options.Policy.WithdrawAfter = 100*time.Millisecond, time.Second
	})
	leave := make(chan struct{})
	f.workers(func(w *bus.Worker) {
		w.Slots = 1
		w.Do = func(ctx context.Context, c *bus.Claim) (*pb.Outcome, error) {
			if c.Command.GetRequest() == "slow" && c.Command.GetDeploy() != nil {
				if err := c.Publish(ctx, c.Outcome(pb.KindDeploying)); err != nil {
					return nil, err
				}
				<-leave
			}
			return f.do(ctx, c)
		}
	})
	other := web
	other.Name = "other"
	f.publish("deploy", web, deploy("slow", "1.0.0"))
	require.Eventually(t, func() bool { return f.count(pb.KindDeploying)["slow"] == 1 }, soon, 20*time.Millisecond)
	f.publish("deploy", other, deploy("queued", "1.0.0"))
	require.Eventually(t, func() bool {
		state, _ := f.state(other)
		open := state.GetActive().GetOpen()
		return open.GetAttendedAt().AsTime().Sub(open.GetIssuedAt().AsTime()) > time.Second
	}, soon, 20*time.Millisecond, "it is withdrawn, or not attended")
	close(leave)
	f.wholeAndOnce(map[string]string{"slow": pb.ResultProven, "queued": pb.ResultProven}, web, other)
	require.Empty(t, f.count(pb.KindNoWorker))
}

func TestWhatWasReportedWithoutPlannersComesBeforeTheDeadlinesOfThatTime(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	stop := f.planner("before")
	f.publish("deploy", web, deploy("slow", "1.0.0"))
	require.Eventually(t, func() bool { return f.count(pb.KindCommanded)["slow"] == 1 }, soon, 20*time.Millisecond)
	stop()

	f.workers()
	require.Eventually(t, func() bool { return f.count(pb.KindDeployed)["slow"] == 1 }, soon, 20*time.Millisecond)
	late := f.shell("late", func(s *Shell) { s.options.Policy.WithdrawAfter = time.Nanosecond })
	_, before := f.state(web)
	late.visit(t.Context(), web.Key())
	_, after := f.state(web)
	require.Equal(t, before, after, "the deadline waits for what is unread")
	f.planner("after")
	f.wholeAndOnce(map[string]string{"slow": pb.ResultProven}, web)
}

func TestAChartThatNeverComes(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.fetch = func(ctx context.Context, _ *pb.ChartSource) ([]byte, *pb.ChartRevision, error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	f.planner("a", func(s *Shell) { s.options.Policy.ResolveTimeout = time.Second })
	f.publish("deploy", web, deploy("slow", "1.0.0"))
	f.publish("deploy", web, `{"id": "refused"}`)
	require.Equal(t, map[string]string{"refused": pb.ResultRejected}, f.settled("refused"), "a fetch holds nothing up")
	f.wholeAndOnce(map[string]string{"slow": pb.ResultFailed, "refused": pb.ResultRejected}, web)
}

func TestAChartThatComesAtTheThirdTry(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	var tries atomic.Int32
	f.fetch = func(ctx context.Context, source *pb.ChartSource) ([]byte, *pb.ChartRevision, error) {
		if tries.Add(1) < 3 {
			return nil, nil, fmt.Errorf("the registry is away")
		}
		return (&fleet{}).fetchChart(ctx, source)
	}
	f.planner("a")
	f.workers()
	f.publish("deploy", web, deploy("patient", "1.0.0"))
	f.wholeAndOnce(map[string]string{"patient": pb.ResultProven}, web)
	require.Equal(t, int32(3), tries.Load())
}

func TestARestartOfNATSLosesNothing(t *testing.T) {
	t.Parallel()
	server := kittest.Provisioned(t, layout())
	f := newFleet(t, server.URL)
	release := make(chan struct{})
	f.test = func(ctx context.Context, _ *bus.Claim) (string, error) {
		select {
		case <-release:
			return pb.VerdictPassed, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	f.planner("a")
	f.planner("b")
	f.workers()
	f.publish("deploy", web, deploy("before", "1.0.0"))
	require.Eventually(t, func() bool { return f.count(pb.KindTesting)["before"] == 1 }, soon, 20*time.Millisecond)
	server.Restart(t)
	close(release)
	require.Eventually(t, func() bool { return f.conn.Healthy() == nil }, soon, 10*time.Millisecond)
	f.wholeAndOnce(map[string]string{"before": pb.ResultProven}, web)
}

func TestARequestThatTheStateHasNoRoomForIsRefused(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.planner("a")
	large := func(id string) string {
		return fmt.Sprintf(`{"id": %q, "chart": {"object": "web-1.0.0.tgz"}, "values": {"a": %q}, "upgrade": {"description": %q}}`,
			id, strings.Repeat("x", 250<<10), strings.Repeat("y", 60<<10))
	}
	f.publish("deploy", web, large("active"))
	require.Eventually(t, func() bool { return f.count(pb.KindCommanded)["active"] == 1 }, soon, 20*time.Millisecond)
	f.publish("deploy", web, large("large"))
	require.Equal(t, map[string]string{"large": pb.ResultRejected}, f.settled("large"))
	require.Contains(t, f.row("large").GetSettled().GetFailure().GetReason(), "the state of the release could have")
	f.publish("deploy", web, deploy("small", "1.1.0"))
	require.Eventually(t, func() bool { return f.count(pb.KindAccepted)["small"] == 1 }, soon, 20*time.Millisecond)
	f.workers()
	f.wholeAndOnce(map[string]string{"active": pb.ResultSuperseded, "large": pb.ResultRejected, "small": pb.ResultProven}, web)
}

func TestARecordOfACommandThatIsTooLargeIsShortened(t *testing.T) {
	t.Parallel()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	s := &Shell{conn: f.conn, log: kittest.Logger(t), crash: func(string) {}}
	content := &pb.ChartRevision{Name: "web", Version: "1.0.0", Annotations: map[string]string{"a": strings.Repeat("\x01", 30<<10)}}
	cmd := &pb.Command{
		Release: web.String(), Number: 1, Request: "large", Requested: content, Running: content, Proven: &pb.Proof{Content: content},
		Action: &pb.Command_Deploy{Deploy: &pb.DeployCommand{Values: &structpb.Struct{Fields: map[string]*structpb.Value{
			"a": structpb.NewStringValue(strings.Repeat("x", 256<<10)),
		}}}},
	}
	require.NoError(t, s.publishCommand(t.Context(), cmd))
	all := f.outcomes()
	require.Len(t, all, 1)
	require.Contains(t, all[0].GetMessage(), "too large to be recorded with its values")
	require.Equal(t, "web", all[0].GetCommand().GetRequested().GetName())
	require.Len(t, all[0].GetRequested().GetAnnotations()["a"], 30<<10)
	require.NotEmpty(t, cmd.GetDeploy().GetValues().GetFields(), "the command itself is whole")
}

// TestACrashAnywhereLosesAndDoublesNothing has a planner die at each of the points between which it can, one after the
// other, and another one go on.
func TestACrashAnywhereLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, scene := range []struct {
		name    string
		prepare func(*fleet)
		play    func(*fleet) map[string]string
	}{
		{"a deploy that is proven", func(*fleet) {}, func(f *fleet) map[string]string {
			f.publish("deploy", web, deploy("one", "1.0.0"))
			return map[string]string{"one": pb.ResultProven}
		}},
		{"refusals", (*fleet).deployed, func(f *fleet) map[string]string {
			want := map[string]string{"before": pb.ResultProven}
			for _, body := range []string{deploy("before", "2.0.0"), `{"chart": {}}`, `{`} {
				want[fmt.Sprintf("seq-%d", f.publish("deploy", web, body))] = pb.ResultRejected
			}
			return want
		}},
		{"a test that is not run again", (*fleet).deployed, func(f *fleet) map[string]string {
			f.publish("test", web, `{"id": "again"}`)
			return map[string]string{"before": pb.ResultProven, "again": pb.ResultProven}
		}},
		{"a deploy that gives way to a newer one", (*fleet).supersession, (*fleet).playSupersession},
	} {
		t.Run(scene.name, func(t *testing.T) {
			t.Parallel()
			points, commands := rehearse(t, scene.prepare, scene.play)
			require.NotEmpty(t, points)
			for i, point := range points {
				t.Run(fmt.Sprintf("%02d %s", i+1, point), func(t *testing.T) {
					t.Parallel()
					f := newFleet(t, kittest.Provisioned(t, layout()).URL)
					f.workers()
					scene.prepare(f)
					dead := f.dyingPlanner(i + 1)
					go func() {
						select {
						case <-dead:
							f.planner("heir")
						case <-t.Context().Done():
						}
					}()
					f.wholeAndOnce(scene.play(f), web)
					require.Equal(t, commands, f.count(pb.KindCommanded), "nothing is done again%s", lazily(f.story))
					require.Empty(t, f.count(pb.KindNoWorker), "nobody waits for long%s", lazily(f.story))
				})
			}
		})
	}
}

// deployed has something run before a scene begins.
func (f *fleet) deployed() {
	f.t.Helper()
	stop := f.planner("before")
	f.publish("deploy", web, deploy("before", "1.0.0"))
	f.settled("before")
	f.allRead()
	stop()
}

// rehearse plays a scene without a crash. It returns the points that were passed, and how many commands each request took.
func rehearse(t *testing.T, prepare func(*fleet), play func(*fleet) map[string]string) (points []string, commands map[string]int) {
	t.Helper()
	f := newFleet(t, kittest.Provisioned(t, layout()).URL)
	f.workers()
	prepare(f)
	var mu sync.Mutex
	stop := f.planner("rehearsal", func(s *Shell) {
		s.crash = func(point string) {
			mu.Lock()
			defer mu.Unlock()
			points = append(points, point)
		}
	})
	f.wholeAndOnce(play(f), web)
	stop()
	return points, f.count(pb.KindCommanded)
}

// dyingPlanner starts a planner from which nothing leaves any more once it has passed its n-th point, and returns what is
// closed then.
func (f *fleet) dyingPlanner(n int) <-chan struct{} {
	f.t.Helper()
	dead := make(chan struct{})
	var passed atomic.Int32
	f.planner("dying", func(s *Shell) {
		s.crash = func(string) {
			if int(passed.Add(1)) == n {
				s.conn.NC.Close()
				close(dead)
			}
		}
	})
	return dead
}
