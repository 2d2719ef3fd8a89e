package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// ended is the end that a planner puts to a deploy command.
func ended(r subject.Release, number uint32) *seatrialv1.CommandEnd {
	return &seatrialv1.CommandEnd{Kind: seatrialv1.CommandDeploy, Outcome: &seatrialv1.Outcome{
		Id: r.String() + "/1/deployed", Kind: seatrialv1.KindDeployed, Release: r.String(), Number: number,
		Service: "planner", Message: "planner",
	}}
}

func TestThePlannerEndsACommandThatNobodyHasBegun(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	require.NoError(t, c.EndCommand(t.Context(), ended(r, 1)))
	requireSettled(t, c, r, 1, "planner")
	require.NoError(t, c.EndCommand(t.Context(), ended(r, 1)), "twice is no error")

	// A planner that lags behind publishes it once more.
	_, err := c.JS.Publish(t.Context(), subject.CommandExecute(r), encode(t, deployCommand(r, 1)))
	require.NoError(t, err)
	start(t, executor(t, s.URL, "a", deploys("a")).Run)
	requireSettled(t, c, r, 1, "planner")
	require.Equal(t, "deployed", kinds(t, c, r))
}

func testEndInWork(t *testing.T, p place) {
	c := kittest.Connect(t, p.url)
	r := p.release(t)
	work := newStarted()
	start(t, executorOf(t, r.Cluster, p.url, "a", work.do("a")).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	claim := receive(t, work.claims, "the work begins")
	tidied := make(chan error, 1)
	claim.Defer(func(context.Context) { tidied <- claim.Gate.Check() })

	require.NoError(t, c.EndCommand(t.Context(), ended(r, 1)))
	require.ErrorIs(t, receive(t, work.ended, "its context ends"), bus.ErrEnded)
	require.NoError(t, receive(t, tidied, "what was deferred"), "the lease is still held, to leave things in order")
	requireSettled(t, c, r, 1, "planner")
	require.ErrorIs(t, claim.Gate.Check(), bus.ErrLeaseLost)

	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 2)))
	require.False(t, receive(t, work.claims, "the next command begins").Recovering)
	work.leave <- nil
	requireSettled(t, c, r, 2, "a")
}

func TestThePlannerEndsACommandAtTheVeryMomentOfItsVerdict(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	proxy := kittest.NewProxy(t, s.URL)
	held := proxy.HoldBefore(on("$KV.seatrial-ledger.", seatrialv1.LedgerDone))
	tidied := make(chan error, 1)
	w := executor(t, proxy.URL, "a", func(_ context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
		claim.Defer(func(context.Context) { tidied <- claim.Gate.Check() })
		return verdict(claim, "a"), nil
	})
	start(t, w.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	receive(t, held, "the verdict is on its way")
	require.NoError(t, c.EndCommand(t.Context(), ended(r, 1)))
	proxy.Resume()
	require.NoError(t, receive(t, tidied, "what was deferred"))
	requireSettled(t, c, r, 1, "planner")
}

func TestAVerdictThatWasWrittenDownStandsAgainstThePlanner(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	// The worker dies between writing and publishing; the planner's end must not take the verdict away with the message.
	proxy := kittest.NewProxy(t, s.URL)
	proxy.KillBefore(on("seatrial.outcome.deployed."))
	w := executor(t, proxy.URL, "a", deploys("a"))
	start(t, w.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	eventually(t, proxy.Killed, "the worker dies")
	require.NoError(t, c.EndCommand(t.Context(), ended(r, 1)))
	requireSettled(t, c, r, 1, "a")
	w.Conn.NC.Close()
}

func TestTheEndOfAnOldCommandLeavesALaterOneAlone(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	work := newStarted()
	start(t, executor(t, s.URL, "a", work.do("a")).Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 2)))
	claim := receive(t, work.claims, "the work begins")
	require.NoError(t, c.EndCommand(t.Context(), ended(r, 1)))
	require.EqualValues(t, 2, ledgerRow(t, c, r).GetNumber())
	require.True(t, queued(t, c, r))
	require.NoError(t, claim.Gate.Check())
	work.leave <- nil
	requireSettled(t, c, r, 2, "a")
	require.NotContains(t, kinds(t, c, r), "deployed deployed")
}

func TestAWorkerWhoseWorkDoesNotEndEnds(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r, other := newRelease(), newRelease()
	begun, leave := make(chan struct{}, 2), make(chan struct{})
	w := executor(t, s.URL, "a", func(ctx context.Context, c *bus.Claim) (*seatrialv1.Outcome, error) {
		begun <- struct{}{}
		if c.Command.GetRelease() == r.String() {
			<-leave
			return nil, context.Cause(ctx)
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	w.Grace = time.Millisecond
	bus.SetPatience(w, time.Millisecond)
	result := make(chan error, 1)
	go func() { result <- w.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() { close(leave) })
	for _, release := range []subject.Release{r, other} {
		require.NoError(t, c.PublishCommand(t.Context(), deployCommand(release, 1)))
		receive(t, begun, "the work begins")
	}
	require.NoError(t, c.EndCommand(t.Context(), ended(r, 1)))
	err := receive(t, result, "the worker ends")
	require.ErrorIs(t, err, bus.ErrStuck)
	require.ErrorIs(t, err, bus.ErrEnded)
	require.ErrorContains(t, err, "command 1 of "+r.String())
	require.True(t, queued(t, c, other), "what else was in work is handed back")
}
