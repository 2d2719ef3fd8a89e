package release

import (
	"maps"
	"strconv"

	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"

	"github.com/seatrial/seatrial/internal/helm/kube"
)

// Labels of a stamp. Those of the objects of a test run are release, namespace, revision and number.
const (
	LabelNumber    = "seatrial.dev/number"
	LabelFence     = "seatrial.dev/fence"
	LabelRevision  = "seatrial.dev/revision"
	LabelRelease   = "seatrial.dev/release"
	LabelNamespace = "seatrial.dev/namespace"
)

// Stamp says by which command, under which fence, a record was made.
type Stamp struct {
	Number uint32
	Fence  uint64
	// Revision is the record's that the stamp was made for.
	Revision int
}

// StampOf returns the stamp of a record. A stamp that was made for another revision is none: an upgrade inherits the
// labels of the record before it, and a rollback those of its target.
func StampOf(rel *helmrelease.Release) (Stamp, bool) {
	number, errNumber := strconv.ParseUint(rel.Labels[LabelNumber], 10, 32)
	fence, errFence := strconv.ParseUint(rel.Labels[LabelFence], 10, 64)
	revision, errRevision := strconv.Atoi(rel.Labels[LabelRevision])
	if errNumber != nil || errFence != nil || errRevision != nil || revision != rel.Version {
		return Stamp{}, false
	}
	return Stamp{Number: uint32(number), Fence: fence, Revision: revision}, true
}

// NewDriver returns a storage driver that writes through inner: only while the gate lets it, and with the stamp on each
// record that it creates, whose revision it fills in. Records that exist keep the stamp that they have.
func NewDriver(inner driver.Driver, gate kube.Gate, stamp Stamp) driver.Driver {
	return &stamping{Driver: inner, gate: gate, stamp: stamp}
}

type stamping struct {
	driver.Driver
	gate  kube.Gate
	stamp Stamp
}

func (s *stamping) Create(key string, rel *helmrelease.Release) error {
	if err := kube.CheckGate(s.gate); err != nil {
		return err
	}
	// The map may be that of another record.
	labels := maps.Clone(rel.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelNumber] = strconv.FormatUint(uint64(s.stamp.Number), 10)
	labels[LabelFence] = strconv.FormatUint(s.stamp.Fence, 10)
	labels[LabelRevision] = strconv.Itoa(rel.Version)
	rel.Labels = labels
	return s.Driver.Create(key, rel)
}

func (s *stamping) Update(key string, rel *helmrelease.Release) error {
	if err := kube.CheckGate(s.gate); err != nil {
		return err
	}
	return s.Driver.Update(key, rel)
}

func (s *stamping) Delete(key string) (*helmrelease.Release, error) {
	if err := kube.CheckGate(s.gate); err != nil {
		return nil, err
	}
	return s.Driver.Delete(key)
}
