package kube

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Class returns the class of an error by what the API server, the way to it, or the gate said, and "" for an error in
// whose tree none of them is.
func Class(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Class
	}
	if errors.Is(err, ErrGateClosed) || errors.Is(err, context.Canceled) {
		return seatrialv1.ClassInterrupted
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return classOfStatus(err, int(status.Status().Code))
	}
	if meta.IsNoMatchError(err) {
		return seatrialv1.ClassFailed
	}
	_, isURL := errors.AsType[*url.Error](err)
	_, isNet := errors.AsType[net.Error](err)
	if isURL || isNet || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return seatrialv1.ClassTransient
	}
	return ""
}

// classOfStatus: the API server's own troubles and conflicts pass; what it refuses, it will refuse again.
func classOfStatus(err error, code int) string {
	switch {
	case apierrors.IsAlreadyExists(err):
		return seatrialv1.ClassFailed
	case apierrors.IsConflict(err), apierrors.IsTooManyRequests(err), apierrors.IsTimeout(err),
		apierrors.IsUnauthorized(err), // the executor's credentials, not the chart's fault
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		code == 0, code >= http.StatusInternalServerError && code != http.StatusNotImplemented:
		return seatrialv1.ClassTransient
	default:
		return seatrialv1.ClassFailed
	}
}
