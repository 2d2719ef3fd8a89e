package test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

var update = flag.Bool("update", false, "write the scenarios' outcomes as they were seen")

// charts are what scenarios can deploy, by name. Each is packed once: its digest is part of what is remembered.
var charts = map[string][]byte{
	"good-1.0.0":    helmtest.Web("1.0.0", helmtest.WithAnnotations(map[string]string{"commit_sha": "4f2a91c07e6b"})),
	"good-2.0.0":    helmtest.Web("2.0.0", helmtest.WithValues(map[string]any{"page": "two"})),
	"failing-1.1.0": helmtest.Web("1.1.0", helmtest.WithValues(map[string]any{"page": "eleven"}), helmtest.WithTest("smoke", "echo the page is gone; exit 3")),
	"mixed-1.2.0": helmtest.Web("1.2.0",
		helmtest.WithTest("a-fails", "exit 1"), helmtest.WithTest("b-passes", "true", helmtest.Weight(1)), helmtest.WithFixture("fixture")),
	"bare-1.3.0":       helmtest.Web("1.3.0", helmtest.WithoutTests()),
	"stuck-1.4.0":      helmtest.Web("1.4.0", helmtest.NeverReady()),
	"unpullable-1.5.0": helmtest.Web("1.5.0", helmtest.WithTest("smoke", "true", helmtest.Image("registry.invalid/missing:1"))),
	"job-1.6.0":        helmtest.Web("1.6.0", helmtest.WithoutTests(), helmtest.WithTestJob("job", "echo from the job; exit 1")),
}

// TestScenarios plays the files of testdata. A line that begins in its first column is a request, by the API:
//
//	<verb> [<chart>] [<body as JSON>]
//
// and the indented lines below it are the outcomes about that request, in their order. Each file has a release of its
// own. go test -update writes what was seen.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	w := start(t, nil)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			played := (&world{t: t, sys: w.sys, client: w.client}).with(w).play(string(text))
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(played), 0o600))
				return
			}
			require.Equal(t, string(text), played)
		})
	}
}

// with watches what another world of the same system sees.
func (w *world) with(other *world) *world {
	other.t = w.t
	return other
}

// play carries out the requests of a scenario, and returns it with the outcomes that were seen.
func (w *world) play(text string) string {
	w.t.Helper()
	r := w.release()
	var played strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, " "): // what was seen before
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			played.WriteString(line)
		default:
			played.WriteString(line)
			request := w.request(r, strings.TrimSpace(line))
			w.settled(request)
			for _, o := range inOrder(w.about(request)) {
				fmt.Fprintf(&played, "  %s\n", strings.ReplaceAll(tell(o), r.Namespace, "NAMESPACE"))
			}
		}
	}
	return played.String()
}

// inOrder puts each command before what its worker said: the worker may be quicker than the planner's word about it.
func inOrder(outcomes []*seatrialv1.Outcome) []*seatrialv1.Outcome {
	slices.SortStableFunc(outcomes, func(a, b *seatrialv1.Outcome) int {
		if a.GetNumber() != b.GetNumber() || a.GetKind() == b.GetKind() || a.GetNumber() == 0 {
			return 0
		}
		switch seatrialv1.KindCommanded {
		case a.GetKind():
			return -1
		case b.GetKind():
			return 1
		}
		return 0
	})
	return outcomes
}

// request sends the request of a scenario's line.
func (w *world) request(r subject.Release, line string) string {
	w.t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	body := map[string]any{}
	if i := strings.IndexByte(rest, '{'); i >= 0 {
		require.NoError(w.t, json.Unmarshal([]byte(rest[i:]), &body), line)
		rest = rest[:i]
	}
	if verb == seatrialv1.VerbDeploy {
		name := strings.TrimSpace(rest)
		require.Contains(w.t, charts, name, line)
		return w.askDeploy(r, name, charts[name], body)
	}
	return w.ask(verb, r, body)
}

// tell says in one line what matters of an outcome, without what differs from run to run.
func tell(o *seatrialv1.Outcome) string {
	said := []string{o.GetKind()}
	add := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	switch {
	case o.GetCommand() != nil:
		add("%d", o.GetNumber())
		for kind, there := range map[string]bool{
			"deploy": o.GetCommand().GetDeploy() != nil, "test": o.GetCommand().GetTest() != nil, "rollback": o.GetCommand().GetRollback() != nil,
			"uninstall": o.GetCommand().GetUninstall() != nil,
		} {
			if there {
				add("%s", kind)
			}
		}
	case o.GetMutation() != nil:
		add("%s", o.GetMutation().GetAction())
		if revision := o.GetMutation().GetHelmRevision(); revision != 0 {
			add("revision=%d", revision)
		}
		if target := o.GetMutation().GetTargetRevision(); target != 0 {
			add("target=%d", target)
		}
		if from := o.GetMutation().GetFromRevision(); from != 0 && o.GetMutation().GetAction() == "uninstall" {
			add("from=%d", from)
		}
	case o.GetTestRun() != nil:
		add("%s", o.GetTestRun().GetVerdict())
		var tests []string
		for _, test := range o.GetTestRun().GetTests() {
			tests = append(tests, test.GetName()+":"+test.GetPhase())
		}
		slices.Sort(tests)
		said = append(said, tests...)
	case o.GetSettlement() != nil:
		add("%s", o.GetSettlement().GetResult())
		if running := o.GetRunning(); running != nil {
			add("running=%s@%d", running.GetVersion(), running.GetHelmRevision())
		} else {
			add("running=nothing")
		}
	}
	if class := o.GetFailure().GetClass(); class != "" {
		add("class=%s", class)
	}
	return strings.Join(said, " ")
}
