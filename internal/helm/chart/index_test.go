package chart

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// helmIndex is what `helm repo index` of Helm 3.22 has written, and helmJSON the same with --json; shortened.
const (
	helmIndex = `apiVersion: v1
entries:
  other:
  - annotations:
      commit_sha: abc
    apiVersion: v2
    created: "2026-12-01T13:03:25.409902251Z"
    description: |-
      web:
      - version: 9.9.9
    name: other
    urls:
    - other-1.1.0.tgz
    version: 1.1.0
  web:
  - apiVersion: v2
    created: "2026-12-01T13:03:25.410595716Z"
    description: |-
      two

      lines
    digest: fa64eddd13cd090f5da6be822ceeb133145f6ebfa00f25c9964da0be298f7a0a
    name: web
    urls:
    - web-1.1.0.tgz
    version: 1.1.0
  - apiVersion: v2
    digest: 2a942c9b15bcc3d38dc726b3775201f887a7624d1d7655086636f4c405e53979
    name: web
    urls:
    - web-1.0.0.tgz
    version: 1.0.0
  zoo:
  - name: zoo
    version: 3.0.0
generated: "2026-12-01T13:03:25.405358901Z"
`
	helmJSON = `{
  "apiVersion": "v1",
  "entries": {
    "other": [{"name": "other", "version": "1.1.0", "urls": ["other-1.1.0.tgz"], "keywords": ["web", {"entries": []}]}],
    "web": [
      {"name": "web", "version": "1.1.0", "urls": ["web-1.1.0.tgz"], "digest": "fa64eddd13cd090f5da6be822ceeb133145f6ebfa00f25c9964da0be298f7a0a"},
      {"name": "web", "version": "1.0.0", "urls": ["web-1.0.0.tgz"], "digest": "2a942c9b15bcc3d38dc726b3775201f887a7624d1d7655086636f4c405e53979"}
    ],
    "zoo": null
  }
}`
)

// few are limits that a test reaches at once.
var few = limits{index: 1 << 20, json: 64 << 10, entries: 8 << 10}

func TestFindEntriesFindsTheVersionsOfOneChart(t *testing.T) {
	t.Parallel()
	web := []indexed{
		{Version: "1.1.0", URLs: []string{"web-1.1.0.tgz"}, Digest: "fa64eddd13cd090f5da6be822ceeb133145f6ebfa00f25c9964da0be298f7a0a"},
		{Version: "1.0.0", URLs: []string{"web-1.0.0.tgz"}, Digest: "2a942c9b15bcc3d38dc726b3775201f887a7624d1d7655086636f4c405e53979"},
	}
	one := []indexed{{Version: "1.0.0", URLs: []string{"a.tgz"}}}
	for _, row := range []struct {
		name, index, chart string
		found              []indexed
	}{
		{"as Helm writes it", helmIndex, "web", web},
		{"in JSON", helmJSON, "web", web},
		{"the last one", helmIndex, "zoo", []indexed{{Version: "3.0.0"}}},
		{"not there", helmIndex, "we", nil},
		{"not there, in JSON", helmJSON, "we", nil},
		{"with nothing, in JSON", helmJSON, "zoo", nil},
		{"on Windows", strings.ReplaceAll(helmIndex, "\n", "\r\n"), "web", web},
		{"without an end of the last line", "entries:\n  web:\n  - version: 1.0.0\n    urls: [a.tgz]", "web", one},
		{"with comments", "# charts\n---\nentries: # all\n# of web\n  web: # this\n# here\n    - version: 1.0.0\n      urls: [a.tgz]\n# the end\n", "web", one},
		{"in quotes", "\"entries\":\n    'web':\n    - {version: 1.0.0, urls: [a.tgz]}\n", "web", one},
		{"in a line of its own", "entries:\n  a: []\n  web: [{version: 1.0.0, urls: [a.tgz]}]\n  z: []\n", "web", one},
		{"behind other keys", "serverInfo:\n  entries:\n    web: []\nentries:\n  web:\n  - version: 1.0.0\n    urls: [a.tgz]\n", "web", one},
		{"behind a line that is longer than any buffer", "entries:\n  a:\n  - icon: " + strings.Repeat("web: ", 100<<10) + "\n  web:\n  - icon: " + strings.Repeat("x", 200<<10) + "\n    version: 1.0.0\n    urls: [a.tgz]\n", "web", one},
		{"without entries", "apiVersion: v1\nentries: {}\n", "web", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{strings.NewReader(row.index), iotest.HalfReader(strings.NewReader(row.index))} {
				found, err := findEntries(r, row.chart, indexLimits)
				require.NoError(t, err)
				require.Equal(t, row.found, found)
			}
		})
	}
}

func TestWhatComesBehindTheChartIsNotRead(t *testing.T) {
	t.Parallel()
	before, _, found := strings.Cut(helmIndex, "  zoo:")
	require.True(t, found)
	web, err := findEntries(io.MultiReader(strings.NewReader(before+"  zoo:\n"), iotest.ErrReader(errors.New("nobody needs it"))), "web", few)
	require.NoError(t, err)
	require.Len(t, web, 2)
}

func TestFindEntriesRefusesWhatIsNoIndex(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, index, says string }{
		{"nothing", "", "it has no entries"},
		{"a page", "<!doctype html>\n<html>\n", "it has no entries"},
		{"other JSON", `{"a": {"entries": {}}}`, "it has no entries"},
		{"broken JSON", `{"entries": {"a": [}`, "invalid character"},
		{"another type, in JSON", `{"entries": {"web": [{"version": 7}]}}`, "cannot unmarshal number"},
		{"another type", "entries:\n  web:\n  - version: [7]\n", "the index cannot be used"},
		{"one line", "entries: {web: [{version: 1.0.0}]}\n", "each chart in it must begin a line of its own"},
		{"too much of one chart", "entries:\n  web:\n" + strings.Repeat("  - version: 1.0.0\n", 1<<10), "the entries of web have more than 8192 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := findEntries(strings.NewReader(row.index), "web", few)
			require.ErrorIs(t, err, errIndex)
			require.ErrorContains(t, err, row.says)
		})
	}
	for _, part := range []string{helmIndex[:300], helmJSON[:100]} {
		away := errors.New("the server is away")
		_, err := findEntries(io.MultiReader(strings.NewReader(part), iotest.ErrReader(away)), "web", few)
		require.ErrorIs(t, err, away)
		require.NotErrorIs(t, err, errIndex)
	}
}

// repeating is a text that goes on for ever.
type repeating struct{ text, left []byte }

func (r *repeating) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		r.left = r.text
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

func TestAnIndexWithoutAnEndIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ begins, goesOn, says string }{
		{"entries:\n", strings.Repeat("  other:\n  - version: 1.0.0\n", 1<<10), "it has more than 1048576 bytes"},
		{"", "no line ends here ", "it has more than 1048576 bytes"},
		{`{"entries": {`, `"other": [], `, "in JSON it may have at most 65536 bytes"},
	} {
		_, err := findEntries(io.MultiReader(strings.NewReader(row.begins), &repeating{text: []byte(row.goesOn)}), "web", few)
		require.ErrorIs(t, err, errIndex)
		require.ErrorContains(t, err, row.says)
	}
}

// BenchmarkFindEntries looks for the last of many charts. It says what a repository of 64 MiB costs: see the bytes per
// operation, which a YAML parser has many times the size of the index.
func BenchmarkFindEntries(b *testing.B) {
	var index bytes.Buffer
	index.WriteString("apiVersion: v1\nentries:\n")
	for i := 0; index.Len() < 64<<20; i++ {
		fmt.Fprintf(&index, "  chart%06d:\n", i)
		for v := range 100 {
			fmt.Fprintf(&index, "  - apiVersion: v2\n    description: one of many charts that nobody asks for\n    name: chart%06d\n    urls:\n    - chart%06d-1.%d.0.tgz\n    version: 1.%d.0\n", i, i, v, v)
		}
	}
	index.WriteString("  web:\n  - version: 1.0.0\n")
	b.SetBytes(int64(index.Len()))
	b.ReportAllocs()
	for b.Loop() {
		found, err := findEntries(bytes.NewReader(index.Bytes()), "web", indexLimits)
		require.NoError(b, err)
		require.Len(b, found, 1)
	}
}
