package bus

import "errors"

var (
	// ErrClosed is returned when the connection is closed for good. The process should end.
	ErrClosed = errors.New("the NATS connection is closed")

	// ErrNotFound is returned for a key, an object, a stream or a consumer that does not exist.
	ErrNotFound = errors.New("not found")

	// ErrConflict is returned by a compare-and-set that lost: somebody else wrote the key. Read it and decide again.
	ErrConflict = errors.New("somebody else wrote the key")

	// ErrTooLarge is returned for a message, a value or an object over a limit. The text has size and limit.
	ErrTooLarge = errors.New("too large")

	// ErrSubjectTaken is returned by PublishCommand while another command for the same release and worker is queued or
	// being worked on. Try again later.
	ErrSubjectTaken = errors.New("another command is still queued on the subject")

	// ErrDrift is returned by Provision for something that exists with a setting that cannot be changed.
	ErrDrift = errors.New("exists with a setting that cannot be changed")

	// ErrLeaseLost is why a claim ended: its lease was not confirmed for too long, or is somebody else's.
	ErrLeaseLost = errors.New("the lease is lost")

	// ErrTakenOver is why a claim ended: another holder wrote the ledger row of its release.
	ErrTakenOver = errors.New("the command was taken over by another holder")

	// ErrEnded is why Do is called off: the planner has ended the command, cancelled or withdrawn. Its outcome stands; the
	// lease is still held, to leave things in order.
	ErrEnded = errors.New("the command was ended by the planner")

	// ErrStuck is returned by a worker whose Do went on although its context has ended. Only the end of the process ends
	// it, and gives its slot back.
	ErrStuck = errors.New("the work does not end")

	// ErrShutdown is why a handler's context ended: the process was told to stop, and the grace is over.
	ErrShutdown = errors.New("the process shuts down")
)
