package event

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/seatrial/seatrial/services/notifier/internal/attribute"
	"github.com/seatrial/seatrial/services/notifier/internal/binding"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// dataOf makes the event of an outcome, checks that it is small enough, and returns its data.
func dataOf(t require.TestingT, o *seatrialv1.Outcome) *seatrialv1.EventData {
	e, err := Make(o, attribute.Options{})
	require.NoError(t, err)
	for _, mode := range []binding.Mode{binding.Binary, binding.Structured} {
		size, err := binding.Size(e, mode)
		require.NoError(t, err)
		require.LessOrEqual(t, size, MaxSize, mode)
	}
	var data seatrialv1.EventData
	require.NoError(t, protojson.Unmarshal(e.Data(), &data))
	return &data
}

// testRun returns an outcome with that many tests, of which the one in the middle failed, and logs of that many bytes.
func testRun(tests, log int) *seatrialv1.Outcome {
	return outcome(seatrialv1.KindTested, func(o *seatrialv1.Outcome) {
		o.TestRun = &seatrialv1.TestRun{Verdict: seatrialv1.VerdictFailed}
		for i := range tests {
			test := &seatrialv1.TestResult{Name: fmt.Sprintf("t%d", i), Phase: seatrialv1.VerdictPassed}
			if i == tests/2 {
				test.Phase = seatrialv1.VerdictFailed
			}
			test.Logs = []*seatrialv1.ContainerLog{{Tail: strings.Repeat("ü", log/2) + test.GetName()}}
			o.TestRun.Tests = append(o.TestRun.Tests, test)
		}
	})
}

func TestLogsOfPassedTestsGoFirst(t *testing.T) {
	t.Parallel()
	data := dataOf(t, testRun(20, 4000))
	require.Len(t, data.GetShortened(), 1)
	require.Regexp(t, `^logs of passed tests: \d+ bytes are missing from 19 of them; of each the last 256 are here$`, data.GetShortened()[0])
	for _, test := range data.GetOutcome().GetTestRun().GetTests() {
		log := test.GetLogs()[0]
		require.True(t, strings.HasSuffix(log.GetTail(), test.GetName()), "the end stays")
		if test.GetPhase() == seatrialv1.VerdictFailed {
			require.Greater(t, len(log.GetTail()), 4000)
			require.False(t, log.GetTruncated())
			continue
		}
		require.LessOrEqual(t, len(log.GetTail()), 256)
		require.True(t, log.GetTruncated())
		require.True(t, utf8.ValidString(log.GetTail()))
	}
}

func TestMiddleTestsGoNext(t *testing.T) {
	t.Parallel()
	data := dataOf(t, testRun(401, 300))
	require.Contains(t, data.GetShortened(), "tests that passed or did not run: 380 of 401 are missing, from the middle")
	var names []string
	for _, test := range data.GetOutcome().GetTestRun().GetTests() {
		names = append(names, test.GetName())
	}
	require.Len(t, names, 21)
	require.Contains(t, names, "t0")
	require.Contains(t, names, "t200", "the one that failed")
	require.Contains(t, names, "t400")
}

func TestAnnotationsThatAreNotDescribedGoBeforeTheOthers(t *testing.T) {
	t.Parallel()
	o := outcome(seatrialv1.KindDeploying, func(o *seatrialv1.Outcome) {
		o.Requested.Annotations = map[string]string{"new": strings.Repeat("n", 31<<10)}
		o.Running.Annotations = map[string]string{"old": strings.Repeat("o", 40<<10)}
	})
	before := proto.CloneOf(o)
	data := dataOf(t, o)
	require.Equal(t, []string{"the annotations that the attributes do not describe: all 1 are missing"}, data.GetShortened())
	require.Equal(t, o.GetRequested().GetAnnotations(), data.GetOutcome().GetRequested().GetAnnotations())
	require.Empty(t, data.GetOutcome().GetRunning().GetAnnotations())
	require.Equal(t, "1.0.0", data.GetOutcome().GetRunning().GetVersion())
	require.True(t, proto.Equal(before, o), "the outcome is not changed")
}

func TestManySmallAnnotationsFit(t *testing.T) {
	t.Parallel()
	o := outcome(seatrialv1.KindDeploying, func(o *seatrialv1.Outcome) {
		o.Running = nil
		o.Requested.Annotations = map[string]string{}
		for i := range 1500 {
			o.Requested.Annotations[fmt.Sprintf("k%d", i)] = []string{"€", "\x01"}[i%2]
		}
	})
	data := dataOf(t, o)
	require.Greater(t, len(data.GetAttributes()), 500)
	require.Contains(t, data.GetShortened(), fmt.Sprintf("leftOut: %d of %d are missing", 1480-len(data.GetAttributes()), 1500-len(data.GetAttributes())))
	require.Equal(t, "1.1.0", data.GetOutcome().GetRequested().GetVersion())
}

func TestNoOutcomeIsTooLarge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		// Large in any place, and of characters that take most room in JSON or in a header.
		size := rapid.SampledFrom([]int{0, 1, 300, 300, 12_000})
		text := func(what string) string {
			return strings.Repeat(rapid.SampledFrom([]string{"x", "\x01", "\\", `"`, "€"}).Draw(t, what), size.Draw(t, what+" size"))
		}
		annotations := func() map[string]string {
			all := map[string]string{"large": text("large annotation")}
			value := rapid.SampledFrom([]string{"€", "x", strings.Repeat("%", 256)}).Draw(t, "value")
			for i := range rapid.IntRange(0, 100).Draw(t, "annotations") {
				all[fmt.Sprintf("k%d", i)] = value
			}
			return all
		}
		o := outcome(rapid.SampledFrom([]string{"deploying", "rolledback", "settled", "tested"}).Draw(t, "kind"), func(o *seatrialv1.Outcome) {
			o.Request, o.Message, o.Instance, o.Traceparent = text("request"), text("message"), text("instance"), text("traceparent")
			o.Requested.Annotations, o.Requested.AppVersion = annotations(), text("app version")
			o.Running.Annotations, o.Running.Version = annotations(), text("version")
			o.Settlement = &seatrialv1.Settlement{Result: text("result"), FailedRevision: 2}
			o.TestRun = testRun(rapid.IntRange(0, 100).Draw(t, "tests"), 300).GetTestRun()
			o.TestRun.Reason = text("reason of the run")
			o.Failure = &seatrialv1.Failure{Reason: text("reason"), Next: text("next")}
			for range rapid.IntRange(0, 10).Draw(t, "objects") {
				o.Failure.Objects = append(o.Failure.Objects, &seatrialv1.ObjectReport{Name: "x", Events: []string{text("event")}})
			}
		})
		data := dataOf(t, o)
		require.Equal(t, o.GetId(), data.GetOutcome().GetId())
		require.Equal(t, o.GetKind(), data.GetOutcome().GetKind())
		if !proto.Equal(o, data.GetOutcome()) {
			require.NotEmpty(t, data.GetShortened(), "what is missing is told")
		}
	})
}
