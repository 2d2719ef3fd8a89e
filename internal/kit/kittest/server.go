// Package kittest runs NATS inside the process, for tests and for the demo: one server or a cluster of three.
package kittest

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// startTimeout is how long a server may take until it accepts connections.
const startTimeout = 10 * time.Second

// Server is a NATS server with JetStream in this process, on a port of 127.0.0.1.
type Server struct {
	// URL is where clients connect. It stays the same when the server is started again.
	URL string

	opts    server.Options
	running *server.Server
}

// StartServer starts a server that keeps its streams in dir. A server that is started later on the same dir has them
// again.
func StartServer(dir string) (*Server, error) { return StartServerAt(0, dir) }

// StartServerAt is StartServer on a port of one's choice; 0 takes a free one.
func StartServerAt(port int, dir string) (*Server, error) {
	return newServer(server.Options{ServerName: "seatrial", Port: port, StoreDir: dir})
}

// newServer completes opts and starts a server by them.
func newServer(opts server.Options) (*Server, error) {
	opts.Host = "127.0.0.1"
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	opts.JetStream = true
	opts.NoLog = true
	opts.NoSigs = true
	s := &Server{opts: opts}
	if err := s.Start(); err != nil {
		return nil, err
	}
	s.opts.Port = s.running.Addr().(*net.TCPAddr).Port
	s.URL = s.running.ClientURL()
	return s, nil
}

// Start starts the server after Stop, on the same port and with the same streams.
func (s *Server) Start() error {
	opts := s.opts
	running, err := server.NewServer(&opts)
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	go running.Start()
	if !running.ReadyForConnections(startTimeout) {
		running.Shutdown()
		return fmt.Errorf("NATS server: %w", errors.New("not ready in "+startTimeout.String()))
	}
	s.running = running
	return nil
}

// Stop stops the server, and returns when it has ended.
func (s *Server) Stop() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}
