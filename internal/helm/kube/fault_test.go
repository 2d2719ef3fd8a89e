package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seatrial/seatrial/internal/kit/fault"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestClass(t *testing.T) {
	t.Parallel()
	gr, gk := schema.GroupResource{Resource: "configmaps"}, schema.GroupKind{Kind: "ConfigMap"}
	terminating := apierrors.NewForbidden(gr, "x", errors.New("is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, row := range []struct {
		name string
		err  error
		want string
	}{
		{"conflict", apierrors.NewConflict(gr, "x", errors.New("changed")), pb.ClassTransient},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), pb.ClassTransient},
		{"internal error", apierrors.NewInternalError(errors.New("etcd")), pb.ClassTransient},
		{"unavailable", apierrors.NewServiceUnavailable("starting"), pb.ClassTransient},
		{"time-out", apierrors.NewTimeoutError("slow", 1), pb.ClassTransient},
		{"credentials expired", apierrors.NewUnauthorized("who"), pb.ClassTransient},
		{"namespace terminating", terminating, pb.ClassTransient},
		{"connection refused", &url.Error{Op: "Get", URL: "https://x", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, pb.ClassTransient},
		{"connection cut", fmt.Errorf("read: %w", io.ErrUnexpectedEOF), pb.ClassTransient},
		{"forbidden", apierrors.NewForbidden(gr, "x", errors.New("no right")), pb.ClassFailed},
		{"invalid", apierrors.NewInvalid(gk, "x", field.ErrorList{field.Forbidden(field.NewPath("spec"), "immutable")}), pb.ClassFailed},
		{"exists", apierrors.NewAlreadyExists(gr, "x"), pb.ClassFailed},
		{"not found", apierrors.NewNotFound(gr, "x"), pb.ClassFailed},
		{"unknown kind", &meta.NoKindMatchError{GroupKind: gk}, pb.ClassFailed},
		{"gate", CheckGate(nil), pb.ClassInterrupted},
		{"gate, behind a request", &url.Error{Op: "Post", URL: "https://x", Err: CheckGate(nil)}, pb.ClassInterrupted},
		{"cancelled", &url.Error{Op: "Get", URL: "https://x", Err: context.Canceled}, pb.ClassInterrupted},
		{"classed before", fault.New(pb.ClassBlocked, "", "%w", apierrors.NewConflict(gr, "x", errors.New("changed"))), pb.ClassBlocked},
		{"unknown", errors.New("template: no"), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, Class(row.err))
			require.Equal(t, row.want, Class(fmt.Errorf("upgrade: %w", row.err)), "wrapped")
		})
	}
}
