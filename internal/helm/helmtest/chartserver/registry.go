package chartserver

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/require"
	helmregistry "helm.sh/helm/v3/pkg/registry"
)

// Registry starts an OCI registry, that of go-containerregistry.
func Registry(t testing.TB, options ...Option) *Server {
	t.Helper()
	return start(t, registry.New(registry.Logger(quiet)), options)
}

// Push pushes a packaged chart as `helm push` does, under <repository>:<version>, and returns the digest of the manifest.
// provenance may be nil.
func (s *Server) Push(t testing.TB, repository, version string, archive, provenance []byte) string {
	t.Helper()
	client, err := helmregistry.NewClient(
		helmregistry.ClientOptHTTPClient(&http.Client{Transport: direct{s.handler}}),
		helmregistry.ClientOptCredentialsFile(filepath.Join(t.TempDir(), "none.json")),
	)
	require.NoError(t, err)
	options := []helmregistry.PushOption{helmregistry.PushOptStrictMode(false)}
	if provenance != nil {
		options = append(options, helmregistry.PushOptProvData(provenance))
	}
	pushed, err := client.Push(archive, s.Host+"/"+repository+":"+version, options...)
	require.NoError(t, err)
	return pushed.Manifest.Digest
}

// Put puts a manifest under <repository>:<tag>, whatever it is.
func (s *Server) Put(t testing.TB, repository, tag, mediaType, manifest string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL+"/v2/"+repository+"/manifests/"+tag, strings.NewReader(manifest))
	require.NoError(t, err)
	req.Header.Set("Content-Type", mediaType)
	resp, err := direct{s.handler}.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusCreated, resp.StatusCode)
}

// direct asks a handler without a network, and past all guards and faults.
type direct struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil {
		req.Body = http.NoBody
	}
	resp := record(req, d.handler).Result()
	resp.Request = req // a relative Location is relative to it
	return resp, nil
}
