package chartserver

import (
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// Shelf is what a chart repository serves, by path.
type Shelf struct {
	mu    sync.Mutex
	files map[string][]byte
}

// Put puts a file there.
func (s *Shelf) Put(path string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = content
}

// ServeHTTP implements http.Handler.
func (s *Shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, ok := s.files[r.URL.Path]
	s.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(content)
}

// Repository starts a chart repository.
func Repository(t testing.TB, options ...Option) (*Server, *Shelf) {
	t.Helper()
	shelf := &Shelf{files: map[string][]byte{}}
	return start(t, shelf, options), shelf
}

// Entry is one version of a chart in an index.
type Entry struct {
	APIVersion string   `json:"apiVersion"`
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	URLs       []string `json:"urls"`
	Digest     string   `json:"digest,omitempty"`
}

// Index returns an index.yaml of these versions, in the form that `helm repo index` gives it.
func Index(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	charts := map[string][]Entry{}
	for _, e := range entries {
		e.APIVersion = "v2"
		charts[e.Name] = append(charts[e.Name], e)
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "entries": charts, "generated": "2026-01-02T03:04:05Z"})
	require.NoError(t, err)
	return text
}
