package demo

import (
	"fmt"
	"slices"
	"strings"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// scene is one act of the demo: a deploy, and what must come of it.
type scene struct {
	title string
	chart edition
	// result is what the request must settle as.
	result string
	// check returns how the scene differed from what is expected, besides the result.
	check func(d *demo, got *act) []string
}

// act is what was seen of one scene.
type act struct {
	outcomes []*seatrialv1.Outcome
	events   []event
}

func (a *act) count(kind string) int {
	return len(slices.DeleteFunc(slices.Clone(a.outcomes), func(o *seatrialv1.Outcome) bool { return o.GetKind() != kind }))
}

// find returns the newest outcome of the kind, nil where there is none.
func (a *act) find(kind string) *seatrialv1.Outcome {
	for _, o := range slices.Backward(a.outcomes) {
		if o.GetKind() == kind {
			return o
		}
	}
	return nil
}

// expectAttribute checks an attribute of the newest event of a kind; an empty value means that it must not be there.
func (a *act) expectAttribute(kind, name, want string) []string {
	for _, e := range slices.Backward(a.events) {
		if e.kind != kind {
			continue
		}
		if got := e.attributes[name]; got != want {
			return []string{fmt.Sprintf("the event %s has %s=%q, expected %q", kind, name, got, want)}
		}
		return nil
	}
	return []string{fmt.Sprintf("there is no event %s", kind)}
}

var (
	good = edition{version: "1.0.0", page: "welcome to the shop", annotations: annotations("4f2a91c07e6b")}
	bad  = edition{version: "1.1.0", page: "out of order", annotations: annotations("9b03d5e1aa42")}
	bare = edition{version: "1.2.0", page: "welcome back"}
)

func annotations(commit string) map[string]string {
	return map[string]string{
		"commit_sha":                       commit,
		"org.opencontainers.image/licence": "Apache-2.0",
		"team":                             "shop",
		"changes":                          "- a new page\n- a test that reads it\n",
	}
}

var scenes = []scene{
	{
		title:  "1.0.0 is deployed, its test passes: it is proven",
		chart:  good,
		result: seatrialv1.ResultProven,
		check: func(_ *demo, got *act) []string {
			return slices.Concat(
				got.expectAttribute(seatrialv1.KindDeploying, "commitsha", "4f2a91c07e6b"),
				got.expectAttribute(seatrialv1.KindSettled, "commitsha", "4f2a91c07e6b"),
				got.expectAttribute(seatrialv1.KindSettled, "revision", "1.0.0"),
				got.expectAttribute(seatrialv1.KindSettled, "helmrevision", "1"),
				got.expectAttribute(seatrialv1.KindTested, "verdict", seatrialv1.VerdictPassed),
			)
		},
	},
	{
		title:  "1.1.0 is deployed, its test fails: what 1.0.0 was comes back",
		chart:  bad,
		result: seatrialv1.ResultRolledBack,
		check: func(d *demo, got *act) []string {
			differs := slices.Concat(
				got.expectAttribute(seatrialv1.KindTested, "verdict", seatrialv1.VerdictFailed),
				got.expectAttribute(seatrialv1.KindTested, "commitsha", "9b03d5e1aa42"),
				got.expectAttribute(seatrialv1.KindSettled, "commitsha", "4f2a91c07e6b"),
				got.expectAttribute(seatrialv1.KindSettled, "failedrevision", "1.1.0"),
				got.expectAttribute(seatrialv1.KindSettled, "failedhelmrevision", "2"),
				got.expectAttribute(seatrialv1.KindSettled, "helmrevision", "3"),
			)
			if n := got.count(seatrialv1.KindTested); n != 1 {
				differs = append(differs, fmt.Sprintf("the failed test ran %d times, expected once", n))
			}
			if log := testLog(got); !strings.Contains(log, "expected a welcome") {
				differs = append(differs, fmt.Sprintf("the log of the failed test is %q, expected it to say what was wrong", log))
			}
			if now := got.find(seatrialv1.KindSettled).GetRunning().GetManifestDigest(); now != d.proven {
				differs = append(differs, fmt.Sprintf("what runs is %s, expected what 1.0.0 was: %s", now, d.proven))
			}
			return differs
		},
	},
	{
		title:  "1.1.0 once more: it is refused, nothing is touched",
		chart:  bad,
		result: seatrialv1.ResultRejected,
		check: func(_ *demo, got *act) []string {
			var differs []string
			if n := got.count(seatrialv1.KindDeployed) + got.count(seatrialv1.KindTested); n != 0 {
				differs = append(differs, "something was deployed or tested")
			}
			if reason := got.find(seatrialv1.KindSettled).GetFailure().GetReason(); !strings.Contains(reason, "revision 2") {
				differs = append(differs, fmt.Sprintf("the reason is %q, expected it to say where it failed before", reason))
			}
			return differs
		},
	},
	{
		title:  "1.2.0, a chart without annotations, is deployed and proven",
		chart:  bare,
		result: seatrialv1.ResultProven,
		check: func(_ *demo, got *act) []string {
			return slices.Concat(
				got.expectAttribute(seatrialv1.KindSettled, "commitsha", ""),
				got.expectAttribute(seatrialv1.KindSettled, "revision", "1.2.0"),
				got.expectAttribute(seatrialv1.KindSettled, "helmrevision", "4"),
			)
		},
	},
}

// testLog returns the logs of all tests of the act's last run.
func testLog(a *act) string {
	var all strings.Builder
	for _, test := range a.find(seatrialv1.KindTested).GetTestRun().GetTests() {
		for _, log := range test.GetLogs() {
			all.WriteString(log.GetTail())
		}
	}
	return all.String()
}
