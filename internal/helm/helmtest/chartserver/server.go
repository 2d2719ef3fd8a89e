// Package chartserver serves charts to tests, from a registry or from a chart repository, over TLS or without, with faults
// where a test wants them.
package chartserver

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Server is a server of charts. It runs until the test ends.
type Server struct {
	// Host is its address, as host:port, and URL the same with the scheme.
	Host, URL string
	// CA is the certificate, in PEM, that it is checked against.
	CA []byte

	handler http.Handler
	http    *httptest.Server
	// user and password that may read, if not everybody may.
	user, password string
	bearer         bool

	mu    sync.Mutex
	fault Fault
	seen  []*http.Request
}

// Option changes a server.
type Option func(*Server)

// WithLogin lets in who knows user and password.
func WithLogin(user, password string) Option {
	return func(s *Server) { s.user, s.password = user, password }
}

// WithTokens is WithLogin by tokens, as the large registries have it: user and password are shown to the token service only.
func WithTokens(user, password string) Option {
	return func(s *Server) { s.user, s.password, s.bearer = user, password, true }
}

// WithoutTLS makes it a plain HTTP server.
func WithoutTLS() Option {
	return func(s *Server) { s.http.TLS = nil }
}

// WithClientCA lets in who has a certificate of this CA.
func WithClientCA(ca *x509.Certificate) Option {
	return func(s *Server) {
		pool := x509.NewCertPool()
		pool.AddCert(ca)
		s.http.TLS.ClientAuth, s.http.TLS.ClientCAs = tls.RequireAndVerifyClientCert, pool
	}
}

func start(t testing.TB, handler http.Handler, options []Option) *Server {
	t.Helper()
	s := &Server{handler: handler}
	s.http = httptest.NewUnstartedServer(s.broken(s.guarded(handler)))
	s.http.TLS = &tls.Config{}
	s.http.Config.ErrorLog = quiet
	for _, option := range options {
		option(s)
	}
	if s.http.TLS != nil {
		s.http.StartTLS()
		s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	} else {
		s.http.Start()
	}
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	s.URL = s.http.URL
	_, s.Host, _ = strings.Cut(s.URL, "://")
	return s
}

// Seen returns the requests so far.
func (s *Server) Seen() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*http.Request(nil), s.seen...)
}

// token is what the token service gives to who knows the password.
const token = "opaque-token"

// guarded asks for the login.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		known := s.user == "" || user == s.user && password == s.password
		switch {
		case s.bearer && r.URL.Path == "/token" && known:
			_ = json.NewEncoder(w).Encode(map[string]string{"token": token})
		case s.bearer && r.URL.Path != "/token" && r.Header.Get("Authorization") != "Bearer "+token:
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="charts"`, s.URL))
			w.WriteHeader(http.StatusUnauthorized)
		case !s.bearer && !known, s.bearer && r.URL.Path == "/token":
			w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
