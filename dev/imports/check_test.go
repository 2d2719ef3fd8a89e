package main

import (
	"slices"
	"testing"
)

func TestCheck(t *testing.T) {
	g := graph{
		"./services/a":      {ours: true, code: []string{"context", "./services/a/app", "./kit"}},
		"./services/a/app":  {ours: true, code: []string{"./kit"}, tests: []string{"example.com/testing"}},
		"./services/b":      {ours: true, code: []string{"./services/a/app"}},
		"./kit":             {ours: true, code: []string{"example.com/light"}},
		"example.com/light": {code: []string{"example.com/heavy/sub"}},
	}
	for name, tc := range map[string]struct {
		rule rule
		want []string
	}{
		"not": {
			rule{of: []string{"./kit"}, not: []string{"example.com/light"}},
			[]string{"./kit -> example.com/light"},
		},
		"not names a package and nothing below it": {
			rule{of: []string{"./services/b"}, not: []string{"./services/a"}},
			nil,
		},
		"allow": {
			rule{of: []string{"./kit"}, not: []string{"example.com/..."}, allow: []string{"example.com/light"}},
			nil,
		},
		"except": {
			rule{of: []string{"./..."}, except: []string{"./services/..."}, not: []string{"./kit"}},
			nil,
		},
		"only leaves the standard library": {
			rule{of: []string{"./services/a"}, only: []string{"./kit"}},
			[]string{"./services/a -> ./services/a/app"},
		},
		"direct imports only": {
			rule{of: []string{"./..."}, not: []string{"example.com/heavy/..."}},
			nil,
		},
		"linked": {
			rule{of: []string{"./services/b"}, not: []string{"example.com/heavy/..."}, linked: true},
			[]string{"./services/b -> ./services/a/app -> ./kit -> example.com/light -> example.com/heavy/sub"},
		},
		"linked through a bound package": {
			rule{of: []string{"./..."}, not: []string{"example.com/heavy/..."}, linked: true},
			[]string{"./kit -> example.com/light -> example.com/heavy/sub"},
		},
		"tests are free": {
			rule{of: []string{"./..."}, not: []string{"example.com/testing"}},
			nil,
		},
		"tests": {
			rule{of: []string{"./..."}, not: []string{"example.com/testing"}, tests: true},
			[]string{"./services/a/app -> example.com/testing"},
		},
		"apart": {
			rule{of: []string{"./services/..."}, not: []string{"./services/..."}, apart: true},
			[]string{"./services/b -> ./services/a/app"},
		},
		"a folder that moved": {
			rule{of: []string{"./gone/..."}, not: []string{"./kit"}},
			[]string{"no package is in ./gone/..."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.rule.why = "why"
			for i := range tc.want {
				tc.want[i] += ": why"
			}
			if got := check(g, []rule{tc.rule}); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
