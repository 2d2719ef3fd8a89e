// Package fault makes errors that carry how they may be handled. The class is given where an error arises, by the code
// that knows; nobody reads it out of a text later.
package fault

import (
	"errors"
	"fmt"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Error is an error with a class (one of the Class constants of proto/seatrial/v1), and with what a person can do next.
type Error struct {
	Class string
	Next  string
	Err   error
}

// New returns an error of the class, whose text is made from format and args as by fmt.Errorf.
func New(class, next, format string, args ...any) error {
	return &Error{Class: class, Next: next, Err: fmt.Errorf(format, args...)}
}

// Error returns the text without class and next step.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Class returns the class of the first Error in err's tree, and `transient` for any other error: what nobody classed is
// tried again within a budget.
func Class(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return seatrialv1.ClassTransient
}

// Failure returns err as it travels in an outcome.
func Failure(err error) *seatrialv1.Failure {
	f := &seatrialv1.Failure{Class: Class(err), Reason: err.Error()}
	if e, ok := errors.AsType[*Error](err); ok {
		f.Next = e.Next
	}
	return f
}
