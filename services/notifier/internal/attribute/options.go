package attribute

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
)

// Options are what an operator may set. The zero value maps every annotation by the rules.
type Options struct {
	// Aliases are attribute names by annotation key. They pass the allow list and get no prefix.
	Aliases map[string]string
	// AliasesOnly leaves out every annotation without an alias: for charts that are not trusted.
	AliasesOnly bool
	// Allow are patterns of annotation keys, in which * stands for anything but a slash. If there are any, other
	// annotations are left out.
	Allow []string
	// Deny are patterns of annotation keys that are left out, whatever else is set.
	Deny []string
	// Prefix stands before each name that is made of a key.
	Prefix string
}

// ErrOptions is wrapped by the errors of Validate.
var ErrOptions = errors.New("wrong mapping of annotations")

// Validate reports all that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
	}
	keys := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(o.Aliases)) {
		name := o.Aliases[key]
		if name == "" || lettersAndDigits(name) != name {
			wrong("alias %q of annotation %q: want lower-case letters and digits", name, key)
		} else if reason := checkName(name); reason != "" {
			wrong("alias %q of annotation %q: %s", name, key, reason)
		}
		if first, taken := keys[name]; taken {
			wrong("alias %q stands for both annotations %q and %q", name, first, key)
		}
		keys[name] = key
	}
	for _, pattern := range slices.Concat(o.Allow, o.Deny) {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			wrong("pattern %q of annotation keys is malformed", pattern)
		}
	}
	if lettersAndDigits(o.Prefix) != o.Prefix || len(o.Prefix) >= MaxName {
		wrong("prefix %q: want at most %d lower-case letters and digits", o.Prefix, MaxName-1)
	} else if o.Prefix != "" && (o.Prefix[0] < 'a' || o.Prefix[0] > 'z') {
		wrong("prefix %q: does not start with a letter", o.Prefix)
	}
	return errors.Join(errs...)
}

// matches says whether one of the patterns matches key.
func matches(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, key)
		return ok && err == nil
	})
}
