// Package chart fetches packaged charts, checks them, and says what stands in their Chart.yaml. It needs no cluster.
package chart

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Limits, in bytes.
const (
	// MaxArchive is the most that a packaged chart may have.
	MaxArchive = 10 << 20
	// MaxAnnotations is the most that the annotations of Chart.yaml may have, keys and values together: they travel in
	// every command, outcome and event.
	MaxAnnotations = 32 << 10

	// maxName bounds name, version and appVersion, which travel too.
	maxName = 256
	// maxReason bounds what is said about a chart that is refused: errors of its parsing quote it.
	maxReason = 1 << 10
)

// Archive is a packaged chart that can be deployed.
type Archive struct {
	// Data is the archive as it was packaged, and Digest sha256:<hex> of exactly these bytes.
	Data   []byte
	Digest string
	// Info is what Chart.yaml says, and the digest.
	Info *seatrialv1.ChartRevision
}

// Load checks a packaged chart, and keeps data. An error has the class rejected, and says what is wrong with the chart.
func Load(data []byte) (*Archive, error) {
	if len(data) > MaxArchive {
		return nil, refuse("keep large files out of it, with .helmignore", "the archive has %d bytes, the limit is %d", len(data), MaxArchive)
	}
	if err := checkUnpacked(data); err != nil {
		return nil, refuse("keep large files out of it, with .helmignore", "%w", err)
	}
	a := &Archive{Data: data, Digest: digestOf(data)}
	c, err := a.Chart()
	if err != nil {
		return nil, err
	}
	if err := check(c.Metadata); err != nil {
		return nil, err
	}
	a.Info = &seatrialv1.ChartRevision{
		Name: c.Metadata.Name, Version: c.Metadata.Version, AppVersion: c.Metadata.AppVersion,
		Digest: a.Digest, Annotations: c.Metadata.Annotations,
	}
	return a, nil
}

// Chart returns the chart, made anew each time: rendering changes it.
func (a *Archive) Chart() (*helmchart.Chart, error) {
	c, err := loader.LoadArchive(bytes.NewReader(a.Data))
	if err != nil {
		return nil, refuse("package the chart with `helm package`", "not a packaged chart: %w", err)
	}
	return c, nil
}

// check refuses what cannot be deployed or told about. Names, versions and the rest of Chart.yaml were validated by Helm.
func check(m *helmchart.Metadata) error {
	for _, field := range []struct{ name, value string }{
		{"name", m.Name}, {"version", m.Version}, {"appVersion", m.AppVersion},
	} {
		if len(field.value) > maxName {
			return refuse("shorten it", "Chart.yaml: %s has %d bytes, the limit is %d", field.name, len(field.value), maxName)
		}
	}
	if m.Type == "library" {
		return refuse("deploy a chart that uses it", "chart %s %s is a library: it has nothing to deploy by itself", m.Name, m.Version)
	}
	size := 0
	for key, value := range m.Annotations {
		size += len(key) + len(value)
	}
	if size > MaxAnnotations {
		return refuse("shorten the annotations in Chart.yaml",
			"chart %s %s: the annotations have %d bytes, the limit is %d", m.Name, m.Version, size, MaxAnnotations)
	}
	return nil
}

// refuse makes the error of a chart that can never be deployed as it is.
func refuse(next, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if text := err.Error(); len(text) > maxReason {
		return fault.New(seatrialv1.ClassRejected, next, "%s...", strings.ToValidUTF8(text[:maxReason], ""))
	}
	return fault.New(seatrialv1.ClassRejected, next, "%w", err)
}

// digestOf returns sha256:<hex> of data.
func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
