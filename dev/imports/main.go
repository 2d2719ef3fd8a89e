// Imports checks who imports whom. The compiler refuses only cycles and foreign internal packages; the rest of the
// architecture is the table in rules.go.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

func main() {
	g, err := load()
	if err != nil {
		fmt.Fprintln(os.Stderr, "imports:", err)
		os.Exit(1)
	}
	violations := check(g, rules)
	for _, v := range violations {
		fmt.Fprintln(os.Stderr, v)
	}
	if len(violations) > 0 {
		os.Exit(1)
	}
}

// load lists the workspace's packages and all that they link. The modules agree on the version of everything (see
// dev/versions), so this is also what each of them links when it is built on its own.
func load() (graph, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,DepOnly,Imports,TestImports,XTestImports", "work")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	out = bytes.ReplaceAll(out, []byte(`"github.com/seatrial/seatrial/`), []byte(`"./`)) // as the rules write it
	g := graph{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath                         string
			DepOnly                            bool
			Imports, TestImports, XTestImports []string
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return g, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		g[p.ImportPath] = pkg{ours: !p.DepOnly, code: p.Imports, tests: slices.Concat(p.TestImports, p.XTestImports)}
	}
}
