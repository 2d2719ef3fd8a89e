package action

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/seatrial/seatrial/internal/helm/kube"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// through lets the runner reach the cluster through a proxy that answers by itself where answer does not say 0.
func (w *world) through(answer func(*http.Request) int) {
	w.Helper()
	target, err := url.Parse(w.client.Config.Host)
	require.NoError(w, err)
	transport, err := rest.TransportFor(w.client.Config)
	require.NoError(w, err)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.URL.RawQuery = r.In.URL.RawQuery
	}}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch code := answer(r); code {
		case 0:
			proxy.ServeHTTP(rw, r)
		case cut:
			panic(http.ErrAbortHandler)
		default:
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(code)
			_, _ = fmt.Fprintf(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"no %d today"}`, code, reasons[code], code)
		}
	}))
	w.Cleanup(server.Close)
	path := filepath.Join(w.TempDir(), "kubeconfig")
	require.NoError(w, os.WriteFile(path, []byte(strings.ReplaceAll(`apiVersion: v1
kind: Config
clusters: [{name: proxy, cluster: {server: URL}}]
contexts: [{name: proxy, context: {cluster: proxy}}]
current-context: proxy
`, "URL", server.URL)), 0o600))
	client, err := kube.Connect(path)
	require.NoError(w, err)
	w.runner.Client = client
}

// cut stands for an answer that never comes, as the connection is cut.
const cut = 1

var reasons = map[int]string{403: "Forbidden", 409: "Conflict", 422: "Invalid", 500: "InternalError"}

// TestTheClassComesFromWhatTheAPIServerSays: also where Helm makes a text of it, or lets several errors be one.
func TestTheClassComesFromWhatTheAPIServerSays(t *testing.T) {
	t.Parallel()
	on := func(method, path string, code int) func(*http.Request) int {
		return func(r *http.Request) int {
			if r.Method == method && strings.Contains(r.URL.Path, path) {
				return code
			}
			return 0
		}
	}
	for _, row := range []struct {
		name    string
		answer  func(*http.Request) int
		class   string
		mutated bool
	}{
		{"away", func(*http.Request) int { return cut }, pb.ClassTransient, false},
		{"records cannot be read", on("GET", "/secrets", 500), pb.ClassTransient, false},
		{"the record cannot be made", on("POST", "/secrets", 500), pb.ClassTransient, false},
		{"a lookup cannot be answered", on("GET", "/configmaps/looked-up", 500), pb.ClassTransient, false},
		{"a lookup is forbidden", on("GET", "/configmaps/looked-up", 403), pb.ClassFailed, false},
		{"an update conflicts", on("PATCH", "/configmaps/x", 409), pb.ClassTransient, true},
		{"an update is cut", on("PATCH", "/configmaps/x", cut), pb.ClassTransient, true},
		{"an update is forbidden", on("PATCH", "/configmaps/x", 403), pb.ClassFailed, true},
		{"one update is refused, another conflicts", func(r *http.Request) int {
			return on("PATCH", "/configmaps/x", 409)(r) + on("PATCH", "/configmaps/z", 422)(r)
		}, pb.ClassFailed, true},
		{"a hook cannot be made", on("POST", "/pods", 500), pb.ClassTransient, true},
		{"a hook is forbidden", on("POST", "/pods", 403), pb.ClassFailed, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			templates := files{"templates/x.yaml": note("x"), "templates/z.yaml": note("z")}
			w.done(w.deploy(pack(t, "1.0.0", templates)))
			templates["templates/hook.yaml"] = hook("web-after", "post-upgrade", "true")
			templates["templates/lookup.yaml"] = `{{ $found := lookup "v1" "ConfigMap" .Release.Namespace "looked-up" }}`
			w.through(func(r *http.Request) int {
				if strings.Contains(r.URL.Path, "/seatrial-quarantine") {
					return 0
				}
				return row.answer(r)
			})
			r := w.deploy(pack(t, "1.0.1", templates), withValues(t, map[string]any{"text": "new"}))
			f := w.failed(r, row.class)
			require.Equal(t, row.mutated, f.Mutated, "%v", f)
		})
	}
}

// Helm takes no notice when it cannot write its record at the end: it would stay pending for ever.
func TestARecordThatCannotBeWrittenAtOnceIsWrittenLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var refused atomic.Int32
	w.through(func(r *http.Request) int {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/secrets/sh.helm") && refused.Add(1) <= 3 {
			return http.StatusInternalServerError
		}
		return 0
	})
	w.done(w.deploy(pack(t, "1.0.0", files{"templates/x.yaml": note("x")})))
	require.Equal(t, []string{"1 deployed"}, w.statuses())
	require.EqualValues(t, 4, refused.Load())
}
