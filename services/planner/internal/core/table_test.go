package core

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"
)

// TestTable keeps the transitions as text, so that a change of them is read as one.
func TestTable(t *testing.T) {
	t.Parallel()
	const file = "testdata/table.golden"
	got := tableText()
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "go test -update writes what came out")
}

func tableText() []byte {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PHASE\tINPUT\tTRANSITION\tTHEN\tNOTE")
	for _, row := range table {
		phases := strings.Join(row.phases, ", ")
		switch len(row.phases) {
		case len(inAny):
			phases = "any"
		case len(inActive):
			phases = "any but idle"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", phases, row.on, row.name, strings.Join(row.then, ", "), row.note)
	}
	_ = w.Flush() // a bytes.Buffer takes everything
	lines := bytes.Split(b.Bytes(), []byte("\n"))
	for i, line := range lines {
		lines[i] = bytes.TrimRight(line, " ")
	}
	return bytes.Join(lines, []byte("\n"))
}

// TestNoDeadEnd shows that the table leads out of every phase.
func TestNoDeadEnd(t *testing.T) {
	t.Parallel()
	for _, phase := range inActive {
		require.True(t, slices.ContainsFunc(table, func(row transition) bool {
			return slices.Contains(row.phases, phase) && slices.Contains(row.then, settled)
		}), phase)
	}
}
