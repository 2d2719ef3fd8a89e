package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// maxStatus bounds how much of a refusal is read; maxSecrets bounds the answers in which Secrets are looked for.
const (
	maxStatus  = 64 << 10
	maxSecrets = 16 << 20
)

// observer sees the answers to all requests of one Helm action. Helm turns the errors of an update and of a template's
// lookup into text: their class is kept here. And the values of every Secret that comes by, which a template may put
// anywhere, become known to the redactor.
type observer struct {
	redactor *Redactor

	mu   sync.Mutex
	seen map[string]bool // classes
}

// worst returns the class of the errors since the last call: that of a refusal before that of a passing trouble, and ""
// when there was none.
func (o *observer) worst() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	for _, class := range []string{seatrialv1.ClassInterrupted, seatrialv1.ClassFailed, seatrialv1.ClassTransient} {
		if seen[class] {
			return class
		}
	}
	return ""
}

func (o *observer) note(class string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	o.seen[class] = true
}

// wrap observes the requests of a transport.
func (o *observer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			if class := Class(err); class != "" && request.Context().Err() == nil {
				o.note(class)
			}
			return response, err
		}
		reads := request.Method == http.MethodGet
		switch {
		case response.StatusCode >= http.StatusBadRequest:
			// That something is not there is an answer, not an error.
			if class := Class(refusal(request, response)); class == seatrialv1.ClassTransient || !reads {
				o.note(class)
			}
		case reads && readsSecrets(request):
			o.learn(response)
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// refusal returns a refusing answer as the error that it is. The answer can be read again.
func refusal(request *http.Request, response *http.Response) error {
	var status metav1.Status
	if data := peek(response, maxStatus); json.Unmarshal(data, &status) == nil && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return apierrors.NewGenericServerResponse(response.StatusCode, request.Method, schema.GroupResource{}, "", "", 0, false)
}

// readsSecrets says that a request reads Secrets other than Helm's records.
func readsSecrets(request *http.Request) bool {
	path, query := request.URL.Path, request.URL.Query()
	return strings.HasPrefix(path, "/api/v1/") && (strings.HasSuffix(path, "/secrets") || strings.Contains(path, "/secrets/")) &&
		!strings.Contains(path, "/sh.helm.release.v1.") && !strings.Contains(query.Get("labelSelector"), "owner=helm") &&
		query.Get("watch") == ""
}

// learn makes the Secrets of an answer known: one, or a list.
func (o *observer) learn(response *http.Response) {
	var answer struct {
		corev1.Secret
		Items []corev1.Secret `json:"items"`
	}
	if json.Unmarshal(peek(response, maxSecrets), &answer) != nil {
		return
	}
	o.redactor.AddSecret(&answer.Secret)
	for i := range answer.Items {
		o.redactor.AddSecret(&answer.Items[i])
	}
}

// peek returns the beginning of the body, which can be read again.
func peek(response *http.Response, most int64) []byte {
	data, err := io.ReadAll(io.LimitReader(response.Body, most))
	rest := response.Body
	again := io.MultiReader(bytes.NewReader(data), rest)
	if err != nil {
		again = io.MultiReader(bytes.NewReader(data), failing{fmt.Errorf("read the answer: %w", err)})
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{again, rest}
	return data
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
