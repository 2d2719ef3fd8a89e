package action

import (
	"slices"
	"strings"

	helmrelease "helm.sh/helm/v3/pkg/release"

	"github.com/seatrial/seatrial/internal/helm/release"
	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// MaxRecord is the most that a release's record may have, in bytes: what a Secret can hold, less some room for what
// Helm adds later, times of hooks and the description of a failure.
const MaxRecord = maxSecret - 16<<10

// maxSecret is Kubernetes' limit for the data of a Secret.
const maxSecret = 1 << 20

// admit checks a release as it was rendered, before anything of it is mutated. Values, templates, schema and the
// ownership of existing objects were checked by Helm before.
func (op *operation) admit(rel *helmrelease.Release, tests *seatrialv1.TestOptions) error {
	op.redactor.AddManifest(rel.Manifest)
	for _, hook := range rel.Hooks {
		op.redactor.AddManifest(hook.Manifest)
	}
	op.result.Mutation.Tests = int32(release.CountTests(rel))
	if err := checkFilters(rel, tests); err != nil {
		return err
	}
	return checkSize(rel)
}

// checkFilters refuses a test's name that the chart does not have: Helm would ignore it, and run everything or nothing.
func checkFilters(rel *helmrelease.Release, tests *seatrialv1.TestOptions) error {
	if tests != nil && tests.Enabled != nil && !tests.GetEnabled() {
		return nil
	}
	var known []string
	for _, hook := range release.TestHooks(rel) {
		if release.IsTest(hook) {
			known = append(known, hook.Name)
		}
	}
	for _, name := range slices.Concat(tests.GetFilters().GetName(), tests.GetFilters().GetNotName()) {
		if !slices.Contains(known, name) {
			list := "none"
			if len(known) > 0 {
				list = strings.Join(known, ", ")
			}
			return fault.New(seatrialv1.ClassFailed, "name one of the chart's tests in test.filters",
				"unknown test %q in test.filters; known: %s", name, list)
		}
	}
	return nil
}

// checkSize refuses a record that no Secret can hold: it would fail at its creation, after definitions and namespace, or
// at its next update, with everything applied.
func checkSize(rel *helmrelease.Release) error {
	size, err := release.EncodedSize(rel)
	if err != nil {
		return fault.New(seatrialv1.ClassFailed, "", "%w", err)
	}
	if size > MaxRecord {
		return fault.New(seatrialv1.ClassFailed, "make the chart smaller: large files belong into an image or a volume",
			"the release's record would have %d bytes, the limit is %d (a Secret's %d, less room for what Helm adds)", size, MaxRecord, maxSecret)
	}
	return nil
}
