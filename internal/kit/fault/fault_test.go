package fault_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestClassTravelsInTheError(t *testing.T) {
	rejected := fault.New(seatrialv1.ClassRejected, "use another one", "chart %s: %w", "web", io.EOF)
	for name, row := range map[string]struct {
		err                 error
		class, reason, next string
	}{
		"classed":         {rejected, seatrialv1.ClassRejected, "chart web: EOF", "use another one"},
		"wrapped":         {fmt.Errorf("resolve: %w", rejected), seatrialv1.ClassRejected, "resolve: chart web: EOF", "use another one"},
		"joined":          {errors.Join(io.ErrUnexpectedEOF, rejected), seatrialv1.ClassRejected, "unexpected EOF\nchart web: EOF", "use another one"},
		"outermost class": {fault.New(seatrialv1.ClassFailed, "", "deploy: %w", rejected), seatrialv1.ClassFailed, "deploy: chart web: EOF", ""},
		"without a class": {io.EOF, seatrialv1.ClassTransient, "EOF", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, row.class, fault.Class(row.err))
			failure := fault.Failure(row.err)
			require.Equal(t, row.class, failure.GetClass())
			require.Equal(t, row.reason, failure.GetReason())
			require.Equal(t, row.next, failure.GetNext())
		})
	}
	require.ErrorIs(t, rejected, io.EOF, "the cause is still to be found")
}
