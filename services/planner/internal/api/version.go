package api

import (
	"regexp"
	"strings"
)

var (
	// release is a version by semver.org, without build metadata.
	release  = regexp.MustCompile(`^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?$`)
	unfitted = regexp.MustCompile(`[^0-9A-Za-z-]+`)
)

// semver returns a program's version as micro services want it. A build that is no release is 0.0.0 with its name, such
// as 0.0.0+4f2a91c-dirty.
func semver(version string) string {
	if v := strings.TrimPrefix(version, "v"); release.MatchString(v) {
		return v
	}
	return "0.0.0+build-" + unfitted.ReplaceAllString(version, "-")
}
