package shell

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

var web = subject.Release{Cluster: "local", Namespace: "shop", Name: "web"}

// soon is how long a test waits for what must come.
const soon = 60 * time.Second

func layout() bus.Layout {
	l := bus.DefaultLayout()
	l.AckWait = time.Second
	return l
}

func policy() core.Policy {
	p := core.DefaultPolicy()
	p.BackoffMin, p.BackoffMax = 20*time.Millisecond, 100*time.Millisecond
	return p
}

// fleet is a system in which everything but the planner is a stand-in.
type fleet struct {
	t    *testing.T
	url  string
	conn *bus.Conn

	// fetch and test replace what the stand-ins do; nil is what goes well.
	fetch func(ctx context.Context, source *pb.ChartSource) ([]byte, *pb.ChartRevision, error)
	test  func(ctx context.Context, c *bus.Claim) (verdict string, err error)

	mu   sync.Mutex
	runs map[string]int // how often each command was worked on
	made map[string]int32
}

func newFleet(t *testing.T, url string) *fleet {
	t.Helper()
	return &fleet{t: t, url: url, conn: kittest.Connect(t, url), runs: map[string]int{}, made: map[string]int32{}}
}

// planner starts one, changed before it runs, and returns what stops it.
func (f *fleet) planner(name string, change ...func(*Shell)) (stop func()) {
	f.t.Helper()
	s := f.shell(name, change...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	var parts sync.WaitGroup
	for _, part := range []func(context.Context) error{s.Requests, s.Outcomes, s.Attend, s.Resolve} {
		parts.Go(func() { _ = part(ctx) })
	}
	stop = func() {
		cancel()
		s.conn.NC.Close()
		parts.Wait()
	}
	f.t.Cleanup(stop)
	return stop
}

// shell makes a planner that does nothing by itself.
func (f *fleet) shell(name string, change ...func(*Shell)) *Shell {
	f.t.Helper()
	conn := kittest.Connect(f.t, f.url)
	rules := request.DefaultRules()
	rules.Clusters = map[string][]string{"local": nil}
	s, err := New(f.t.Context(), conn, Options{
		Policy: policy(), Rules: rules, Fetch: f.fetchChart, Instance: name,
		Slots: 8, Fetches: 4, TakeOver: 300 * time.Millisecond, Grace: 100 * time.Millisecond,
	}, kittest.Logger(f.t).With("planner", name))
	require.NoError(f.t, err)
	for _, c := range change {
		c(s)
	}
	return s
}

// fetchChart makes a chart of the object's name, such as web-1.0.0.tgz.
func (f *fleet) fetchChart(ctx context.Context, source *pb.ChartSource) ([]byte, *pb.ChartRevision, error) {
	if f.fetch != nil {
		return f.fetch(ctx, source)
	}
	name, version, ok := strings.Cut(strings.TrimSuffix(source.GetObject(), ".tgz"), "-")
	if !ok {
		return nil, nil, fault.New(pb.ClassRejected, "upload it", "object %s: not found", source.GetObject())
	}
	data := []byte("archive of " + source.GetObject())
	return data, &pb.ChartRevision{
		Name: name, Version: version, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(data)),
		Annotations: map[string]string{"commit_sha": "abc" + version},
	}, nil
}

// workers starts an executor and a tester, changed before they run.
func (f *fleet) workers(change ...func(*bus.Worker)) {
	f.t.Helper()
	for service, durable := range map[string]string{
		"executor": subject.ConsumerExecutor("local"), "tester": subject.ConsumerTester("local", ""),
	} {
		w := &bus.Worker{
			Conn: kittest.Connect(f.t, f.url), Service: service, Instance: service + "-1", Durable: durable, Slots: 16,
			LeaseTTL: 4 * time.Second, RequestTimeout: time.Second, Log: kittest.Logger(f.t).With("worker", service), Do: f.do,
		}
		for _, c := range change {
			c(w)
		}
		ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = w.Run(ctx)
		}()
		f.t.Cleanup(func() { cancel(); w.Conn.NC.Close(); <-done })
	}
}

// do is the work of both.
func (f *fleet) do(ctx context.Context, c *bus.Claim) (*pb.Outcome, error) {
	cmd := c.Command
	f.mu.Lock()
	f.runs[fmt.Sprintf("%s/%d", cmd.GetRelease(), cmd.GetNumber())]++
	if cmd.GetTest() == nil {
		f.made[cmd.GetRelease()]++
	}
	revision := f.made[cmd.GetRelease()]
	f.mu.Unlock()

	started, ended := pb.KindDeploying, pb.KindDeployed
	switch {
	case cmd.GetRollback() != nil:
		started, ended = pb.KindRollingBack, pb.KindRolledBack
	case cmd.GetTest() != nil:
		started, ended = pb.KindTesting, pb.KindTested
	}
	if err := c.Publish(ctx, c.Outcome(started)); err != nil {
		return nil, err
	}
	o := c.Outcome(ended)
	if cmd.GetTest() != nil {
		verdict := pb.VerdictPassed
		if f.test != nil {
			var err error
			if verdict, err = f.test(ctx, c); err != nil {
				return nil, err
			}
		}
		o.TestRun = &pb.TestRun{Verdict: verdict, HelmRevision: cmd.GetTest().GetHelmRevision(), ManifestDigest: cmd.GetTest().GetManifestDigest()}
		return o, nil
	}
	o.Running = cmd.GetRequested()
	if o.Running == nil {
		o.Running = &pb.ChartRevision{}
	}
	o.Running.HelmRevision = revision
	o.Running.ManifestDigest = "sha256:manifest-of-" + o.Running.GetVersion()
	o.Mutation = &pb.Mutation{Action: "upgrade", HelmRevision: revision, ManifestDigest: o.Running.GetManifestDigest(), Tests: 1, QuarantineKey: "key-of-" + o.Running.GetVersion()}
	return o, nil
}

// publish publishes a request and returns its sequence.
func (f *fleet) publish(verb string, r subject.Release, body string, header ...string) uint64 {
	f.t.Helper()
	return f.publishOn(subject.Request(verb, r), body, header...)
}

func (f *fleet) publishOn(name, body string, header ...string) uint64 {
	f.t.Helper()
	msg := nats.NewMsg(name)
	msg.Data = []byte(body)
	for i := 0; i < len(header); i += 2 {
		msg.Header.Set(header[i], header[i+1])
	}
	ack, err := f.conn.JS.PublishMsg(f.t.Context(), msg)
	require.NoError(f.t, err)
	return ack.Sequence
}

func deploy(id, version string) string {
	return fmt.Sprintf(`{"id": %q, "chart": {"object": "web-%s.tgz"}, "values": {"a": 1}}`, id, version)
}

// outcomes returns all that were published so far, in their order.
func (f *fleet) outcomes() (all []*pb.Outcome) {
	f.t.Helper()
	f.messages(subject.StreamOutcomes, func(msg *jetstream.RawStreamMsg) {
		o := &pb.Outcome{}
		require.NoError(f.t, wire.Unmarshal(msg.Header, msg.Data, o))
		all = append(all, o)
	})
	return all
}

func (f *fleet) messages(name string, each func(*jetstream.RawStreamMsg)) {
	f.t.Helper()
	stream, err := f.conn.JS.Stream(f.t.Context(), name)
	require.NoError(f.t, err)
	for sequence := range stream.CachedInfo().State.LastSeq {
		msg, err := stream.GetMsg(f.t.Context(), sequence+1)
		require.NoError(f.t, err)
		each(msg)
	}
}

// count returns how many outcomes of each kind there are about each request.
func (f *fleet) count(kind string) map[string]int {
	f.t.Helper()
	found := map[string]int{}
	for _, o := range f.outcomes() {
		if o.GetKind() == kind {
			found[o.GetRequest()]++
		}
	}
	return found
}

// row returns the row of a request, nil if there is none.
func (f *fleet) row(id string) *pb.RequestRow {
	f.t.Helper()
	rows, err := bus.OpenBucket[*pb.RequestRow](f.t.Context(), f.conn, subject.BucketRequests)
	require.NoError(f.t, err)
	row, _, err := rows.Get(f.t.Context(), id)
	if err != nil {
		require.ErrorIs(f.t, err, bus.ErrNotFound)
	}
	return row
}

// state returns that of a release.
func (f *fleet) state(r subject.Release) (*pb.ReleaseState, uint64) {
	f.t.Helper()
	states, err := bus.OpenBucket[*pb.ReleaseState](f.t.Context(), f.conn, subject.BucketReleases)
	require.NoError(f.t, err)
	state, revision, err := states.Get(f.t.Context(), r.Key())
	if err != nil {
		require.ErrorIs(f.t, err, bus.ErrNotFound)
	}
	return state, revision
}

// settled waits until the requests are settled and returns the results by id.
func (f *fleet) settled(ids ...string) map[string]string {
	f.t.Helper()
	results := map[string]string{}
	require.Eventually(f.t, func() bool {
		for _, id := range ids {
			if o := f.row(id).GetSettled(); o != nil {
				results[id] = o.GetSettlement().GetResult()
			}
		}
		return len(results) == len(ids)
	}, soon, 20*time.Millisecond, "not settled: %v; %s", ids, lazily(func() string { return f.story() }))
	return results
}

// story tells what happened, for a test that failed.
func (f *fleet) story() string {
	var b strings.Builder
	for _, o := range f.outcomes() {
		fmt.Fprintf(&b, "\n  %s: %s", o.GetId(), o.GetMessage())
	}
	return b.String()
}

type lazily func() string

func (l lazily) String() string { return l() }

// allRead waits until the planners have acknowledged all that there is to read, also what comes again after a crash.
func (f *fleet) allRead() {
	f.t.Helper()
	for _, stream := range []string{subject.StreamRequests, subject.StreamOutcomes} {
		require.Eventually(f.t, func() bool {
			consumer, err := f.conn.JS.Consumer(f.t.Context(), stream, subject.ConsumerPlanner)
			require.NoError(f.t, err)
			info := consumer.CachedInfo()
			return info.NumPending == 0 && info.NumAckPending == 0
		}, soon, 20*time.Millisecond, "%s is not read", stream)
	}
}

// wholeAndOnce checks what must hold when everything is settled: one acceptance at most and one last word for each
// request, the same in stream and bucket; each command given out once and worked on once; nothing left to do.
func (f *fleet) wholeAndOnce(want map[string]string, releases ...subject.Release) {
	f.t.Helper()
	require.Equal(f.t, want, f.settled(slices.Collect(maps.Keys(want))...), lazily(f.story))
	f.allRead()
	settled, numbers := map[string]int{}, map[string]int{}
	for _, o := range f.outcomes() {
		switch o.GetKind() {
		case pb.KindSettled:
			settled[o.GetRequest()]++
			require.Equal(f.t, o.GetSettlement().GetResult(), f.row(o.GetRequest()).GetSettled().GetSettlement().GetResult())
		case pb.KindCommanded:
			numbers[fmt.Sprintf("%s/%d", o.GetRelease(), o.GetNumber())]++
		}
	}
	for id := range want {
		require.Equal(f.t, 1, settled[id], "last words on %s%s", id, lazily(f.story))
	}
	require.Len(f.t, settled, len(want))
	for id, n := range f.count(pb.KindAccepted) {
		require.Equal(f.t, 1, n, "acceptances of %s%s", id, lazily(f.story))
	}
	f.mu.Lock()
	for command, n := range f.runs {
		require.Equal(f.t, 1, n, "runs of %s%s", command, lazily(f.story))
		require.Equal(f.t, 1, numbers[command], "records of %s%s", command, lazily(f.story))
	}
	f.mu.Unlock()
	for _, r := range releases {
		require.Eventually(f.t, func() bool {
			state, _ := f.state(r)
			return len(state.GetOutbox()) == 0 && state.GetActive() == nil && state.GetWaiting() == nil && state.GetWaitingTest() == nil
		}, soon, 20*time.Millisecond, "%s is not at rest", r)
	}
	for _, stream := range []string{subject.StreamCommands, subject.StreamDead} {
		require.Eventually(f.t, func() bool {
			s, err := f.conn.JS.Stream(f.t.Context(), stream)
			require.NoError(f.t, err)
			return s.CachedInfo().State.Msgs == 0
		}, soon, 20*time.Millisecond, "%s is not empty", stream)
	}
}
