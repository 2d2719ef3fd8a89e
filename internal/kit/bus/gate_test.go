package bus

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	testTTL     = 60 * time.Second
	testRequest = 15 * time.Second
)

// openGate returns a gate that was confirmed just now, and the reasons for which it closes.
func openGate() (*Gate, *[]error) {
	var reasons []error
	return newGate(testTTL, testRequest, time.Now(), time.Now, func(err error) { reasons = append(reasons, err) }), &reasons
}

func TestGateIsOpenWhileARequestWouldEndBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, _ := openGate()
		require.NoError(t, gate.Check())
		time.Sleep(testTTL - testRequest - 1)
		require.NoError(t, gate.Check())
	})
}

func TestGateClosesForEverWhenTheLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, reasons := openGate()
		// The goroutine that renews stands still as well, when a process is frozen: only the clock goes on.
		time.Sleep(testTTL)
		require.ErrorIs(t, gate.Check(), ErrLeaseLost)
		gate.confirm(time.Now())
		require.ErrorIs(t, gate.Check(), ErrLeaseLost, "a late confirmation must not open it again")
		require.Len(t, *reasons, 1, "whoever works is told once")
	})
}

func TestGateHoldsARequestUpUntilTheNextConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, _ := openGate()
		time.Sleep(testTTL - testRequest)
		checked := make(chan error, 1)
		go func() { checked <- gate.Check() }()
		synctest.Wait()
		require.Empty(t, checked, "it must neither pass nor fail yet")

		gate.confirm(time.Now())
		synctest.Wait()
		require.NoError(t, <-checked)
	})
}

func TestGateCountsAConfirmationFromWhenTheRenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, _ := openGate()
		time.Sleep(testTTL / 4)
		sent := time.Now()
		time.Sleep(testTTL / 4) // the answer takes that long
		gate.confirm(sent)
		time.Sleep(time.Until(sent.Add(testTTL)))
		require.ErrorIs(t, gate.Check(), ErrLeaseLost)
	})
}

func TestGateRefusesARequestThatWaitsWhenTheLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, _ := openGate()
		start := time.Now()
		time.Sleep(testTTL - testRequest)
		require.ErrorIs(t, gate.Check(), ErrLeaseLost)
		require.Equal(t, testTTL, time.Since(start))
	})
}

func TestGateRefusesARequestThatWaitsWhenTheClaimEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, reasons := openGate()
		time.Sleep(testTTL - testRequest)
		checked := make(chan error, 1)
		go func() { checked <- gate.Check() }()
		synctest.Wait()
		gate.close(ErrTakenOver)
		synctest.Wait()
		require.ErrorIs(t, <-checked, ErrTakenOver)
		require.Equal(t, []error{ErrTakenOver}, *reasons)
	})
}

func TestGateKeepsTheFirstReason(t *testing.T) {
	gate, reasons := openGate()
	gate.close(ErrTakenOver)
	gate.close(ErrLeaseLost)
	require.ErrorIs(t, gate.Check(), ErrTakenOver)
	require.Equal(t, []error{ErrTakenOver}, *reasons)
}

func TestGateIsClosedWhenTheWorkHasEnded(t *testing.T) {
	gate, _ := openGate()
	require.NoError(t, gate.lost())
	gate.end()
	require.ErrorIs(t, gate.Check(), ErrLeaseLost, "what the work left running must not pass")

	gate, _ = openGate()
	gate.close(ErrTakenOver)
	require.ErrorIs(t, gate.lost(), ErrTakenOver)
}

func TestRetryDelayDoubles(t *testing.T) {
	for delivered, want := range map[uint64]time.Duration{
		1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1 << 40: time.Minute,
	} {
		require.Equal(t, want, retryDelay(delivered), "delivery %d", delivered)
	}
}

func TestWorkerValidates(t *testing.T) {
	for name, row := range map[string]struct {
		worker Worker
		want   string
	}{
		"good":                         {Worker{Slots: 1, LeaseTTL: 60 * time.Second, RequestTimeout: 15 * time.Second}, ""},
		"no slot":                      {Worker{LeaseTTL: time.Minute, RequestTimeout: time.Second}, "slots 0"},
		"lease shorter than possible":  {Worker{Slots: 1, LeaseTTL: time.Second / 2, RequestTimeout: 1}, "lease TTL 500ms"},
		"lease with a fraction":        {Worker{Slots: 1, LeaseTTL: 1500 * time.Millisecond, RequestTimeout: 1}, "lease TTL 1.5s"},
		"request without a time-out":   {Worker{Slots: 1, LeaseTTL: time.Second}, "request time-out 0s"},
		"request as long as the lease": {Worker{Slots: 1, LeaseTTL: time.Second, RequestTimeout: time.Second}, "request time-out 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			err := row.worker.Validate()
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestOneLineMakesAHeaderOfAnyText(t *testing.T) {
	require.Equal(t, "a b c", oneLine("a\n\tb\r\nc\n"))
	require.Equal(t, strings.Repeat("ä", 1024)+"…", oneLine(strings.Repeat("ä", 5000)))
	require.Equal(t, "x"+strings.Repeat("ä", 1023)+"…", oneLine("x"+strings.Repeat("ä", 5000)), "no half of a letter")
}
