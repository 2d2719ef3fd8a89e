package api

import (
	"context"
	"errors"
	"strings"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Codes of answers that are none, in the header Nats-Service-Error-Code. They are those of HTTP.
const (
	codeBadRequest  = "400"
	codeNotFound    = "404"
	codeConflict    = "409"
	codeFailed      = "500"
	codeUnavailable = "503"
	codeTimeout     = "504"
)

// refusal is an error that is told to the person who asked.
type refusal struct {
	code   string
	answer *pb.ErrorAnswer
}

func refuse(code, what, next string, violations ...*pb.Violation) error {
	return &refusal{code, &pb.ErrorAnswer{Error: what, Next: next, Violations: violations}}
}

func (r *refusal) Error() string { return r.answer.GetError() }

// line returns the error as a header can hold it.
func (r *refusal) line() string {
	return strings.Join(strings.Fields(r.answer.GetError()), " ")
}

// refusal returns err as it is told. What a handler did not mean to be told is logged as well.
func (a *API) refusal(ctx context.Context, subject string, err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	r := &refusal{codeFailed, &pb.ErrorAnswer{Error: err.Error(), Next: "ask again; if it stays so, look at the planner's log"}}
	if ctx.Err() != nil {
		r.code = codeUnavailable
		r.answer = &pb.ErrorAnswer{Error: "this planner is being stopped, or was too slow: " + err.Error(), Next: "ask again"}
	}
	a.log.WarnContext(ctx, "cannot answer", "subject", subject, "error", err)
	return r
}
