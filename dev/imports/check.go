package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// rule says what some packages must not import. A pattern is an import path, or one that ends in /... for it and all
// below it. Our own packages start with a dot: ./internal/kit.
type rule struct {
	why    string
	of     []string // the packages that it binds ...
	except []string // ... but for these

	not   []string // what they must not import ...
	allow []string // ... but for these
	only  []string // or: all that they may import besides the standard library

	linked bool // it binds what they import through others too
	tests  bool // it binds what their tests import too
	apart  bool // it binds neighbours: a package may import what lies in its own folder of the parent, as ./services/planner
}

// graph is what each package imports.
type graph map[string]pkg

type pkg struct {
	ours        bool
	code, tests []string
}

// check returns what breaks a rule, in words. A rule that binds nothing is broken too: the folder that it names has moved.
func check(g graph, rules []rule) []string {
	var found []string
	for _, r := range rules {
		bound := false
		for _, from := range slices.Sorted(maps.Keys(g)) {
			if !r.binds(g, from) {
				continue
			}
			bound = true
			for _, chain := range r.broken(g, from) {
				found = append(found, strings.Join(chain, " -> ")+": "+r.why)
			}
		}
		if !bound {
			found = append(found, fmt.Sprintf("no package is in %s: %s", strings.Join(r.of, ", "), r.why))
		}
	}
	return found
}

func (r rule) binds(g graph, importPath string) bool {
	return g[importPath].ours && matches(r.of, importPath) && !matches(r.except, importPath)
}

// broken returns the chain of imports that leads to each forbidden package. A chain ends where another package is
// bound: that one answers for itself.
func (r rule) broken(g graph, from string) [][]string {
	var found [][]string
	seen := map[string]bool{from: true}
	for queue := [][]string{{from}}; len(queue) > 0; queue = queue[1:] {
		chain := queue[0]
		imports := g[chain[len(chain)-1]].code
		if len(chain) == 1 && r.tests {
			imports = slices.Concat(imports, g[from].tests)
		}
		for _, to := range imports {
			if seen[to] {
				continue
			}
			seen[to] = true
			longer := append(slices.Clone(chain), to)
			if r.forbids(from, to) {
				found = append(found, longer)
			} else if r.linked && !r.binds(g, to) {
				queue = append(queue, longer)
			}
		}
	}
	return found
}

func (r rule) forbids(from, to string) bool {
	switch {
	case r.only != nil:
		return !standard(to) && !matches(r.only, to)
	case r.apart && folder(from) == folder(to):
		return false
	default:
		return matches(r.not, to) && !matches(r.allow, to)
	}
}

func matches(patterns []string, importPath string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		parent, below := strings.CutSuffix(pattern, "/...")
		return importPath == parent || below && strings.HasPrefix(importPath, parent+"/")
	})
}

// standard knows the standard library by its first element, which has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// folder returns the first two elements below the root: ./services/planner.
func folder(importPath string) string {
	elements := strings.Split(importPath, "/")
	return path.Join(elements[:min(3, len(elements))]...)
}
