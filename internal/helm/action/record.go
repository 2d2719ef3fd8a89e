package action

import (
	"cmp"
	"context"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"maps"
	"strings"
	"time"

	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"

	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/helm/release"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Labels of a record, besides its stamp: what is needed to tell its outcome again after a crash. They count where the
// stamp counts.
const (
	// labelChart is the digest of the chart's archive, labelInputs the quarantine key, both as label values.
	labelChart  = "seatrial.dev/chart"
	labelInputs = "seatrial.dev/inputs"
	// labelClass is the class of the failure of a failed record.
	labelClass = "seatrial.dev/class"
	// labelUninstall is the number of the command that uninstalls a record's release.
	labelUninstall = "seatrial.dev/uninstall"
)

// records is the storage driver of one operation. The creation of its record is the last moment before anything in the
// release is mutated, and the first at which all is known that will be.
type records struct {
	driver.Driver

	// admit decides whether the release may be carried out as it was rendered.
	admit func(*helmrelease.Release) error
	// labels are put on the record that is made; an empty one is taken off.
	labels map[string]string
	// updated are put on the record that is written again.
	updated map[string]string
	// unfinished returns why a record must not be written as uninstalled, nil if it may. Helm would do so in any case.
	unfinished func() error
	// class returns the class of what has gone wrong, redact strikes Secrets' values out of what is written about it.
	class  func() string
	redact func(string) string
	// ctx is the command's: when it ends, a write that failed is not tried again.
	ctx context.Context

	made   *helmrelease.Release
	stored helmrelease.Status // as it was written last
	err    error              // of the last write
}

// Create makes the record of the operation, if it may go on.
func (r *records) Create(key string, rel *helmrelease.Release) error {
	if err := r.admit(rel); err != nil {
		return err
	}
	rel.Labels = labelled(rel.Labels, r.labels)
	if err := r.Driver.Create(key, rel); err != nil {
		return err
	}
	r.made, r.stored = rel, rel.Info.Status
	return nil
}

// Update writes a record again. What cannot be written now is tried again for a while: Helm takes no notice of most of
// these errors, and a record that says `pending` would stay behind.
func (r *records) Update(key string, rel *helmrelease.Release) error {
	if rel.Info.Status == helmrelease.StatusFailed && r.class != nil {
		rel.Info.Description = r.redact(rel.Info.Description)
		rel.Labels = labelled(rel.Labels, map[string]string{labelClass: cmp.Or(r.class(), seatrialv1.ClassFailed)})
	}
	if r.updated != nil {
		rel.Labels = labelled(rel.Labels, r.updated)
	}
	if r.unfinished != nil && rel.Info.Status == helmrelease.StatusUninstalled {
		if r.err = r.unfinished(); r.err != nil {
			return r.err
		}
	}
	err := r.Driver.Update(key, rel)
	for pause := 100 * time.Millisecond; err != nil && kube.Class(err) == seatrialv1.ClassTransient && pause < 5*time.Second; pause *= 2 {
		select {
		case <-time.After(pause):
		case <-r.ctx.Done():
			return err
		}
		err = r.Driver.Update(key, rel)
	}
	if rel.Info.Status == helmrelease.StatusUninstalled {
		r.err = err
	}
	if r.made != nil && rel.Version == r.made.Version {
		r.err = err
		if err == nil {
			r.stored = rel.Info.Status
		}
	}
	return err
}

// labelled returns labels with those of more, without the empty ones.
func labelled(labels, more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, labels)
	maps.Copy(all, more)
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// history returns the records of a release, oldest first. That there are none is no error.
func history(s *storage.Storage, name string) ([]*helmrelease.Release, error) {
	records, err := s.History(name)
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, err
	}
	releaseutil.SortByRevision(records)
	return records, nil
}

// prune deletes the oldest records over the limit. Kept are, besides the newest, what is deployed, and the revision that
// is proven: it must be there to be gone back to. Helm's own pruning would delete that.
func (op *operation) prune() {
	limit := int(op.upgrade.GetMaxHistory())
	if limit <= 0 {
		return
	}
	proven := int(op.Command.GetProven().GetContent().GetHelmRevision())
	over := len(op.history) + 1 - limit
	for _, rel := range op.history {
		if over <= 0 {
			return
		}
		if rel.Version == proven || rel.Info.Status == helmrelease.StatusDeployed {
			continue
		}
		if _, err := op.storage.Delete(rel.Name, rel.Version); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
			op.log.Warn("an old record was not deleted, the next action will try again",
				"revision", rel.Version, "error", op.redactor.Redact(err.Error()))
		}
		over--
	}
}

// base32Label writes bytes as a label value: 32 of them would not fit as hex.
var base32Label = base32.HexEncoding.WithPadding(base32.NoPadding)

// chartLabel returns a chart's digest as a label value.
func chartLabel(digest string) string {
	sum, err := hex.DecodeString(strings.TrimPrefix(digest, "sha256:"))
	if err != nil {
		return ""
	}
	return strings.ToLower(base32Label.EncodeToString(sum))
}

// chartDigest returns the digest of the archive that a record was made from, empty where it is not known.
func chartDigest(rel *helmrelease.Release) string {
	sum, err := base32Label.DecodeString(strings.ToUpper(rel.Labels[labelChart]))
	if err != nil || len(sum) == 0 {
		return ""
	}
	return "sha256:" + hex.EncodeToString(sum)
}

// stampedBy says that a record was made by the command of that number.
func stampedBy(rel *helmrelease.Release, number uint32) bool {
	stamp, ok := release.StampOf(rel)
	return ok && stamp.Number == number
}
