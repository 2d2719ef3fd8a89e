package test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	provision "github.com/seatrial/seatrial/deploy/provision/app"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
	executor "github.com/seatrial/seatrial/services/executor/app"
	notifier "github.com/seatrial/seatrial/services/notifier/app"
	planner "github.com/seatrial/seatrial/services/planner/app"
	tester "github.com/seatrial/seatrial/services/tester/app"
)

// page returns the sections of a page of the reference by their headings, such as `## deploy`.
func page(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/reference/" + name)
	require.NoError(t, err)
	sections, heading := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			heading = strings.TrimSpace(line)
		}
		sections[heading] += line
	}
	return sections
}

var (
	// names are what a cell of a table holds that names things and nothing else.
	names  = regexp.MustCompile("^`[^`]+`(, `[^`]+`)*$")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// rows returns the tables' rows whose first cell names something: by each name, the cell behind it.
func rows(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 2 || !names.MatchString(strings.TrimSpace(cells[0])) {
			continue
		}
		for _, name := range quoted.FindAllStringSubmatch(cells[0], -1) {
			found[name[1]] = strings.TrimSpace(cells[1])
		}
	}
	return found
}

func named(text string) []string { return slices.Sorted(maps.Keys(rows(text))) }

// fields returns how the fields of a message are written in JSON; those of filters stand by themselves.
func fields(m proto.Message) []string {
	var all []string
	list := m.ProtoReflect().Descriptor().Fields()
	for i := range list.Len() {
		switch name := list.Get(i).JSONName(); name {
		case "filters":
			for _, filter := range fields(&seatrialv1.TestFilters{}) {
				all = append(all, name+"."+filter)
			}
		default:
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func TestTheReferenceHasEveryFieldOfEveryRequest(t *testing.T) {
	t.Parallel()
	sections := page(t, "requests.md")
	for heading, message := range map[string]proto.Message{
		"## deploy":      &seatrialv1.DeployRequest{},
		"### chart":      &seatrialv1.ChartSource{},
		"### valuesFrom": &seatrialv1.ValuesFrom{},
		"### upgrade":    &seatrialv1.UpgradeOptions{},
		"### test":       &seatrialv1.TestOptions{},
		"## rollback":    &seatrialv1.RollbackRequest{},
		"## uninstall":   &seatrialv1.UninstallRequest{},
		"## cancel":      &seatrialv1.CancelRequest{},
		"## forgive":     &seatrialv1.ForgiveRequest{},
	} {
		require.Equal(t, fields(message), named(sections[heading]), heading)
	}
	// These two are told in a sentence.
	atTheTop := slices.DeleteFunc(fields(&seatrialv1.TestOptions{}), func(name string) bool { return name == "enabled" })
	require.ElementsMatch(t, append(atTheTop, "id", "release"), fields(&seatrialv1.TestRequest{}))
	require.Equal(t, []string{"id", "release"}, fields(&seatrialv1.SuspendRequest{}))
	require.Equal(t, []string{"id", "release"}, fields(&seatrialv1.ResumeRequest{}))
}

// constants returns the values of the string constants of a Go file whose names begin with prefix.
func constants(t *testing.T, file, prefix string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	var values []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, name := range spec.Names {
			if literal, ok := spec.Values[i].(*ast.BasicLit); ok && strings.HasPrefix(name.Name, prefix) {
				value, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				values = append(values, value)
			}
		}
		return false
	})
	require.NotEmpty(t, values, "%s: %s", file, prefix)
	slices.Sort(values)
	return values
}

func TestTheReferenceHasEveryWord(t *testing.T) {
	t.Parallel()
	const words, subjects = "../proto/seatrial/v1/words.go", "../internal/kit/subject/subject.go"
	outcomes, names := page(t, "outcomes.md"), page(t, "subjects.md")
	require.Equal(t, constants(t, words, "Kind"), named(outcomes["## Kinds"]))
	require.Equal(t, constants(t, words, "Result"), named(outcomes["## Results"]))
	require.Equal(t, constants(t, words, "Verdict"), named(outcomes["## Verdicts and phases"]))
	require.Equal(t, constants(t, words, "Class"), named(outcomes["## Classes of failures"]))
	require.Equal(t, constants(t, subjects, "Stream"), named(names["## Streams"]))
	require.Equal(t, constants(t, subjects, "Bucket"), named(names["## Buckets"]))
	require.Equal(t, constants(t, subjects, "Objects"), named(names["## Object stores"]))

	var headings []string
	for heading := range page(t, "requests.md") {
		headings = append(headings, strings.FieldsFunc(heading, func(r rune) bool { return r < 'a' || r > 'z' })...)
	}
	require.Subset(t, headings, constants(t, words, "Verb"))
}

func TestTheReferenceHasEveryFlagWithItsDefault(t *testing.T) {
	t.Parallel()
	sections := page(t, "config.md")
	common := rows(sections["## All services"])
	for program, flags := range map[string]func(*flag.FlagSet){
		"provision": new(provision.Defaults()).Flags,
		"planner":   new(planner.Defaults()).Flags,
		"executor":  new(executor.Defaults()).Flags,
		"tester":    new(tester.Defaults()).Flags,
		"notifier":  new(notifier.Defaults()).Flags,
	} {
		own := rows(sections["## seatrial-"+program])
		set := flag.NewFlagSet(program, flag.ContinueOnError)
		flags(set)
		set.VisitAll(func(f *flag.Flag) {
			told, ok := own["--"+f.Name]
			delete(own, "--"+f.Name)
			if !ok {
				told, ok = common["--"+f.Name]
			}
			require.True(t, ok, "%s --%s is not told", program, f.Name)
			if value := strings.Trim(told, "`"); told == "`"+value+"`" && !strings.ContainsAny(value, "`<") {
				require.True(t, sameValue(value, f.DefValue), "%s --%s has the default %q, told is %s", program, f.Name, f.DefValue, told)
			}
		})
		require.Empty(t, own, program+" does not have these")
	}
}

// sameValue: durations can be written in several ways.
func sameValue(a, b string) bool {
	x, errX := time.ParseDuration(a)
	y, errY := time.ParseDuration(b)
	return a == b || errX == nil && errY == nil && x == y
}

// blocks finds blocks of JSON in a page.
var blocks = regexp.MustCompile("(?s)```json\n(.*?)```")

// TestTheExamplesOfRequestsAreTaken sends every body that the pages show for a deploy with the real NATS CLI.
func TestTheExamplesOfRequestsAreTaken(t *testing.T) {
	cli := os.Getenv("SEATRIAL_NATS_CLI")
	require.NotEmpty(t, cli, "this test needs the NATS CLI: run it by make test, or set SEATRIAL_NATS_CLI to its path")
	w := start(t, nil)
	taken := 0
	for _, file := range []string{"../README.md", "../docs/reference/requests.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
			for body := range strings.Lines(block[1]) {
				taken++
				r := subject.Release{Cluster: "local", Namespace: "examples", Name: fmt.Sprintf("example-%d", taken)}
				command := exec.CommandContext(t.Context(), cli, "--server", w.sys.NATS.URL, "req", "--raw", "--no-templates",
					subject.API(seatrialv1.VerbDeploy, r), strings.TrimSpace(body))
				out, err := command.Output()
				require.NoError(t, err)
				answer := map[string]any{}
				require.NoError(t, json.Unmarshal(out, &answer), "%s\n%s", body, out)
				require.Equal(t, r.String(), answer["release"], "%s\n%s", body, out)
			}
		}
	}
	require.NotZero(t, taken)
}
