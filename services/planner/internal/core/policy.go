package core

import "time"

// Policy holds the numbers that Decide goes by. All of them are the operator's to change.
type Policy struct {
	// ResolveTimeout is how long a chart may take to be found and fetched, all tries together.
	ResolveTimeout time.Duration

	// NoWorkerAfter is how long a command may stay without a worker's word before the outcome `noworker` tells so.
	// WithdrawAfter is how long before it is withdrawn and its request settles `failed`. Once a worker has started, both
	// count from the end of the time that the command itself allows.
	NoWorkerAfter time.Duration
	WithdrawAfter time.Duration

	// TransientTries is how often a command (or the fetching of a chart) is tried in all when its failures are
	// transient, and TransientBudget the time in which the tries must lie. Between two tries lies a pause of BackoffMin,
	// doubling up to BackoffMax, of which jitter takes at most half away.
	TransientTries  int32
	TransientBudget time.Duration
	BackoffMin      time.Duration
	BackoffMax      time.Duration

	// InterruptedTries is how often a command is tried in all when its workers die.
	InterruptedTries int32

	// PublishRetry is the first pause before a command is published again whose subject was taken.
	PublishRetry time.Duration

	// MaxRevisions, at least 2, and MaxQuarantined bound what is remembered of a release: the oldest is forgotten first,
	// what runs and the last proven revision never.
	MaxRevisions   int
	MaxQuarantined int
}

// DefaultPolicy returns the numbers that hold where the operator sets none.
func DefaultPolicy() Policy {
	return Policy{
		ResolveTimeout:   2 * time.Minute,
		NoWorkerAfter:    30 * time.Second,
		WithdrawAfter:    10 * time.Minute,
		TransientTries:   5,
		TransientBudget:  10 * time.Minute,
		BackoffMin:       2 * time.Second,
		BackoffMax:       time.Minute,
		InterruptedTries: 5,
		PublishRetry:     100 * time.Millisecond,
		MaxRevisions:     10,
		MaxQuarantined:   50,
	}
}
