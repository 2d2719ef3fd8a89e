package bus_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func testCutOff(t *testing.T, p place) {
	c := kittest.Connect(t, p.url)
	r := p.release(t)
	proxy := kittest.NewProxy(t, p.first())
	first, second := newStarted(), newStarted()
	w := executorOf(t, r.Cluster, proxy.URL, "first", first.do("first"))
	w.LeaseTTL = shortLease
	stopFirst := start(t, w.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	cutOff := receive(t, first.claims, "the first one begins")
	require.NoError(t, cutOff.Gate.Check())

	proxy.Hold()
	start(t, executorOf(t, r.Cluster, p.url, "second", second.do("second")).Run)
	claim := receive(t, second.claims, "the second one takes over")
	require.True(t, claim.Recovering)
	require.Greater(t, claim.Fence(), cutOff.Fence())
	row := ledgerRow(t, c, r)
	require.Equal(t, claim.Fence(), row.GetFence())
	require.Equal(t, "second", row.GetHolder())
	require.ErrorIs(t, cutOff.Gate.Check(), bus.ErrLeaseLost)
	require.ErrorIs(t, receive(t, first.ended, "the first one's context ends"), bus.ErrLeaseLost)

	proxy.Resume()
	require.ErrorIs(t, cutOff.Publish(t.Context(), cutOff.Outcome(seatrialv1.KindDeploying)), bus.ErrLeaseLost)
	require.NoError(t, stopFirst())
	require.NoError(t, claim.Gate.Check())
	second.leave <- nil
	requireSettled(t, c, r, 1, "second")
}

func TestAVerdictOfAHolderWhoseLeaseIsLostIsDropped(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, impatient(1))
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	proxy := kittest.NewProxy(t, s.URL)
	calls := make(chan int, 10)
	n := 0
	w := executor(t, proxy.URL, "a", func(ctx context.Context, claim *bus.Claim) (*seatrialv1.Outcome, error) {
		n++
		calls <- n
		if n > 1 {
			return verdict(claim, "recovered"), nil
		}
		<-ctx.Done()
		return verdict(claim, "stale"), nil // what it was doing when it lost the lease may be half done
	})
	w.Slots = 1
	w.LeaseTTL = shortLease
	start(t, w.Run)
	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	receive(t, calls, "the work begins")
	proxy.Hold()
	eventually(t, func() bool { return leaseHolder(t, c, r) == "" }, "the lease runs out")
	proxy.Resume()
	requireSettled(t, c, r, 1, "recovered")
}

func TestTheTimeOfALeaseCountsFromWhenItsRenewalWasSent(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	proxy := kittest.NewProxy(t, s.URL)
	renew, err := bus.TakeLease(t.Context(), kittest.Connect(t, proxy.URL), newRelease())
	require.NoError(t, err)
	held := proxy.HoldBefore(on("$KV.seatrial-leases."))
	from := make(chan time.Time, 1)
	go func() {
		sent, err := renew()
		if err == nil {
			from <- sent
		}
	}()
	receive(t, held, "the renewal is sent")
	before := time.Now()
	proxy.Resume()
	require.True(t, receive(t, from, "the renewal is confirmed").Before(before))
}

// frozen is a worker that stands still when it has just sent its verdict to the ledger, and the one that takes over.
type frozen struct {
	c     *bus.Conn
	r     subject.Release
	proxy *kittest.Proxy
	// wake lets the frozen one go on, and returns when it has done all that it wanted.
	wake   func()
	second *started
}

func freeze(t *testing.T, p place) *frozen {
	t.Helper()
	f := &frozen{c: kittest.Connect(t, p.url), r: p.release(t), proxy: kittest.NewProxy(t, p.first()), second: newStarted()}
	held := f.proxy.HoldBefore(on("$KV.seatrial-ledger.", seatrialv1.LedgerDone))
	w := executorOf(t, f.r.Cluster, f.proxy.URL, "first", deploys("first"))
	w.LeaseTTL = shortLease
	stop := start(t, w.Run)
	f.wake = func() {
		f.proxy.Resume()
		require.NoError(t, stop())
	}
	require.NoError(t, f.c.PublishCommand(t.Context(), deployCommand(f.r, 1)))
	receive(t, held, "the first one is frozen")
	start(t, executorOf(t, f.r.Cluster, p.url, "second", f.second.do("second")).Run)
	receive(t, f.second.claims, "the second one takes over")
	return f
}

func testFrozenWhileSuccessorWorks(t *testing.T, p place) {
	f := freeze(t, p)
	f.wake()
	require.Equal(t, seatrialv1.LedgerBegun, ledgerRow(t, f.c, f.r).GetState())
	f.second.leave <- nil
	requireSettled(t, f.c, f.r, 1, "second")
	require.Equal(t, "deploying deployed", kinds(t, f.c, f.r))
}

func testFrozenUntilSuccessorIsDone(t *testing.T, p place) {
	f := freeze(t, p)
	f.second.leave <- nil
	requireSettled(t, f.c, f.r, 1, "second")
	f.wake()
	requireSettled(t, f.c, f.r, 1, "second")
	require.Equal(t, "deploying deployed", kinds(t, f.c, f.r))
}

// frozenURL is the environment variable that makes a worker of the test program; its value is where NATS is.
const frozenURL = "SEATRIAL_TEST_WORKER_URL"

// frozenWorker works on commands as `first`: for each line that it reads it writes whether its gate is open.
func frozenWorker(url string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	conn, err := bus.Connect(context.Background(), bus.Config{URL: url}, log)
	if err != nil {
		return err
	}
	w := &bus.Worker{
		Conn: conn, Service: "executor", Instance: "first", Durable: subject.ConsumerExecutor("local"),
		Slots: 1, LeaseTTL: shortLease, RequestTimeout: time.Second, Log: log,
	}
	w.Do = func(ctx context.Context, c *bus.Claim) (*seatrialv1.Outcome, error) {
		fmt.Println("begun")
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			if err := c.Gate.Check(); err != nil {
				fmt.Println("closed:", err)
			} else {
				fmt.Println("open")
			}
		}
		return verdict(c, "first"), nil
	}
	return w.Run(context.Background())
}

func TestAFrozenProcessFindsItsGateClosedWhenItWakesTooLate(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, impatient(1))
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), frozenURL+"="+s.URL)
	process.Stderr = t.Output()
	ask, err := process.StdinPipe()
	require.NoError(t, err)
	answers, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	said := make(chan string)
	go func() {
		for lines := bufio.NewScanner(answers); lines.Scan(); {
			said <- lines.Text()
		}
	}()

	require.NoError(t, c.PublishCommand(t.Context(), deployCommand(r, 1)))
	require.Equal(t, "begun", receive(t, said, "the process begins"))
	_, err = ask.Write([]byte("\n"))
	require.NoError(t, err)
	require.Equal(t, "open", receive(t, said, "an answer"))

	require.NoError(t, process.Process.Signal(syscall.SIGSTOP))
	second := newStarted()
	start(t, executor(t, s.URL, "second", second.do("second")).Run)
	receive(t, second.claims, "somebody else takes over")
	// Asked while it is frozen, it is the first thing that it does when it wakes.
	_, err = ask.Write([]byte("\n"))
	require.NoError(t, err)
	require.NoError(t, process.Process.Signal(syscall.SIGCONT))
	require.Contains(t, receive(t, said, "an answer"), "closed: ")

	require.NoError(t, ask.Close()) // now it says that it has deployed
	second.leave <- nil
	requireSettled(t, c, r, 1, "second")
}
