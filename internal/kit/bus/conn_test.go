package bus_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
)

func TestConnectWaitsForAServerThatComesLater(t *testing.T) {
	t.Parallel()
	s := kittest.NATS(t)
	s.Stop()
	connected := make(chan *bus.Conn, 1)
	go func() {
		c, err := bus.Connect(t.Context(), bus.Config{URL: s.URL}, kittest.Logger(t))
		if err == nil {
			connected <- c
		}
	}()
	require.NoError(t, s.Start())
	c := receive(t, connected, "connection")
	defer c.NC.Close()
	require.NoError(t, c.Healthy())
}

func TestConnectEndsWithItsContextAndNamesTheServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // it never says that it is NATS
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := bus.Connect(ctx, bus.Config{URL: "nats://" + listener.Addr().String()}, kittest.Logger(t))
		ended <- err
	}()
	conn, err := listener.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	cancel(stop)
	err = receive(t, ended, "error")
	require.ErrorIs(t, err, stop)
	require.ErrorContains(t, err, listener.Addr().String())
}

func TestConnectFailsAtOnceWhenTheServerRefusesTheUser(t *testing.T) {
	t.Parallel()
	url := restricted(t, nil)
	_, err := bus.Connect(t.Context(), bus.Config{URL: url}, kittest.Logger(t))
	require.ErrorIs(t, err, nats.ErrAuthorization)
}

func TestConnectFailsAtOnceForAMissingFile(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]bus.Config{
		"credentials": {Creds: "/does/not/exist"},
		"nkey":        {NKey: "/does/not/exist"},
		"CA":          {CA: "/does/not/exist"},
		"certificate": {Cert: "/does/not/exist", Key: "/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.URL = "nats://127.0.0.1:1"
			_, err := bus.Connect(t.Context(), cfg, kittest.Logger(t))
			require.ErrorContains(t, err, "/does/not/exist")
		})
	}
}

func TestHealthyTellsThatTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := kittest.NATS(t)
	c := kittest.Connect(t, s.URL)
	require.NoError(t, c.Healthy())
	s.Stop()
	eventually(t, func() bool { return c.Healthy() != nil }, "unhealthy without a server")
	require.NoError(t, s.Start())
	eventually(t, func() bool { return c.Healthy() == nil }, "healthy again")
}

func TestHealthyTellsARefusedSubject(t *testing.T) {
	t.Parallel()
	url := restricted(t, &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{"allowed"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX_x.>"}},
	})
	c, err := bus.Connect(t.Context(), bus.Config{URL: url, InboxPrefix: "_INBOX_x"}, kittest.Logger(t))
	require.NoError(t, err)
	defer c.NC.Close()
	require.NoError(t, c.NC.Publish("allowed", nil))
	require.NoError(t, c.NC.Flush())
	require.NoError(t, c.Healthy())

	require.NoError(t, c.NC.Publish("forbidden.subject", nil))
	eventually(t, func() bool { return c.Healthy() != nil }, "unhealthy")
	require.ErrorContains(t, c.Healthy(), "forbidden.subject")
}

func TestCloseSendsWhatWasPublished(t *testing.T) {
	t.Parallel()
	s := kittest.NATS(t)
	got := make(chan string, 1)
	sub, err := kittest.Connect(t, s.URL).NC.Subscribe("hello", func(m *nats.Msg) { got <- string(m.Data) })
	require.NoError(t, err)
	defer func() { _ = sub.Unsubscribe() }()
	c, err := bus.Connect(t.Context(), bus.Config{URL: s.URL}, kittest.Logger(t))
	require.NoError(t, err)
	require.NoError(t, c.NC.Publish("hello", []byte("last words")))
	require.NoError(t, c.Close(t.Context()))
	require.Equal(t, "last words", receive(t, got, "message"))
	require.True(t, c.NC.IsClosed())
	require.NoError(t, c.Close(t.Context()), "closing twice is no error")
}

func TestCloseEndsWithItsContextWhileTheServerIsAway(t *testing.T) {
	t.Parallel()
	s := kittest.NATS(t)
	c, err := bus.Connect(t.Context(), bus.Config{URL: s.URL}, kittest.Logger(t))
	require.NoError(t, err)
	s.Stop()
	eventually(t, func() bool { return c.Healthy() != nil }, "unhealthy without a server")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx) // an error or not: there was nothing to send
	require.True(t, c.NC.IsClosed())
}

// restricted starts a server with one user, `alice`, who has these permissions, and returns a URL with her password; or
// one with a wrong password when permissions is nil.
func restricted(t *testing.T, permissions *server.Permissions) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		Users: []*server.User{{Username: "alice", Password: "right", Permissions: permissions}},
	})
	require.NoError(t, err)
	go s.Start()
	require.True(t, s.ReadyForConnections(soon))
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	password := "right"
	if permissions == nil {
		password = "wrong"
	}
	return "nats://alice:" + password + "@" + s.Addr().String()
}
