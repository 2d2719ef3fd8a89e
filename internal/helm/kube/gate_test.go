package kube

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// api is an API server that answers every request with answer, and remembers what was asked.
type api struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

func newAPI(t *testing.T, answer http.HandlerFunc) *api {
	t.Helper()
	a := &api{}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.requests = append(a.requests, r)
		a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		answer(w, r)
	}))
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

// client returns a client of the API server that acts on behalf of actor.
func (a *api) client(t *testing.T, actor Actor) *Client {
	t.Helper()
	return a.connect(t).As(actor)
}

// connect returns a client of the API server, as a kubeconfig file makes it.
func (a *api) connect(t *testing.T) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: secret-token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, a.URL, base64.StdEncoding.EncodeToString(ca)), 0o600))
	client, err := Connect(path)
	require.NoError(t, err)
	return client
}

// methods returns the methods of the requests that came through.
func (a *api) methods() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, r := range a.requests {
		all = append(all, r.Method)
	}
	return all
}

func empty(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }

// gate is a gate that is open for so many checks.
type gate struct{ open int }

var errLost = errors.New("the lease is lost")

func (g *gate) Check() error {
	if g.open--; g.open < 0 {
		return errLost
	}
	return nil
}

// mutations are the ways to change something.
var mutations = map[string]func(context.Context, kubernetes.Interface) error{
	"create": func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{}, metav1.CreateOptions{})
		return err
	},
	"update": func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("shop").Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
		return err
	},
	"patch": func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps("shop").Patch(ctx, "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
		return err
	},
	"delete": func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().ConfigMaps("shop").Delete(ctx, "a", metav1.DeleteOptions{})
	},
	"delete many": func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().ConfigMaps("shop").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	},
}

func TestNoMutatingRequestStartsOnceTheGateIsClosed(t *testing.T) {
	t.Parallel()
	for name, mutate := range mutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPI(t, empty)
			client := server.client(t, Actor{Gate: &gate{open: 1}, RequestTimeout: time.Minute}).Clientset
			require.NoError(t, mutate(t.Context(), client))
			require.Len(t, server.methods(), 1)

			err := mutate(t.Context(), client)

			require.ErrorIs(t, err, ErrGateClosed)
			require.ErrorIs(t, err, errLost)
			require.Equal(t, seatrialv1.ClassInterrupted, fault.Class(err))
			require.Len(t, server.methods(), 1, "it never reached the API server")
			_, err = client.CoreV1().ConfigMaps("shop").Get(t.Context(), "a", metav1.GetOptions{})
			require.NoError(t, err, "reading goes on")
		})
	}
}

func TestWithoutAGateAClientOnlyReads(t *testing.T) {
	t.Parallel()
	server := newAPI(t, empty)
	for who, client := range map[string]*Client{"as connected": server.connect(t), "as nobody": server.connect(t).As(Actor{})} {
		for name, mutate := range mutations {
			require.ErrorIs(t, mutate(t.Context(), client.Clientset), ErrGateClosed, "%s %s", name, who)
		}
		_, err := client.Clientset.CoreV1().ConfigMaps("shop").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	}
	require.Equal(t, []string{"GET", "GET"}, server.methods())
}

func TestQuestionsThatAreAskedByPostPassAClosedGate(t *testing.T) {
	t.Parallel()
	server := newAPI(t, empty)
	client := server.client(t, Actor{}).Clientset
	_, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"POST", "POST"}, server.methods())
}

func TestTheGateStandsBeforeEveryRetry(t *testing.T) {
	t.Parallel()
	for name, mutate := range mutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "0") // so client-go tries again, and again
				w.WriteHeader(http.StatusTooManyRequests)
			})
			const attempts = 3
			client := server.client(t, Actor{Gate: &gate{open: attempts}, RequestTimeout: time.Minute}).Clientset

			require.ErrorIs(t, mutate(t.Context(), client), ErrGateClosed)

			require.Len(t, server.methods(), attempts)
		})
	}
}

func TestTheGateStandsBeforeHelmsClientsToo(t *testing.T) {
	t.Parallel()
	server := newAPI(t, empty)
	client := server.client(t, Actor{Gate: &gate{}, RequestTimeout: time.Minute})
	wrapped, err := client.Wrap(func(next http.RoundTripper) http.RoundTripper { return next })
	require.NoError(t, err)
	for _, c := range []*Client{client, wrapped} {
		config, err := c.RESTClientGetter("shop").ToRESTConfig()
		require.NoError(t, err)
		clientset, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		for name, mutate := range mutations {
			require.ErrorIs(t, mutate(t.Context(), clientset), ErrGateClosed, name)
		}
	}
	require.Empty(t, server.methods())
}

func TestAMutatingRequestEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name  string
		begin http.HandlerFunc
	}{
		{"no answer", func(http.ResponseWriter, *http.Request) {}},
		{"an answer that does not end", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"metadata":`)
			_ = http.NewResponseController(w).Flush()
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				row.begin(w, r)
				<-r.Context().Done()
			})
			client := server.client(t, Actor{Gate: &gate{open: 10}, RequestTimeout: 50 * time.Millisecond}).Clientset

			err := mutations["patch"](t.Context(), client)

			require.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestTheAPIServerIsToldTheTimeoutToo(t *testing.T) {
	t.Parallel()
	server := newAPI(t, empty)
	client := server.client(t, Actor{Gate: &gate{open: len(mutations)}, RequestTimeout: 15 * time.Second}).Clientset
	for _, mutate := range mutations {
		require.NoError(t, mutate(t.Context(), client))
	}
	require.Len(t, server.requests, len(mutations))
	for _, request := range server.requests {
		require.Equal(t, "15s", request.URL.Query().Get("timeout"), request.Method)
	}
}

func TestReadingHasNoTimeout(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	server := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		<-released
		empty(w, r)
	})
	client := server.client(t, Actor{RequestTimeout: time.Nanosecond}).Clientset
	done := make(chan error)
	go func() {
		_, err := client.CoreV1().ConfigMaps("shop").Get(t.Context(), "a", metav1.GetOptions{})
		done <- err
	}()
	require.Eventually(t, func() bool { return len(server.methods()) == 1 }, time.Minute, time.Millisecond)
	close(released)
	require.NoError(t, <-done)
}

func TestRequestsSayOnWhoseBehalfTheyAreMade(t *testing.T) {
	t.Parallel()
	server := newAPI(t, empty)
	client := server.client(t, Actor{
		Service: "executor", Version: "v1.2.3", Number: 7, Fence: 42, Gate: &gate{open: 10}, RequestTimeout: time.Minute,
	})
	require.NoError(t, mutations["create"](t.Context(), client.Clientset))
	again := client.As(Actor{Service: "tester", Version: "v1.2.3", Number: 8, Fence: 43})
	_, err := again.Clientset.CoreV1().ConfigMaps("shop").Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	for i, agent := range []string{"seatrial-executor/v1.2.3 command/7 fence/42", "seatrial-tester/v1.2.3 command/8 fence/43"} {
		require.Equal(t, agent, server.requests[i].UserAgent())
		require.Equal(t, "Bearer secret-token", server.requests[i].Header.Get("Authorization"))
	}
}

func TestManyRequestsAreNotHeldBack(t *testing.T) {
	t.Parallel()
	config := newAPI(t, empty).client(t, Actor{}).Config
	require.Negative(t, config.QPS, "client-go's own limit, 5 a second, is off")
	require.Nil(t, config.RateLimiter)
}

func TestAllClientsOfAProcessAskForTheKindsOnce(t *testing.T) {
	t.Parallel()
	answers := map[string]string{
		"/api":    `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/apis":   `{"kind": "APIGroupList", "groups": []}`,
		"/api/v1": `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod", "namespaced": true}]}`,
	}
	server := newAPI(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, answers[r.URL.Path]) })
	client := server.connect(t)
	for number := range uint32(3) {
		mapper, err := client.As(Actor{Number: number}).RESTClientGetter("shop").ToRESTMapper()
		require.NoError(t, err)
		mapping, err := mapper.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1")
		require.NoError(t, err)
		require.Equal(t, "pods", mapping.Resource.Resource)
	}
	require.Len(t, server.methods(), len(answers))
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := Connect(filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "none: no such file or directory")
}

func TestMutates(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		method, path string
		want         bool
	}{
		{"GET", "/api/v1/pods", false},
		{"HEAD", "/api/v1/pods", false},
		{"OPTIONS", "/api/v1/pods", false},
		{"POST", "/api/v1/namespaces/a/pods", true},
		{"PUT", "/api/v1/namespaces/a/pods/b", true},
		{"PATCH", "/api/v1/namespaces/a/pods/b", true},
		{"DELETE", "/api/v1/namespaces/a/pods/b", true},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false},
		{"POST", "/behind/a/proxy/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", false},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", false},
		{"DELETE", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true},
		{"POST", "/apis/example.org/v1/selfsubjectaccessreviews", true},
		{"PROPFIND", "/api/v1/pods", true},
	} {
		request := httptest.NewRequest(row.method, row.path, nil)
		require.Equal(t, row.want, mutates(request), "%s %s", row.method, row.path)
	}
}
