package kittest

import (
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seatrial/seatrial/internal/kit/bus"
)

// NATS starts a server with nothing in it, which ends with the test.
func NATS(t testing.TB) *Server {
	t.Helper()
	s, err := StartServer(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

// Provisioned starts a server that has what layout asks for.
func Provisioned(t testing.TB, layout bus.Layout) *Server {
	t.Helper()
	s := NATS(t)
	s.Provision(t, layout)
	return s
}

// Provision makes what layout asks for.
func (s *Server) Provision(t testing.TB, layout bus.Layout) {
	t.Helper()
	c := Connect(t, s.URL)
	require.NoError(t, bus.Provision(t.Context(), c.JS, layout, Logger(t)))
}

// Restart stops the server and starts it again on the same port and with the same streams.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	require.NoError(t, s.Start())
}

// Connect connects to a server. The connection ends with the test.
func Connect(t testing.TB, url string) *bus.Conn {
	t.Helper()
	c, err := bus.Connect(t.Context(), bus.Config{URL: url, Name: t.Name()}, Logger(t))
	require.NoError(t, err)
	t.Cleanup(c.NC.Close)
	return c
}

// Logger writes to the test's output. What is logged after the test has ended is dropped.
func Logger(t testing.TB) *slog.Logger {
	w := &output{w: t.Output()}
	t.Cleanup(w.end)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// output is the output of a test until its end: writing to it later would panic.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(line)
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w = io.Discard
}

// VerifyTestMain runs the tests of a package and fails when they leave goroutines behind, except for those that a NATS
// server leaves when it is shut down.
func VerifyTestMain(m goleak.TestingM) {
	const server = "github.com/nats-io/nats-server/v2/server"
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(server+".(*fileStore).flushStreamStateLoop"),
		goleak.IgnoreAnyFunction(server+"/ats.Register.func1"),
	)
}
