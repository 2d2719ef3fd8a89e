package helmtest
import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)
func TestMeasure(t *testing.T) {
	cfg, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(t))
	require.NoError(t, err)
	rt, err := rest.TransportFor(cfg)
	require.NoError(t, err)
	u, _ := url.Parse(cfg.Host)
	var mu sync.Mutex
	var seen []string
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(u) }, Transport: rt,
		ModifyResponse: func(r *http.Response) error { return nil }}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b := time.Now()
		proxy.ServeHTTP(w, r)
		mu.Lock(); seen = append(seen, fmt.Sprintf("%s %s %s %v", r.Method, r.URL, r.UserAgent(), time.Since(b))); mu.Unlock()
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	path := t.TempDir() + "/k"
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n", s.URL, base64.StdEncoding.EncodeToString(ca)), 0o600))
	t.Setenv("KUBECONFIG", path)
	c := Connect(t)
	ns := Namespace(t, c)
	for i := range 3 {
		mu.Lock(); seen = nil; mu.Unlock()
		b := time.Now()
		Deploy(t, c, ns, "shop", Web(fmt.Sprintf("1.%d.0", i), WithValues(map[string]any{"page": fmt.Sprint(i)})))
		fmt.Println("deploy", i, time.Since(b))
		for _, l := range seen { fmt.Println("   ", l) }
	}
}
