package bus_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(frozenURL); url != "" {
		if err := frozenWorker(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	kittest.VerifyTestMain(m)
}

// soon is how long a test waits for what must happen.
const soon = 20 * time.Second

// layout is the default one with a named pool.
func layout() bus.Layout {
	l := bus.DefaultLayout()
	l.Clusters = []bus.Cluster{{Name: "local", Pools: []string{"gpu"}}}
	return l
}

// impatient is a layout under which the messages of those who die are soon given to others.
func impatient(replicas int) bus.Layout {
	l := layout()
	l.AckWait = time.Second
	l.Replicas = replicas
	return l
}

// shortLease is the lease of workers that lose it, to others who wait. It is lost too when the machine stands still for
// so long; all others have a longer one.
const shortLease = 3 * time.Second

// releases counts the releases that tests use, so that those which share a server do not meet.
var releases atomic.Int32

func newRelease() subject.Release {
	return subject.Release{Cluster: "local", Namespace: "shop", Name: fmt.Sprintf("web-%d", releases.Add(1))}
}

// place is where a test runs.
type place struct {
	url string
	// layout is the one by which it was provisioned.
	layout bus.Layout
}

// release provisions the consumers of a cluster of its own, and returns a release there: its commands go to no other
// test's workers.
func (p place) release(t *testing.T) subject.Release {
	t.Helper()
	r := newRelease()
	r.Cluster = r.Name
	l := p.layout
	l.Clusters = []bus.Cluster{{Name: r.Cluster}}
	require.NoError(t, bus.Provision(t.Context(), kittest.Connect(t, p.url).JS, l, kittest.Logger(t)))
	return r
}

// first returns the URL of one of the servers.
func (p place) first() string { return strings.Split(p.url, ",")[0] }

// everywhere are the tests of take-overs, compare-and-set and admission: one server and several answer differently, and
// Seatrial must not.
var everywhere = map[string]func(t *testing.T, p place){
	"a worker that dies loses nothing and the first verdict stands":            testCrashes,
	"a holder that was cut off in its work finds its gate closed":              testCutOff,
	"a holder that was frozen at its verdict loses while its successor works":  testFrozenWhileSuccessorWorks,
	"a holder that was frozen at its verdict loses when its successor is done": testFrozenUntilSuccessorIsDone,
	"the planner ends a command that is in work":                               testEndInWork,
	"a second command is refused until the first is acknowledged":              testAdmission,
	"put compares and sets":                              testPut,
	"of many writers of one revision exactly one wins":   testWriters,
	"a write whose confirmation was lost is known again": testLostConfirmation,
	"provision again changes nothing":                    testProvisionAgain,
}

func TestOnOneServer(t *testing.T) {
	t.Parallel()
	l := impatient(1)
	testEverywhere(t, place{kittest.Provisioned(t, l).URL, l})
}

func TestOnThreeServers(t *testing.T) {
	t.Parallel()
	l := impatient(3)
	testEverywhere(t, place{kittest.Cluster3(t, l).URL, l})
}

func testEverywhere(t *testing.T, p place) {
	for name, test := range everywhere {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

func deployCommand(r subject.Release, number uint32) *seatrialv1.Command {
	return &seatrialv1.Command{
		Release: r.String(), Number: number, Generation: 7, Request: "req-1", Traceparent: "00-trace",
		Requested: &seatrialv1.ChartRevision{Name: "web", Version: "1.1.0"},
		Running:   &seatrialv1.ChartRevision{Name: "web", Version: "1.0.0", HelmRevision: 3},
		Action:    &seatrialv1.Command_Deploy{Deploy: &seatrialv1.DeployCommand{ChartDigest: "sha256:1"}},
	}
}

func testCommand(r subject.Release, number uint32, pool string) *seatrialv1.Command {
	return &seatrialv1.Command{
		Release: r.String(), Number: number,
		Action: &seatrialv1.Command_Test{Test: &seatrialv1.TestCommand{Options: &seatrialv1.TestOptions{Pool: pool}}},
	}
}

// messages returns the messages that a stream has on subjects that match filter, oldest first.
func messages(t *testing.T, c *bus.Conn, stream, filter string) []*jetstream.RawStreamMsg {
	t.Helper()
	s, err := c.JS.Stream(t.Context(), stream)
	require.NoError(t, err)
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(filter))
	require.NoError(t, err)
	var all []*jetstream.RawStreamMsg
	for sequence := max(1, info.State.FirstSeq); sequence <= info.State.LastSeq; sequence++ {
		msg, err := s.GetMsg(t.Context(), sequence)
		if err != nil {
			require.ErrorIs(t, err, jetstream.ErrMsgNotFound)
			continue
		}
		if _, matches := info.State.Subjects[msg.Subject]; matches {
			all = append(all, msg)
		}
	}
	return all
}

// outcomes returns the outcomes about a release, oldest first.
func outcomes(t *testing.T, c *bus.Conn, r subject.Release) []*seatrialv1.Outcome {
	t.Helper()
	var all []*seatrialv1.Outcome
	for _, msg := range messages(t, c, subject.StreamOutcomes, subject.Outcome("*", r)) {
		o := &seatrialv1.Outcome{}
		require.NoError(t, wire.Unmarshal(msg.Header, msg.Data, o))
		all = append(all, o)
	}
	return all
}

// kinds returns the kinds of the outcomes about a release, oldest first.
func kinds(t *testing.T, c *bus.Conn, r subject.Release) string {
	t.Helper()
	var all []string
	for _, o := range outcomes(t, c, r) {
		all = append(all, o.GetKind())
	}
	return strings.Join(all, " ")
}

// queued says whether a command of a release is in the queue, be it in work or not.
func queued(t *testing.T, c *bus.Conn, r subject.Release) bool {
	t.Helper()
	return len(messages(t, c, subject.StreamCommands, "seatrial.command.*."+r.Key())) > 0
}

// start calls f in the background and returns a function that ends its context and returns its error.
func start(t *testing.T, f func(ctx context.Context) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = func() error {
		cancel()
		err := <-ended
		ended <- err
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// receive waits for a value.
func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(soon):
		require.FailNow(t, "nothing came", what)
		panic("unreachable")
	}
}

// eventually waits until a condition holds. The condition runs in the test's goroutine, so it may fail the test.
func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	late := time.After(soon)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			require.FailNow(t, "it did not happen", what)
		}
	}
}
