package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// ErrGateClosed is returned for a request that may not start: the lease behind the gate is not surely held any more, or
// the actor has no gate and may only read.
var ErrGateClosed = errors.New("the gate is closed")

// Gate says whether something may be changed now.
type Gate interface {
	// Check returns nil while a mutating request may start.
	Check() error
}

// CheckGate returns ErrGateClosed, with the gate's reason, unless a mutating request may start now. Nothing may without a
// gate.
func CheckGate(gate Gate) error {
	if gate == nil {
		return fault.New(seatrialv1.ClassInterrupted, "", "%w: read only", ErrGateClosed)
	}
	if err := gate.Check(); err != nil {
		return fault.New(seatrialv1.ClassInterrupted, "", "%w: %w", ErrGateClosed, err)
	}
	return nil
}

// gated is the transport of one actor. client-go sends every attempt through it, so a retry is checked as the first
// attempt is.
type gated struct {
	next    http.RoundTripper
	gate    Gate
	timeout time.Duration
}

func (g *gated) RoundTrip(request *http.Request) (*http.Response, error) {
	if !mutates(request) {
		return g.next.RoundTrip(request)
	}
	if err := CheckGate(g.gate); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeout(request.Context(), g.timeout)
	bounded := request.Clone(ctx)
	// The API server shall not go on longer either.
	if query := bounded.URL.Query(); !query.Has("timeout") {
		query.Set("timeout", g.timeout.String())
		bounded.URL.RawQuery = query.Encode()
	}
	response, err := g.next.RoundTrip(bounded)
	if err != nil {
		cancel()
		return nil, err
	}
	response.Body = &cancelling{ReadCloser: response.Body, cancel: cancel}
	return response, nil
}

// WrappedRoundTripper returns the transport behind the gate: client-go looks through to it.
func (g *gated) WrappedRoundTripper() http.RoundTripper { return g.next }

// cancelling ends a request's time-out when its answer is done with.
type cancelling struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelling) Close() error {
	defer c.cancel()
	return c.ReadCloser.Close()
}

// reviews are questions to the API server that are asked by POST.
var reviews = regexp.MustCompile(
	`/apis/(authorization\.k8s\.io/[^/]+/selfsubject(access|rules)reviews|authentication\.k8s\.io/[^/]+/selfsubjectreviews)$`)

// mutates says that a request may change something.
func mutates(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		return false
	default:
		return request.Method != http.MethodPost || !reviews.MatchString(request.URL.Path)
	}
}
