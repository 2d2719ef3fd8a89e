package chartserver

import (
	"bytes"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
)

// quiet takes what servers log.
var quiet = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// Fault answers a request in the place of the server, or leaves it to next.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Break lets a fault answer from now on; nil heals the server.
func (s *Server) Break(fault Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *Server) broken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen = append(s.seen, r)
		fault := s.fault
		s.mu.Unlock()
		if fault == nil {
			next.ServeHTTP(w, r)
			return
		}
		fault(w, r, next)
	})
}

// On applies a fault to the paths that hold part, and leaves all others alone.
func On(part string, fault Fault) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, part) {
			fault(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// Answer answers with a status, and a body that repeats what the client has shown of itself.
func Answer(status int) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"errors": [{"code": "DENIED", "message": "`+r.Header.Get("Authorization")+`"}]}`)
	}
}

// Hang gives no answer until the client goes away.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) { <-r.Context().Done() }

// Truncate breaks off in the middle of the answer.
func Truncate(w http.ResponseWriter, r *http.Request, next http.Handler) {
	whole := record(r, next)
	copyHeader(w, whole)
	w.WriteHeader(whole.Code)
	_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Corrupt changes the last byte of the answer.
func Corrupt(w http.ResponseWriter, r *http.Request, next http.Handler) {
	whole := record(r, next)
	copyHeader(w, whole)
	w.WriteHeader(whole.Code)
	body := bytes.Clone(whole.Body.Bytes())
	if len(body) > 0 {
		body[len(body)-1] ^= 1
	}
	_, _ = w.Write(body)
}

// Endless answers with more and more bytes until the client goes away.
func Endless(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	part := bytes.Repeat([]byte("# more\n"), 8<<10)
	for r.Context().Err() == nil {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

// Redirect sends the client to the same path of another server, with what looks like a signature.
func Redirect(base string) Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(w, r, base+r.URL.Path+"?X-Signature=s1gn4ture", http.StatusTemporaryRedirect)
	}
}

func record(r *http.Request, next http.Handler) *httptest.ResponseRecorder {
	whole := httptest.NewRecorder()
	next.ServeHTTP(whole, r)
	return whole
}

// copyHeader copies the header of a recorded answer, with the length of the whole body.
func copyHeader(w http.ResponseWriter, whole *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), whole.Header())
	w.Header().Set("Content-Length", strconv.Itoa(whole.Body.Len()))
}
