package run

import (
	"fmt"
	"strings"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// verdict sums up the tests of a run. The worst word about the release wins: a test that failed says more than one that
// ran out of time, and that more than one that could not be run. A test that was not run at all proves nothing.
func verdict(tests []*seatrialv1.TestResult) string {
	count := map[string]int{}
	for _, test := range tests {
		count[test.GetPhase()]++
	}
	for _, phase := range []string{seatrialv1.VerdictFailed, seatrialv1.VerdictTimedOut, seatrialv1.VerdictErrored} {
		if count[phase] > 0 {
			return phase
		}
	}
	switch {
	case count[seatrialv1.PhaseNotRun] > 0:
		return seatrialv1.VerdictErrored
	case count[seatrialv1.VerdictPassed] > 0:
		return seatrialv1.VerdictPassed
	default:
		return seatrialv1.VerdictNoTests
	}
}

// Summary says in one line how a run went: how many tests passed, and each one that did not, with its reason.
func Summary(run *seatrialv1.TestRun) string {
	var passed, ran int
	var others []string
	for _, test := range run.GetTests() {
		switch test.GetPhase() {
		case seatrialv1.PhaseNotSelected:
			continue
		case seatrialv1.VerdictPassed:
			passed++
		default:
			others = append(others, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", test.GetName(), test.GetPhase(), test.GetReason()), ": "))
		}
		ran++
	}
	if ran == 0 {
		return join(run.GetVerdict(), run.GetReason())
	}
	line := fmt.Sprintf("%s: %d of %d tests passed", run.GetVerdict(), passed, ran)
	if len(others) > 0 {
		line += "; " + strings.Join(others, "; ")
	}
	return line
}
