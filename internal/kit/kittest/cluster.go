package kittest

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
)

// Cluster is three servers; whatever has three replicas has one on each.
type Cluster struct {
	// URL names all three.
	URL     string
	Servers []*Server
}

// Cluster3 starts a cluster of three that has what layout asks for, which ends with the test.
func Cluster3(t testing.TB, layout bus.Layout) *Cluster {
	t.Helper()
	c := &Cluster{}
	routes := make([]*url.URL, 3)
	for i := range routes {
		routes[i] = &url.URL{Scheme: "nats", Host: freeAddress(t)}
	}
	dir := t.TempDir()
	for i, route := range routes {
		port := route.Port()
		opts := server.Options{ServerName: fmt.Sprintf("seatrial-%d", i), StoreDir: filepath.Join(dir, port), Routes: routes}
		opts.Cluster.Name = "seatrial"
		opts.Cluster.Host = route.Hostname()
		// Clients stay with the servers that they were told: one behind a Proxy must not find a way around it.
		opts.Cluster.NoAdvertise = true
		_, err := fmt.Sscan(port, &opts.Cluster.Port)
		require.NoError(t, err)
		s, err := newServer(opts)
		require.NoError(t, err)
		t.Cleanup(s.Stop)
		c.Servers = append(c.Servers, s)
	}
	urls := make([]string, 3)
	for i, s := range c.Servers {
		urls[i] = s.URL
	}
	c.URL = strings.Join(urls, ",")
	c.waitUntilCurrent(t)
	require.NoError(t, bus.Provision(t.Context(), Connect(t, c.URL).JS, layout, Logger(t)))
	return c
}

// Restart stops a server and starts it again, and returns when it has caught up with the others.
func (c *Cluster) Restart(t testing.TB, i int) {
	t.Helper()
	c.Servers[i].Restart(t)
	c.waitUntilCurrent(t)
}

// LeaderOf returns the index of the server that leads a stream.
func (c *Cluster) LeaderOf(t testing.TB, stream string) int {
	t.Helper()
	info, err := Connect(t, c.URL).JS.Stream(t.Context(), stream)
	require.NoError(t, err)
	for i, s := range c.Servers {
		if s.opts.ServerName == info.CachedInfo().Cluster.Leader {
			return i
		}
	}
	require.Failf(t, "no leader", "stream %s", stream)
	return 0
}

// waitUntilCurrent waits until the servers have a leader that knows all of them, and all know what it knows.
func (c *Cluster) waitUntilCurrent(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool {
		leader := false
		for _, s := range c.Servers {
			leader = leader || s.running.JetStreamIsLeader() && len(s.running.JetStreamClusterPeers()) == len(c.Servers)
			if !s.running.JetStreamIsCurrent() {
				return false
			}
		}
		return leader
	}, 30*time.Second, 20*time.Millisecond, "the cluster has no leader or does not catch up")
}

// freeAddress returns an address of 127.0.0.1 on which nobody listens.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
