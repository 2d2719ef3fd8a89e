package chart

import (
	"fmt"
	"regexp"

	"github.com/Masterminds/semver/v3"
)

// maxVersion bounds the text of a version or a range, in bytes.
const maxVersion = 256

// CheckVersion returns what is wrong with the version that a request wants.
func CheckVersion(text string) error {
	_, err := want(text)
	return err
}

// wanted is what a request says about the version of a chart: one exact version, or the newest of a range.
type wanted struct {
	exact *semver.Version
	among *semver.Constraints
}

// exactForm is a whole version; `1.4` is a range, as in Helm.
var exactForm = regexp.MustCompile(`^v?\d+\.\d+\.\d+([-+].*)?$`)

// want reads a version, a range, or an empty text: any version that is no pre-release.
func want(text string) (wanted, error) {
	const form = "must be a version such as 1.4.2, or a range such as 1.4.x, ~1.4.2 or >=1.4.0 <2.0.0"
	if len(text) > maxVersion {
		return wanted{}, fmt.Errorf("%s, of at most %d bytes", form, maxVersion)
	}
	if exactForm.MatchString(text) {
		v, err := semver.NewVersion(text)
		if err != nil {
			return wanted{}, fmt.Errorf("%s: %w", form, err)
		}
		return wanted{exact: v}, nil
	}
	if text == "" {
		text = "*"
	}
	c, err := semver.NewConstraint(text)
	if err != nil {
		return wanted{}, fmt.Errorf("%s: %w", form, err)
	}
	return wanted{among: c}, nil
}

// has says whether v is wanted. Versions that differ in what follows a `+` are equal in a range, but not the same version.
func (w wanted) has(v *semver.Version) bool {
	if w.exact != nil {
		return v.Equal(w.exact) && v.Metadata() == w.exact.Metadata()
	}
	return w.among.Check(v)
}

// newest looks for the newest wanted version among those that it is shown.
type newest struct {
	wanted wanted
	found  *semver.Version
	// shown counts versions, and pre those of them that are pre-releases.
	shown, pre int
}

// show says whether text is a wanted version, and newer than all before. Which one of several that differ only in what
// follows a `+` is the newest nobody can say: it is always the same one.
func (n *newest) show(text string) bool {
	if !exactForm.MatchString(text) {
		return false
	}
	v, err := semver.NewVersion(text)
	if err != nil {
		return false
	}
	n.shown++
	if v.Prerelease() != "" {
		n.pre++
	}
	if !n.wanted.has(v) {
		return false
	}
	if n.found != nil {
		if order := v.Compare(n.found); order < 0 || order == 0 && v.Metadata() <= n.found.Metadata() {
			return false
		}
	}
	n.found = v
	return true
}

// none is the error where no version was wanted. what names the chart, text is what the request wants.
func (n *newest) none(what, text string) error {
	switch {
	case n.shown == 0:
		return refuse("check the name of the chart", "%s has no versions", what)
	case text == "" && n.pre == n.shown:
		return refuse("name one in chart.version, or a range that includes them, such as >0.0.0-0", "%s has only pre-releases", what)
	default:
		return refuse("correct chart.version; a range has pre-releases in it only if it names one, such as >=1.4.0-0",
			"%s has no version %q among the %d that there are", what, text, n.shown)
	}
}

// sameVersion says whether two texts are one version.
func sameVersion(a, b string) bool {
	v, err := semver.NewVersion(a)
	if err != nil {
		return a == b
	}
	w, err := semver.NewVersion(b)
	return err == nil && v.Equal(w)
}
