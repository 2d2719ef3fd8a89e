package request

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Rules are what the operator allows.
type Rules struct {
	// Clusters are the clusters that are served, each with its named tester pools.
	Clusters map[string][]string
	// MaxTestTimeout caps the time-out of one test, MaxTestDeadline that of a whole run, MaxUpgradeTimeout that of a
	// Helm operation. They also cap the defaults.
	MaxTestTimeout, MaxTestDeadline, MaxUpgradeTimeout time.Duration
	// MaxParallel, MaxAttempts and MaxHistory cap the numbers of the same names; MaxAttempts also errorAttempts.
	MaxParallel, MaxAttempts, MaxHistory int
	// AllowPaths lets requests name packaged charts on the planner's own disk.
	AllowPaths bool
}

// Defaults of requests.
const (
	defaultTestTimeout    = 5 * time.Minute
	defaultTestDeadline   = 15 * time.Minute
	defaultUpgradeTimeout = 5 * time.Minute
	defaultParallel       = 1
	defaultAttempts       = 1
	defaultErrorAttempts  = 2
	defaultHistory        = 10
)

// Limits that are not the operator's to move: they keep a release's state within one NATS message.
const (
	maxBody   = 512 << 10
	maxValues = 256 << 10
	maxRest   = 64 << 10
)

// DefaultRules serve no cluster yet.
func DefaultRules() Rules {
	return Rules{
		MaxTestTimeout:    time.Hour,
		MaxTestDeadline:   4 * time.Hour,
		MaxUpgradeTimeout: time.Hour,
		MaxParallel:       16,
		MaxAttempts:       5,
		MaxHistory:        100,
	}
}

// clusters lists the clusters for people.
func (r Rules) clusters() string {
	return strings.Join(slices.Sorted(maps.Keys(r.Clusters)), ", ")
}
