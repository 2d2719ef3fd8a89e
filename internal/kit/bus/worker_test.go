package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// do is what a worker does.
type do = func(ctx context.Context, c *bus.Claim) (*seatrialv1.Outcome, error)

// executor returns a worker of the cluster `local` with its own connection to url and settings that suit tests.
func executor(t *testing.T, url, instance string, do do) *bus.Worker {
	t.Helper()
	return executorOf(t, "local", url, instance, do)
}

// executorOf is executor for another cluster.
func executorOf(t *testing.T, cluster, url, instance string, do do) *bus.Worker {
	t.Helper()
	return &bus.Worker{
		Conn: kittest.Connect(t, url), Service: "executor", Instance: instance, Durable: subject.ConsumerExecutor(cluster),
		Slots: 4, LeaseTTL: time.Minute, RequestTimeout: time.Second, Grace: soon, Log: kittest.Logger(t), Do: do,
	}
}

// deploys says that it deploys, and then that it has.
func deploys(instance string) do {
	return func(ctx context.Context, c *bus.Claim) (*seatrialv1.Outcome, error) {
		if err := c.Publish(ctx, c.Outcome(seatrialv1.KindDeploying)); err != nil {
			return nil, err
		}
		return verdict(c, instance), nil
	}
}

// verdict is the final outcome of an instance.
func verdict(c *bus.Claim, instance string) *seatrialv1.Outcome {
	o := c.Outcome(seatrialv1.KindDeployed)
	o.Message = instance
	return o
}

// started is a worker's Do that tells its claim and waits for leave to go on, with the outcome or the error of it.
type started struct {
	claims chan *bus.Claim
	ended  chan error // the cause of each context that ended before there was leave
	leave  chan error
}

func newStarted() *started {
	return &started{make(chan *bus.Claim, 10), make(chan error, 10), make(chan error, 10)}
}

func (s *started) do(instance string) do {
	return func(ctx context.Context, c *bus.Claim) (*seatrialv1.Outcome, error) {
		s.claims <- c
		select {
		case err := <-s.leave:
			return verdict(c, instance), err
		case <-ctx.Done():
			s.ended <- context.Cause(ctx)
			return verdict(c, instance), context.Cause(ctx)
		}
	}
}

// requireSettled waits until a command is over, and checks that there is one verdict, by whom, and that nothing is left.
func requireSettled(t *testing.T, c *bus.Conn, r subject.Release, number uint32, by string) {
	t.Helper()
	eventually(t, func() bool { return strings.Contains(kinds(t, c, r), seatrialv1.KindDeployed) }, "a verdict")
	eventually(t, func() bool { return !queued(t, c, r) }, "the command leaves the queue")
	eventually(t, func() bool { return leaseHolder(t, c, r) == "" }, "the lease is given back")

	var verdicts []string
	for _, o := range outcomes(t, c, r) {
		if o.GetKind() == seatrialv1.KindDeployed && o.GetNumber() == number {
			verdicts = append(verdicts, o.GetMessage())
		}
	}
	require.Equal(t, []string{by}, verdicts)
	row := ledgerRow(t, c, r)
	require.Equal(t, number, row.GetNumber())
	require.Equal(t, seatrialv1.LedgerDone, row.GetState())
	published := messages(t, c, subject.StreamOutcomes, subject.Outcome(seatrialv1.KindDeployed, r))
	require.Equal(t, string(row.GetOutcome()), string(published[len(published)-1].Data), "the row has the published bytes")
}

func ledgerRow(t *testing.T, c *bus.Conn, r subject.Release) *seatrialv1.LedgerRow {
	t.Helper()
	bucket, err := bus.OpenBucket[*seatrialv1.LedgerRow](t.Context(), c, subject.BucketLedger)
	require.NoError(t, err)
	row, _, err := bucket.Get(t.Context(), r.Key())
	if !errors.Is(err, bus.ErrNotFound) {
		require.NoError(t, err)
	}
	return row
}

func leaseHolder(t *testing.T, c *bus.Conn, r subject.Release) string {
	t.Helper()
	bucket, err := bus.OpenBucket[*seatrialv1.Lease](t.Context(), c, subject.BucketLeases)
	require.NoError(t, err)
	lease, _, err := bucket.Get(t.Context(), r.Key())
	if !errors.Is(err, bus.ErrNotFound) {
		require.NoError(t, err)
	}
	return lease.GetHolder()
}

func TestWorkerSaysWhatItDidAndLeavesNothing(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	r := newRelease()
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	start(t, executor(t, c.NC.ConnectedUrl(), "a", deploys("a")).Run)
	requireSettled(t, c, r, 1, "a")
	require.Equal(t, "deploying deployed", kinds(t, c, r))

	o := outcomes(t, c, r)[1]
	require.Equal(t, r.String()+"/1/deployed", o.GetId())
	require.Equal(t, r.String(), o.GetRelease())
	require.EqualValues(t, 7, o.GetGeneration())
	require.Equal(t, "req-1", o.GetRequest())
	require.EqualValues(t, 1, o.GetNumber())
	require.Equal(t, "executor", o.GetService())
	require.Equal(t, "a", o.GetInstance())
	require.Equal(t, "00-trace", o.GetTraceparent())
	require.Equal(t, "1.1.0", o.GetRequested().GetVersion())
	require.Equal(t, "1.0.0", o.GetRunning().GetVersion())
	require.WithinDuration(t, time.Now(), o.GetTime().AsTime(), time.Minute)
	require.NotZero(t, ledgerRow(t, c, r).GetFence())
	require.Equal(t, "a", ledgerRow(t, c, r).GetHolder())
}

// crashes are the moments at which a worker can die, and what must come of it.
var crashes = map[string]struct {
	arm func(p *kittest.Proxy)
	// finished: the dead one had written its verdict, which stands. Otherwise the next one works.
	finished bool
	// recovering is what the next one is told.
	recovering bool
	// said is what the dead one had published before.
	said string
}{
	"before it has the lease": {
		arm: func(p *kittest.Proxy) { p.KillBefore(on("$KV.seatrial-leases.")) },
	},
	"before it knows that it has the lease": {
		arm: func(p *kittest.Proxy) { p.KillAfter(on("$KV.seatrial-leases.")) },
	},
	"with the lease, before the command is begun": {
		arm: func(p *kittest.Proxy) { p.KillBefore(on("$KV.seatrial-ledger.")) },
	},
	"before it knows that the command is begun": {
		arm:        func(p *kittest.Proxy) { p.KillAfter(on("$KV.seatrial-ledger.")) },
		recovering: true,
	},
	"with the command begun, before it has said so": {
		arm:        func(p *kittest.Proxy) { p.KillBefore(on("seatrial.outcome.deploying.")) },
		recovering: true,
	},
	"in the middle of its work": {
		arm:        func(p *kittest.Proxy) { p.KillAfter(on("seatrial.outcome.deploying.")) },
		recovering: true, said: "deploying ",
	},
	"at the end of its work, before that is written down": {
		arm:        func(p *kittest.Proxy) { p.KillBefore(on("$KV.seatrial-ledger.", seatrialv1.LedgerDone)) },
		recovering: true, said: "deploying ",
	},
	"before it knows that its verdict is written down": {
		arm:      func(p *kittest.Proxy) { p.KillAfter(on("$KV.seatrial-ledger.", seatrialv1.LedgerDone)) },
		finished: true, said: "deploying ",
	},
	"with its verdict written down, before the lease is given back": {
		arm:      func(p *kittest.Proxy) { p.KillBefore(on("$KV.seatrial-leases.", "PURGE")) },
		finished: true, said: "deploying ",
	},
	"with the lease given back, before the verdict is published": {
		arm:      func(p *kittest.Proxy) { p.KillBefore(on("seatrial.outcome.deployed.")) },
		finished: true, said: "deploying ",
	},
	"before it knows that the verdict is published": {
		arm:      func(p *kittest.Proxy) { p.KillAfter(on("seatrial.outcome.deployed.")) },
		finished: true, said: "deploying ",
	},
	"with the verdict published, before the command is acknowledged": {
		arm:      func(p *kittest.Proxy) { p.KillBefore(on("$JS.ACK.SEATRIAL_COMMANDS.", "+ACK")) },
		finished: true, said: "deploying ",
	},
	"before it knows that the command is acknowledged": {
		arm:      func(p *kittest.Proxy) { p.KillAfter(on("$JS.ACK.SEATRIAL_COMMANDS.", "+ACK")) },
		finished: true, said: "deploying ",
	},
}

// on matches messages on subjects that begin with prefix and have all these words in them.
func on(prefix string, words ...string) kittest.Match {
	return func(subject, payload string) bool {
		for _, word := range words {
			if !strings.Contains(payload, word) {
				return false
			}
		}
		return strings.HasPrefix(subject, prefix)
	}
}

func testCrashes(t *testing.T, p place) {
	for name, row := range crashes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kittest.Connect(t, p.url)
			r := p.release(t)
			proxy := kittest.NewProxy(t, p.first())
			row.arm(proxy)
			first := executorOf(t, r.Cluster, proxy.URL, "first", deploys("first"))
			first.LeaseTTL = shortLease
			require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
			stopFirst := start(t, first.Run)
			eventually(t, proxy.Killed, "the first one dies")

			// The first one does not know that it is dead: it goes on, but nobody hears it.
			var claims []*bus.Claim
			second := executorOf(t, r.Cluster, p.url, "second", func(ctx context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
				claims = append(claims, claim)
				return deploys("second")(ctx, claim)
			})
			stopSecond := start(t, second.Run)
			by, said := "second", row.said+"deploying deployed"
			if row.finished {
				by, said = "first", row.said+"deployed"
			}
			requireSettled(t, c, r, 1, by)
			require.NoError(t, stopSecond())
			first.Conn.NC.Close()
			_ = stopFirst()
			require.Equal(t, said, kinds(t, c, r))
			if row.finished {
				require.Empty(t, claims, "a verdict is there: nobody works again")
				return
			}
			require.Len(t, claims, 1)
			require.Equal(t, row.recovering, claims[0].Recovering)
		})
	}
}

func TestALeaseIsHeldForAsLongAsTheWorkTakes(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	work := newStarted()
	first := executor(t, s.URL, "first", work.do("first"))
	first.LeaseTTL = 4 * time.Second
	start(t, first.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	claim := receive(t, work.claims, "the work begins")
	// Others come for it all the time, as if the command were delivered again and again.
	start(t, executor(t, s.URL, "second", newStarted().do("second")).Run)

	leases, err := bus.OpenBucket[*seatrialv1.Lease](t.Context(), c, subject.BucketLeases)
	require.NoError(t, err)
	renewed := make(chan uint64, 100)
	start(t, func(ctx context.Context) error {
		return leases.WatchKey(ctx, r.Key(), func(_ string, lease *seatrialv1.Lease, revision uint64) {
			if lease.GetHolder() == "first" {
				renewed <- revision
			}
		})
	})
	for range 6 { // at a quarter of its time each, so for longer than the lease would last
		receive(t, renewed, "a renewal")
		require.NoError(t, claim.Gate.Check())
	}
	work.leave <- nil
	requireSettled(t, c, r, 1, "first")
	require.ErrorIs(t, claim.Gate.Check(), bus.ErrLeaseLost, "nothing that was left running may pass")
	require.Empty(t, work.claims, "it was begun once")
}

func TestWhatIsDeferredComesAfterTheVerdictIsWrittenDownAndBeforeTheLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	work := newStarted()
	start(t, executor(t, s.URL, "a", work.do("a")).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	receive(t, work.claims, "the work begins").Defer(func(context.Context) { t.Error("called for a command that is handed back") })
	work.leave <- errors.New("no idea")

	claim := receive(t, work.claims, "the work begins again")
	found := make(chan string, 1)
	claim.Defer(func(context.Context) {
		found <- fmt.Sprint(ledgerRow(t, c, r).GetState(), " ", leaseHolder(t, c, r), " ", claim.Gate.Check(), " ", kinds(t, c, r))
	})
	work.leave <- nil
	require.Equal(t, "done a <nil> ", receive(t, found, "what was deferred"))
	requireSettled(t, c, r, 1, "a")
}

func TestACommandBelowTheHighestBegunIsDropped(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	start(t, executor(t, s.URL, "a", deploys("a")).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 2)))
	requireSettled(t, c, r, 2, "a")
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	eventually(t, func() bool { return !queued(t, c, r) }, "the old command leaves the queue")
	require.Equal(t, "deploying deployed", kinds(t, c, r))
	require.EqualValues(t, 2, ledgerRow(t, c, r).GetNumber())

	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 3)))
	requireSettled(t, c, r, 3, "a")
}

func TestACommandThatIsDoneIsAnsweredWithTheSameBytes(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	// Written by a newer version, with a field that this one does not know.
	bytes := []byte(`{"id":"` + r.String() + `/1/deployed","kind":"deployed","release":"` + r.String() + `","number":1,"message":"before","colour":"green"}`)
	ledger, err := bus.OpenBucket[*seatrialv1.LedgerRow](t.Context(), c, subject.BucketLedger)
	require.NoError(t, err)
	_, err = ledger.Put(t.Context(), r.Key(), &seatrialv1.LedgerRow{Release: r.String(), Number: 1, State: seatrialv1.LedgerDone, Outcome: bytes}, 0)
	require.NoError(t, err)

	start(t, executor(t, s.URL, "a", deploys("a")).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	eventually(t, func() bool { return !queued(t, c, r) }, "the command leaves the queue")
	stored := messages(t, c, subject.StreamOutcomes, subject.Outcome("*", r))
	require.Len(t, stored, 1)
	require.Equal(t, string(bytes), string(stored[0].Data))
}

func TestWorkThatEndsInAnErrorIsHandedBackAtOnce(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	work := newStarted()
	start(t, executor(t, s.URL, "a", work.do("a")).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	first := receive(t, work.claims, "the work begins")
	require.False(t, first.Recovering)
	work.leave <- errors.New("no idea")
	eventually(t, func() bool { return leaseHolder(t, c, r) == "" }, "the lease is given back long before its end")
	require.Equal(t, seatrialv1.LedgerBegun, ledgerRow(t, c, r).GetState())

	second := receive(t, work.claims, "the work begins again")
	require.True(t, second.Recovering)
	require.Greater(t, second.Fence(), first.Fence())
	require.NotEqual(t, first.Outcome(seatrialv1.KindDeploying).GetId(), second.Outcome(seatrialv1.KindDeploying).GetId())
	require.Equal(t, first.Outcome(seatrialv1.KindDeployed).GetId(), second.Outcome(seatrialv1.KindDeployed).GetId())
	work.leave <- nil
	requireSettled(t, c, r, 1, "a")
}

func TestACommandWhoseReleaseIsBusyKeepsNoSlot(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	busy, free := newRelease(), newRelease()
	deploying, testing := newStarted(), newStarted()
	start(t, executor(t, s.URL, "executor", deploying.do("executor")).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(busy, 1)))
	receive(t, deploying.claims, "the release is busy")

	tester := executor(t, s.URL, "tester", testing.do("tester"))
	tester.Durable = subject.ConsumerTester("local", "")
	tester.Slots = 1
	start(t, tester.Run)
	require.NoError(t, c.PublishCommand(t.Context(), testCommand(busy, 2, "")))
	require.NoError(t, c.PublishCommand(t.Context(), testCommand(free, 1, "")))
	require.Equal(t, free.String(), receive(t, testing.claims, "the only slot is free").Command.GetRelease())
	testing.leave <- nil
	requireSettled(t, c, free, 1, "tester")

	deploying.leave <- nil
	require.Equal(t, busy.String(), receive(t, testing.claims, "its turn comes").Command.GetRelease())
	testing.leave <- nil
	requireSettled(t, c, busy, 2, "tester")
}

func TestARestartOfNATSShorterThanTheLeaseChangesNothingForRunningWork(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	for where, run := range map[string]func(t *testing.T) (url string, restart func()){
		"one server": func(t *testing.T) (string, func()) {
			s := kittest.Provisioned(t, layout())
			return s.URL, func() { s.Restart(t) }
		},
		"the leader of three": func(t *testing.T) (string, func()) {
			l := layout()
			l.Replicas = 3
			s := kittest.Cluster3(t, l)
			return s.URL, func() { s.Restart(t, s.LeaderOf(t, "KV_"+subject.BucketLeases)) }
		},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			url, restart := run(t)
			c := kittest.Connect(t, url)
			r := newRelease()
			work := newStarted()
			w := executor(t, url, "a", work.do("a"))
			w.LeaseTTL = ttl
			stop := start(t, w.Run)
			require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
			claim := receive(t, work.claims, "the work begins")

			restart()
			require.NoError(t, claim.Gate.Check())
			require.NoError(t, claim.Publish(t.Context(), claim.Outcome(seatrialv1.KindDeploying)))
			// The next ones to come find the lease held: the message may come again, the work does not.
			work.leave <- nil
			requireSettled(t, c, r, 1, "a")
			require.NoError(t, stop())
			require.Empty(t, work.claims)
			require.Empty(t, work.ended)
			require.Equal(t, "deploying deployed", kinds(t, c, r))
		})
	}
}

func TestAWorkerThatIsToldToStopFinishesItsWork(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r, late := newRelease(), newRelease()
	work := newStarted()
	stop := start(t, executor(t, s.URL, "a", work.do("a")).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	claim := receive(t, work.claims, "the work begins")
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	// It is told when it asks for nothing more.
	eventually(t, func() bool {
		consumer, err := c.JS.Consumer(t.Context(), subject.StreamCommands, subject.ConsumerExecutor("local"))
		require.NoError(t, err)
		return consumer.CachedInfo().NumWaiting == 0
	}, "nothing more is fetched")
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(late, 1)))
	require.NoError(t, claim.Gate.Check())
	require.Empty(t, stopped)
	work.leave <- nil
	require.NoError(t, receive(t, stopped, "the end"))
	requireSettled(t, c, r, 1, "a")
	require.Empty(t, work.ended)
	require.Empty(t, work.claims)
	require.True(t, queued(t, c, late), "what came later is left to others")
}

func TestWorkThatOutlastsTheGraceIsHandedBack(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	first, second := newStarted(), newStarted()
	w := executor(t, s.URL, "first", first.do("first"))
	w.Grace = time.Millisecond
	stop := start(t, w.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	receive(t, first.claims, "the work begins")
	require.NoError(t, stop()) // nobody waits until the lease runs out
	require.ErrorIs(t, receive(t, first.ended, "the context ends"), bus.ErrShutdown)
	require.Empty(t, leaseHolder(t, c, r))

	start(t, executor(t, s.URL, "second", second.do("second")).Run)
	require.True(t, receive(t, second.claims, "somebody else goes on").Recovering)
	second.leave <- nil
	requireSettled(t, c, r, 1, "second")
}

func TestAVerdictThatComesWithTheEndOfTheGraceStillStands(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	begun := make(chan struct{})
	w := executor(t, s.URL, "a", func(ctx context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
		close(begun)
		<-ctx.Done()
		return verdict(claim, "a"), nil // it was done at that very moment
	})
	w.Grace = time.Millisecond
	stop := start(t, w.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	receive(t, begun, "the work begins")
	require.NoError(t, stop())
	requireSettled(t, c, r, 1, "a")
}

func TestACommandIsNotAcknowledgedBeforeItsVerdictIsPublished(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	work := newStarted()
	w := executor(t, s.URL, "first", work.do("first"))
	w.Grace = time.Millisecond
	stop := start(t, w.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	receive(t, work.claims, "the work begins")
	require.NoError(t, c.JS.DeleteStream(t.Context(), subject.StreamOutcomes)) // it cannot be published
	work.leave <- nil
	eventually(t, func() bool { return ledgerRow(t, c, r).GetState() == seatrialv1.LedgerDone }, "the verdict is written down")
	require.NoError(t, stop())
	require.True(t, queued(t, c, r))

	s.Provision(t, layout())
	start(t, executor(t, s.URL, "second", deploys("second")).Run)
	requireSettled(t, c, r, 1, "first")
}

func TestAWorkerStopsAlsoWhileNATSIsAway(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	work := newStarted()
	w := executor(t, s.URL, "a", work.do("a"))
	w.Grace = time.Millisecond
	stop := start(t, w.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	receive(t, work.claims, "the work begins")
	s.Stop()
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	require.NoError(t, receive(t, stopped, "the end"))
}

func TestAnOutcomeThatIsTooLargeEndsTheCommandAndSaysSo(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	start(t, executor(t, s.URL, "a", func(_ context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
		return verdict(claim, strings.Repeat("x", 1<<20)), nil
	}).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	eventually(t, func() bool { return kinds(t, c, r) == seatrialv1.KindInterrupted }, "an outcome")
	eventually(t, func() bool { return !queued(t, c, r) }, "the command leaves the queue")
	failure := outcomes(t, c, r)[0].GetFailure()
	require.Equal(t, seatrialv1.ClassInterrupted, failure.GetClass())
	require.Regexp(t, r.String()+": outcome `deployed` of command 1 has 104\\d{4} bytes, the limit is 1044480", failure.GetReason())
}

func TestTheLargestOutcomeThatPassesIsPublished(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	r.Name = strings.Repeat("n", 53)
	start(t, executor(t, s.URL, "a", func(_ context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
		return verdict(claim, strings.Repeat("x", 1<<20-5000)), nil
	}).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	eventually(t, func() bool { return kinds(t, c, r) == seatrialv1.KindDeployed }, "the outcome")
}

func TestACommandThatCannotBeReadIsADeadLetter(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	start(t, executor(t, s.URL, "a", deploys("a")).Run)
	for name, data := range map[string]string{"no protobuf": "\xff\xff", "no release": "", "a typo": `{"relaese": "x"}`} {
		r := newRelease()
		_, err := c.JS.Publish(t.Context(), subject.CommandExecute(r), []byte(data))
		require.NoError(t, err, name)
		eventually(t, func() bool { return !queued(t, c, r) }, name+": leaves the queue")
		letters := messages(t, c, subject.StreamDead, subject.Dead("executor"))
		letter := letters[len(letters)-1]
		require.Equal(t, subject.CommandExecute(r), letter.Header.Get(bus.HeaderDeadSubject), name)
		require.Equal(t, data, string(letter.Data), name)
	}
}
