package run

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestATailIsTheLastWholeLines(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		size       int
		want       string
		truncated  bool
	}{
		{"nothing", "", 4, "", false},
		{"all of it", "ab\nc", 4, "ab\nc", false},
		{"without the line that is cut", "first\nsecond\n", 9, "second\n", true},
		{"the end of a line that is too long", "0123456789", 4, "6789", true},
		{"the end of a last line that is too long", "0123456789\n", 4, "789\n", true},
		{"without half a character", "ab€€", 4, "€", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, truncated := tail(row.text, row.size)
			require.Equal(t, row.want, got)
			require.Equal(t, row.truncated, truncated)
			require.True(t, utf8.ValidString(got))
		})
	}
}

func TestTheTailsOfARunAreBoundedAndTheLastStay(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("x", tailBytes)
	var tests []*pb.TestResult
	for range tailBudget/tailBytes + 2 {
		tests = append(tests, &pb.TestResult{Logs: []*pb.ContainerLog{{Tail: full}}})
	}
	tests = append(tests[:1], append([]*pb.TestResult{{Logs: []*pb.ContainerLog{{}}}}, tests[1:]...)...)
	bound(tests)
	kept := 0
	for _, test := range tests {
		if test.Logs[0].Tail != "" {
			kept++
		}
	}
	require.Equal(t, tailBudget/tailBytes, kept)
	require.Empty(t, tests[0].Logs[0].Tail)
	require.True(t, tests[0].Logs[0].Truncated)
	require.False(t, tests[1].Logs[0].Truncated, "there was nothing to drop")
	require.Equal(t, full, tests[len(tests)-1].Logs[0].Tail)
}
