// Package release reads Helm's records of releases, says what stands in them, and stamps those that are made.
package release

import (
	"context"
	"errors"
	"fmt"

	helmrelease "helm.sh/helm/v3/pkg/release"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

var (
	// ErrNotFound is returned for a revision that has no record: it never was, or it was pruned or uninstalled.
	ErrNotFound = errors.New("no such revision")

	// ErrCorrupt is returned for a record that cannot be read.
	ErrCorrupt = errors.New("corrupt record")
)

// Read returns the record of one revision of a release. It reads the one Secret, and writes nothing.
func Read(ctx context.Context, client kubernetes.Interface, namespace, name string, revision int) (*helmrelease.Release, error) {
	secret, err := client.CoreV1().Secrets(namespace).Get(ctx, key(name, revision), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("revision %d of release %s/%s: %w", revision, namespace, name, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("revision %d of release %s/%s: %w", revision, namespace, name, err)
	}
	rel, err := decode(secret.Data["release"])
	if err != nil {
		return nil, fmt.Errorf("revision %d of release %s/%s: Secret %s: %w: %w", revision, namespace, name, secret.Name, ErrCorrupt, err)
	}
	rel.Labels = secret.Labels
	return rel, nil
}

// Info says what chart a record was made from. The digest of its archive does not stand in a record.
func Info(rel *helmrelease.Release) *seatrialv1.ChartRevision {
	info := &seatrialv1.ChartRevision{HelmRevision: int32(rel.Version), ManifestDigest: ManifestDigest(rel)}
	if rel.Chart != nil && rel.Chart.Metadata != nil {
		info.Name = rel.Chart.Metadata.Name
		info.Version = rel.Chart.Metadata.Version
		info.AppVersion = rel.Chart.Metadata.AppVersion
		info.Annotations = rel.Chart.Metadata.Annotations
	}
	return info
}

func key(name string, revision int) string {
	return fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision)
}
