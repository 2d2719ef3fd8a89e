package event

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seatrial/seatrial/services/notifier/internal/attribute"
	"github.com/seatrial/seatrial/services/notifier/internal/binding"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

var update = flag.Bool("update", false, "write the golden files")

// chart returns a version of the chart of all tests.
func chart(version, commit string, helmRevision int32) *seatrialv1.ChartRevision {
	return &seatrialv1.ChartRevision{
		Name:       "web",
		Version:    version,
		AppVersion: "2.7",
		Digest:     "sha256:" + strings.Repeat(version[2:3], 64),
		Annotations: map[string]string{
			"commit_sha":                       commit,
			"org.opencontainers.image/licence": "Apache-2.0\n",
			"artifacthub.io/changes":           "- a new page\n- faster <start>\n",
			"time":                             "noon",
		},
		HelmRevision: helmRevision,
	}
}

// outcome returns one of the upgrade from 1.0.0 to 1.1.0.
func outcome(kind string, change func(*seatrialv1.Outcome)) *seatrialv1.Outcome {
	o := &seatrialv1.Outcome{
		Id:          "local/shop/web/4/" + kind,
		Kind:        kind,
		Release:     "local/shop/web",
		Generation:  2,
		Request:     "build-117",
		Number:      4,
		Time:        timestamppb.New(time.Date(2026, 3, 4, 5, 6, 7, 890_000_000, time.UTC)),
		Service:     "executor",
		Instance:    "executor-0",
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Message:     kind + " web 1.1.0",
		Requested:   chart("1.1.0", "4f2d9c1", 0),
		Running:     chart("1.0.0", "0aa11bb", 1),
	}
	if change != nil {
		change(o)
	}
	return o
}

// one of each kind that becomes an event, in the order of a story.
func story() []*seatrialv1.Outcome {
	aboutRequest := func(kind string, change func(*seatrialv1.Outcome)) *seatrialv1.Outcome {
		return outcome(kind, func(o *seatrialv1.Outcome) {
			o.Id, o.Number, o.Service, o.Instance = "build-117/"+kind, 0, "planner", "planner-0"
			change(o)
		})
	}
	deployed := func(o *seatrialv1.Outcome) { o.Running = chart("1.1.0", "4f2d9c1", 2) }
	failedTest := &seatrialv1.TestRun{
		Verdict: seatrialv1.VerdictFailed, HelmRevision: 2, Attempt: 1,
		Tests: []*seatrialv1.TestResult{
			{Name: "web-smoke", Kind: "Pod", Phase: seatrialv1.VerdictPassed},
			{
				Name: "web-login", Kind: "Pod", Phase: seatrialv1.VerdictFailed, Reason: "exit code 1",
				Logs: []*seatrialv1.ContainerLog{{Pod: "web-login", Container: "test", Tail: "want 200, got 500\n", ExitCode: proto.Int32(1)}},
			},
		},
	}
	return []*seatrialv1.Outcome{
		aboutRequest(seatrialv1.KindAccepted, func(o *seatrialv1.Outcome) { o.Requested = nil }),
		outcome(seatrialv1.KindNoWorker, nil),
		outcome(seatrialv1.KindBlocked, func(o *seatrialv1.Outcome) {
			o.Failure = &seatrialv1.Failure{Class: seatrialv1.ClassBlocked, Reason: "revision 1 is pending-upgrade, held by somebody else", Next: "wait, or roll it back"}
		}),
		outcome(seatrialv1.KindDeploying, nil),
		outcome(seatrialv1.KindDeployed, func(o *seatrialv1.Outcome) {
			deployed(o)
			o.Mutation = &seatrialv1.Mutation{Action: "upgrade", FromRevision: 1, HelmRevision: 2, Tests: 2}
		}),
		outcome(seatrialv1.KindDeployFailed, func(o *seatrialv1.Outcome) {
			o.Mutation = &seatrialv1.Mutation{Action: "upgrade", FromRevision: 1, HelmRevision: 2}
			o.Failure = &seatrialv1.Failure{Class: seatrialv1.ClassFailed, Reason: "Deployment web is not ready after 5m0s", Mutated: true}
		}),
		outcome(seatrialv1.KindTesting, deployed),
		outcome(seatrialv1.KindTested, func(o *seatrialv1.Outcome) {
			deployed(o)
			o.TestRun = failedTest
		}),
		outcome(seatrialv1.KindRollingBack, func(o *seatrialv1.Outcome) {
			deployed(o)
			o.Mutation = &seatrialv1.Mutation{Action: "rollback", FromRevision: 2, TargetRevision: 1, FailedRevision: 2}
		}),
		outcome(seatrialv1.KindRolledBack, func(o *seatrialv1.Outcome) {
			o.Running = chart("1.0.0", "0aa11bb", 3)
			o.Mutation = &seatrialv1.Mutation{Action: "rollback", FromRevision: 2, TargetRevision: 1, HelmRevision: 3, FailedRevision: 2}
		}),
		outcome(seatrialv1.KindRollbackFailed, func(o *seatrialv1.Outcome) {
			deployed(o)
			o.Mutation = &seatrialv1.Mutation{Action: "rollback", FromRevision: 2, TargetRevision: 1, HelmRevision: 3, FailedRevision: 2}
			o.Failure = &seatrialv1.Failure{Class: seatrialv1.ClassFailed, Reason: "hook web-migrate failed", Mutated: true}
		}),
		outcome(seatrialv1.KindUninstalling, func(o *seatrialv1.Outcome) { o.Requested, o.Message = o.Running, "uninstalling web 1.0.0" }),
		outcome(seatrialv1.KindUninstalled, func(o *seatrialv1.Outcome) {
			o.Requested, o.Running = o.Running, nil
			o.Message = "web 1.0.0 (revision 1) is uninstalled"
			o.Mutation = &seatrialv1.Mutation{Action: "uninstall", FromRevision: 1}
		}),
		outcome(seatrialv1.KindUninstallFailed, func(o *seatrialv1.Outcome) {
			o.Requested, o.Running = o.Running, nil
			o.Message = "local/shop/web: uninstall failed: ConfigMap shop/web-page is not gone within the time-out of 5m0s"
			o.Mutation = &seatrialv1.Mutation{Action: "uninstall", FromRevision: 1}
			o.Failure = &seatrialv1.Failure{Class: seatrialv1.ClassFailed, Reason: o.Message, Mutated: true}
		}),
		aboutRequest(seatrialv1.KindSettled, func(o *seatrialv1.Outcome) {
			o.Running = chart("1.0.0", "0aa11bb", 3)
			o.Settlement = &seatrialv1.Settlement{Verb: "deploy", Result: seatrialv1.ResultRolledBack, Verdict: seatrialv1.VerdictFailed, FailedRevision: 2}
		}),
	}
}

func TestOneEventOfEachKind(t *testing.T) {
	t.Parallel()
	for _, o := range story() {
		t.Run(o.GetKind(), func(t *testing.T) {
			t.Parallel()
			golden := filepath.Join("testdata", o.GetKind()+".txt")
			got := readable(t, mustMake(t, o))
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got, "go test ./... -update writes the golden files")
		})
	}
}

func mustMake(t *testing.T, o *seatrialv1.Outcome) cloudevents.Event {
	t.Helper()
	e, err := Make(o, attribute.Options{})
	require.NoError(t, err)
	return e
}

// readable shows an event as a NATS message, with its data on many lines.
func readable(t *testing.T, e cloudevents.Event) string {
	t.Helper()
	header, data, err := binding.Encode(e, binding.Binary)
	require.NoError(t, err)
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(header)) {
		fmt.Fprintf(&out, "%s: %s\n", name, header.Get(name))
	}
	out.WriteByte('\n')
	require.NoError(t, json.Indent(&out, data, "", "  "))
	out.WriteByte('\n')
	return out.String()
}

func TestTheSameOutcomeMakesTheSameBytes(t *testing.T) {
	t.Parallel()
	for _, o := range story() {
		before := proto.CloneOf(o)
		for _, mode := range []binding.Mode{binding.Binary, binding.Structured} {
			header, data, err := binding.Encode(mustMake(t, o), mode)
			require.NoError(t, err)
			for range 5 {
				again, same, err := binding.Encode(mustMake(t, proto.CloneOf(o)), mode)
				require.NoError(t, err)
				require.Equal(t, header, again)
				require.Equal(t, string(data), string(same))
			}
		}
		require.True(t, proto.Equal(before, o), "the outcome is not changed")
	}
}

func TestTheDataHoldsTheOutcomeAndTheMapping(t *testing.T) {
	t.Parallel()
	o := outcome(seatrialv1.KindDeploying, nil)
	var data seatrialv1.EventData
	e := mustMake(t, o)
	require.NoError(t, protojson.Unmarshal(e.Data(), &data))
	require.True(t, proto.Equal(o, data.GetOutcome()), "with all annotations as they are in Chart.yaml")
	require.Equal(t, map[string]string{"commit_sha": "commitsha", "org.opencontainers.image/licence": "licence"}, data.GetAttributes())
	require.Empty(t, data.GetShortened())
	require.NotContains(t, string(e.Data()), `\u003c`, "readable in nats sub")

	_, structured, err := binding.Encode(e, binding.Structured)
	require.NoError(t, err)
	require.Contains(t, string(structured), `"data":{"outcome":{`)
}

func TestWhatTheAttributesDescribe(t *testing.T) {
	t.Parallel()
	settled := func(result string, failed int32) func(*seatrialv1.Outcome) {
		return func(o *seatrialv1.Outcome) {
			o.Settlement = &seatrialv1.Settlement{Result: result, FailedRevision: failed}
		}
	}
	for _, row := range []struct {
		name                            string
		outcome                         *seatrialv1.Outcome
		described                       string
		revision, helm, failed, commits any // of the attributes; nil: absent
	}{
		{
			name: "while deploying, the requested one, which has no number yet", outcome: outcome("deploying", nil),
			described: "requested", revision: "1.1.0", commits: "4f2d9c1",
		},
		{
			name: "a first install", outcome: outcome("deploying", func(o *seatrialv1.Outcome) { o.Running = nil }),
			described: "requested", revision: "1.1.0", commits: "4f2d9c1",
		},
		{
			name: "deployed, with its number", outcome: outcome("deployed", func(o *seatrialv1.Outcome) {
				o.Running = chart("1.1.0", "4f2d9c1", 2)
				o.Mutation = &seatrialv1.Mutation{HelmRevision: 2}
			}),
			described: "requested", revision: "1.1.0", helm: int32(2), commits: "4f2d9c1",
		},
		{
			name: "testing what runs", outcome: outcome("testing", func(o *seatrialv1.Outcome) { o.Running = chart("1.1.0", "4f2d9c1", 2) }),
			described: "requested", revision: "1.1.0", helm: int32(2), commits: "4f2d9c1",
		},
		{
			name: "tested, whatever runs by now", outcome: outcome("tested", func(o *seatrialv1.Outcome) { o.TestRun = &seatrialv1.TestRun{HelmRevision: 2} }),
			described: "requested", revision: "1.1.0", helm: int32(2), commits: "4f2d9c1",
		},
		{
			name: "settled proven", outcome: outcome("settled", func(o *seatrialv1.Outcome) {
				o.Running = chart("1.1.0", "4f2d9c1", 2)
				settled(seatrialv1.ResultProven, 0)(o)
			}),
			described: "requested", revision: "1.1.0", helm: int32(2), commits: "4f2d9c1",
		},
		{
			name: "settled failed, before anything was done", outcome: outcome("settled", settled(seatrialv1.ResultFailed, 0)),
			described: "requested", revision: "1.1.0", commits: "4f2d9c1",
		},
		{
			name: "settled failed, left as it is", outcome: outcome("settled", settled(seatrialv1.ResultFailed, 2)),
			described: "requested", revision: "1.1.0", helm: int32(2), failed: "1.1.0", commits: "4f2d9c1",
		},
		{
			name: "rolled back, the one that runs again", outcome: outcome("rolledback", func(o *seatrialv1.Outcome) {
				o.Running = chart("1.0.0", "0aa11bb", 3)
				o.Mutation = &seatrialv1.Mutation{HelmRevision: 3, FailedRevision: 2}
			}),
			described: "running", revision: "1.0.0", helm: int32(3), failed: "1.1.0", commits: "0aa11bb",
		},
		{
			name: "rolled back because somebody asked", outcome: outcome("rolledback", func(o *seatrialv1.Outcome) {
				o.Mutation = &seatrialv1.Mutation{HelmRevision: 3}
			}),
			described: "running", revision: "1.0.0", helm: int32(1), commits: "0aa11bb",
		},
		{
			name: "rejected before the chart is known: not what runs", outcome: outcome("settled", func(o *seatrialv1.Outcome) {
				o.Requested = nil
				settled(seatrialv1.ResultRejected, 0)(o)
			}),
		},
		{
			name: "rolled back to nothing that is known", outcome: outcome("rolledback", func(o *seatrialv1.Outcome) { o.Running = nil }),
		},
		{
			name: "uninstalled, what ran", outcome: outcome("uninstalled", func(o *seatrialv1.Outcome) { o.Requested, o.Running = o.Running, nil }),
			described: "requested", revision: "1.0.0", helm: int32(1), commits: "0aa11bb",
		},
		{
			name: "settled uninstalled, what ran", outcome: outcome("settled", func(o *seatrialv1.Outcome) {
				o.Requested, o.Running = o.Running, nil
				settled(seatrialv1.ResultUninstalled, 0)(o)
			}),
			described: "requested", revision: "1.0.0", helm: int32(1), commits: "0aa11bb",
		},
		{
			name: "uninstalled because a first install has failed", outcome: outcome("settled", func(o *seatrialv1.Outcome) {
				o.Running = nil
				settled(seatrialv1.ResultUninstalled, 1)(o)
			}),
			described: "requested", revision: "1.1.0", helm: int32(1), failed: "1.1.0", commits: "4f2d9c1",
		},
		{name: "uninstalled, although nothing was there", outcome: outcome("uninstalled", func(o *seatrialv1.Outcome) { o.Requested, o.Running = nil, nil })},
		{name: "nothing is known", outcome: outcome("accepted", func(o *seatrialv1.Outcome) { o.Requested, o.Running = nil, nil })},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			e := mustMake(t, row.outcome)
			var data seatrialv1.EventData
			require.NoError(t, protojson.Unmarshal(e.Data(), &data))
			require.Equal(t, row.described, data.GetDescribed())
			got := e.Extensions()
			require.Equal(t, row.revision, got["revision"])
			require.Equal(t, row.helm, got["helmrevision"])
			require.Equal(t, row.failed, got["failedrevision"])
			require.Equal(t, row.commits, got["commitsha"])
			require.Equal(t, "shop", got["helmnamespace"])
		})
	}
}

func TestOurOwnAttributesAreLegalOrLeftOut(t *testing.T) {
	t.Parallel()
	e := mustMake(t, outcome("deploying", func(o *seatrialv1.Outcome) {
		o.Requested.AppVersion = "two\nlines"
		o.Traceparent = strings.Repeat("x", 257)
	}))
	require.NotContains(t, e.Extensions(), "chartappversion")
	require.NotContains(t, e.Extensions(), "traceparent")
	var data seatrialv1.EventData
	require.NoError(t, protojson.Unmarshal(e.Data(), &data))
	left := map[string]string{}
	for _, out := range data.GetLeftOut() {
		left[out.GetAttribute()] = out.GetReason()
	}
	require.Equal(t, "the value contains the control character U+000A", left["chartappversion"])
	require.Equal(t, "the value has 257 bytes, the limit is 256", left["traceparent"])
	require.Equal(t, "two\nlines", data.GetOutcome().GetRequested().GetAppVersion())
}

func TestOutcomesThatMakeNoEvent(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*seatrialv1.Outcome){
		"no release":        func(o *seatrialv1.Outcome) { o.Release = "" },
		"no name":           func(o *seatrialv1.Outcome) { o.Release = "local/shop/" },
		"no id":             func(o *seatrialv1.Outcome) { o.Id = "" },
		"a newline in id":   func(o *seatrialv1.Outcome) { o.Id = "a\nb" },
		"no kind":           func(o *seatrialv1.Outcome) { o.Kind = "" },
		"a kind of no word": func(o *seatrialv1.Outcome) { o.Kind = "a.b" },
		"no time":           func(o *seatrialv1.Outcome) { o.Time = nil },
		"no legal time":     func(o *seatrialv1.Outcome) { o.Time = &timestamppb.Timestamp{Nanos: -1} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Make(outcome("deployed", spoil), attribute.Options{})
			require.ErrorIs(t, err, ErrInvalid)
		})
	}
}
