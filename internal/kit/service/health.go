package service

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// state is how far a service is in its life.
type state string

const (
	starting state = "starting"
	ready    state = "ready"
	stopping state = "stopping"
)

// health answers whether a service can work.
type health struct {
	mu     sync.Mutex
	state  state
	checks []check
}

type check struct {
	name string
	do   func() error
}

func (h *health) set(s state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state = s
}

func (h *health) add(name string, do func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, check{name, do})
}

// report returns a line for each check, and whether all is well.
func (h *health) report() (lines string, ok bool) {
	h.mu.Lock()
	checks := h.checks
	state := h.state
	h.mu.Unlock()

	var out strings.Builder
	fmt.Fprintf(&out, "service: %s\n", state)
	ok = state == ready
	for _, c := range checks {
		if err := c.do(); err != nil {
			ok = false
			fmt.Fprintf(&out, "%s: failed: %v\n", c.name, err)
		} else {
			fmt.Fprintf(&out, "%s: ok\n", c.name)
		}
	}
	return out.String(), ok
}

// serveHTTP serves /healthz (200 while the process lives), /readyz and /metrics until the returned function is called.
func (s *Service) serveHTTP(cfg Config) (closeHTTP func(), err error) {
	if cfg.HTTPAddr == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", cfg.HTTPAddr)
	if err != nil {
		return nil, fmt.Errorf("--http-addr: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		lines, ok := s.health.report()
		if !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprint(w, lines)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{}))

	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("serve HTTP: %w", err))
			s.stop()
		}
	}()
	s.Log.Info("serving HTTP", "address", listener.Addr().String())
	if cfg.Listening != nil {
		cfg.Listening(listener.Addr())
	}
	return func() {
		_ = server.Close()
		<-served
	}, nil
}
