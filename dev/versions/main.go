// Versions checks that the modules of the workspace ask for one version of every dependency. A workspace builds with
// the highest version that any of its modules asks for: what they do not agree on would be tested in one version and
// released, module by module, in another.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The modules that Kubernetes releases together, such as k8s.io/api and k8s.io/client-go: v0.<minor of Kubernetes>.
// Those that live their own lives, such as k8s.io/utils, have v0.0.0 or v2.
var released = regexp.MustCompile(`^k8s\.io/[a-z-]+ v0\.[1-9]`)

func main() {
	problems, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func run() ([]string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.GoMod}}").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	wanted := map[string]map[string][]string{} // dependency -> version -> the modules that ask for it
	for file := range strings.FieldsSeq(string(out)) {
		out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
		if err != nil {
			return nil, fmt.Errorf("go mod edit -json %s: %w", file, err)
		}
		var mod struct {
			Require []struct{ Path, Version string }
		}
		if err := json.Unmarshal(out, &mod); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, r := range mod.Require {
			dependency := r.Path
			if released.MatchString(r.Path + " " + r.Version) {
				dependency = "Kubernetes (k8s.io)"
			}
			if wanted[dependency] == nil {
				wanted[dependency] = map[string][]string{}
			}
			wanted[dependency][r.Version] = append(wanted[dependency][r.Version], filepath.Dir(file))
		}
	}
	return disagreements(wanted), nil
}

func disagreements(wanted map[string]map[string][]string) []string {
	var found []string
	for _, dependency := range slices.Sorted(maps.Keys(wanted)) {
		if versions := wanted[dependency]; len(versions) > 1 {
			text := dependency + " is wanted in several versions (make fix-tidy takes the highest):"
			for _, v := range slices.Sorted(maps.Keys(versions)) {
				text += fmt.Sprintf("\n\t%s by %s", v, strings.Join(slices.Compact(versions[v]), ", "))
			}
			found = append(found, text)
		}
	}
	return found
}
