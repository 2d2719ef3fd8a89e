package app

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/seatrial/seatrial/internal/helm/chart"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/services/planner/internal/core"
	"github.com/seatrial/seatrial/services/planner/internal/request"
)

// Config is all that a planner can be told. Start from Defaults. Planners that run side by side should agree on it.
type Config struct {
	service.Config
	// Clusters are the names of the Kubernetes clusters that requests may name, and Pools the named tester pools, each
	// as cluster/pool: those that were provisioned.
	Clusters List
	Pools    List
	// Rules are what requests may ask for. Clusters and Pools become a part of them.
	Rules request.Rules
	// Charts says how charts are fetched. Run adds the uploads, and AllowPath from the rules.
	Charts chart.Fetcher
	// Policy holds the numbers that decisions go by.
	Policy core.Policy
	// Slots is how many requests, and how many outcomes, are handled at once; Fetches how many charts are fetched.
	Slots   int
	Fetches int
	// TakeOver is how long a release may stand still before it is taken for left by a planner that died.
	TakeOver time.Duration
	// Waiters is how many may wait here at once for their requests to be settled.
	Waiters int
}

// Defaults returns the configuration of a planner when nobody says anything: one cluster named `local`.
func Defaults() Config {
	return Config{
		Config:   service.Defaults("planner"),
		Clusters: List{"local"},
		Rules:    request.DefaultRules(),
		Charts:   chart.Fetcher{Timeout: 30 * time.Second, RegistryAuth: os.Getenv("DOCKER_AUTH_CONFIG")},
		Policy:   core.DefaultPolicy(),
		Slots:    16,
		Fetches:  4,
		TakeOver: 10 * time.Second,
		Waiters:  1000,
	}
}

// Flags adds a flag for each setting to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	c.Config.Flags(fs)
	fs.Var(&c.Clusters, "clusters", "`names` of the Kubernetes clusters, separated by commas")
	fs.Var(&c.Pools, "pools", "named tester pools as `cluster/pool`, separated by commas; every cluster has the default pool")

	fs.DurationVar(&c.Rules.MaxTestTimeout, "max-test-timeout", c.Rules.MaxTestTimeout, "longest time-out of one test that a request may ask for")
	fs.DurationVar(&c.Rules.MaxTestDeadline, "max-test-deadline", c.Rules.MaxTestDeadline, "longest deadline of a test run that a request may ask for")
	fs.DurationVar(&c.Rules.MaxUpgradeTimeout, "max-upgrade-timeout", c.Rules.MaxUpgradeTimeout, "longest time-out of a Helm operation that a request may ask for")
	fs.IntVar(&c.Rules.MaxParallel, "max-parallel", c.Rules.MaxParallel, "most tests at once that a request may ask for")
	fs.IntVar(&c.Rules.MaxAttempts, "max-attempts", c.Rules.MaxAttempts, "most attempts, and most errorAttempts, that a request may ask for")
	fs.IntVar(&c.Rules.MaxHistory, "max-history", c.Rules.MaxHistory, "most kept revisions that a request may ask for")
	fs.BoolVar(&c.Rules.AllowPaths, "allow-path-charts", c.Rules.AllowPaths, "let requests name packaged charts on this machine's disk: for development")

	fs.StringVar(&c.Charts.RegistryConfig, "registry-config", c.Charts.RegistryConfig, "Docker config.json `file` with the credentials for registries; without it the content of $DOCKER_AUTH_CONFIG")
	fs.StringVar(&c.Charts.RegistryCerts, "registry-certs", c.Charts.RegistryCerts, "`directory` with <host:port>/ca.crt, client.cert and client.key for registries")
	fs.StringVar(&c.Charts.RepositoryConfig, "repository-config", c.Charts.RepositoryConfig, "repositories.yaml `file` of Helm with the credentials and certificates for chart repositories")
	fs.Var((*List)(&c.Charts.PlainHTTP), "plain-http-registries", "`hosts` of registries and chart repositories that may be reached without TLS, each as it stands in requests, separated by commas")
	fs.Var((*always)(&c.Charts.VerifyAlways), "verify-charts", "`when` to verify the provenance of charts whose request does not ask for it: never or always")
	fs.StringVar(&c.Charts.Keyring, "keyring", c.Charts.Keyring, "`file` with the public keys, from GnuPG, that charts may be signed with")
	fs.DurationVar(&c.Charts.Timeout, "fetch-timeout", c.Charts.Timeout, "how long one try to fetch a chart may take")

	fs.DurationVar(&c.Policy.ResolveTimeout, "resolve-timeout", c.Policy.ResolveTimeout, "how long a chart may take to be fetched, all tries together")
	fs.DurationVar(&c.Policy.NoWorkerAfter, "no-worker-after", c.Policy.NoWorkerAfter, "how long a command may stay without a worker before an outcome says so")
	fs.DurationVar(&c.Policy.WithdrawAfter, "withdraw-after", c.Policy.WithdrawAfter, "how long a command may stay without a worker before it is withdrawn and its request fails")
	fs.Var((*count)(&c.Policy.TransientTries), "transient-tries", "`number` of tries in all at something that fails for a passing reason")
	fs.DurationVar(&c.Policy.TransientBudget, "transient-budget", c.Policy.TransientBudget, "the time within which these tries must lie")
	fs.DurationVar(&c.Policy.BackoffMin, "backoff-min", c.Policy.BackoffMin, "first pause between two tries; it doubles each time")
	fs.DurationVar(&c.Policy.BackoffMax, "backoff-max", c.Policy.BackoffMax, "longest pause between two tries")
	fs.Var((*count)(&c.Policy.InterruptedTries), "interrupted-tries", "`number` of tries in all at something over which its workers die")

	fs.DurationVar(&c.Policy.PublishRetry, "publish-retry", c.Policy.PublishRetry, "first pause before a command is queued again that found another one queued")
	fs.IntVar(&c.Policy.MaxRevisions, "max-revisions", c.Policy.MaxRevisions, "how many revisions of a release are remembered")
	fs.IntVar(&c.Policy.MaxQuarantined, "max-quarantined", c.Policy.MaxQuarantined, "how many inputs that failed are remembered of a release")

	fs.IntVar(&c.Slots, "slots", c.Slots, "how many requests, and how many outcomes, are handled at once")
	fs.IntVar(&c.Fetches, "fetches", c.Fetches, "how many charts are fetched at once")
	fs.DurationVar(&c.TakeOver, "take-over", c.TakeOver, "how long a release may stand still before it is taken for left by a planner that died")
	fs.IntVar(&c.Waiters, "waiters", c.Waiters, "how many may wait here at once for their requests to be settled")
}

// Validate checks what the types of the flags do not. It reports all that is wrong.
func (c Config) Validate() error {
	var errs []error
	positive := func(flag string, value any, ok bool) {
		if !ok {
			errs = append(errs, fmt.Errorf("--%s %v: must be more than zero", flag, value))
		}
	}
	for flag, d := range map[string]time.Duration{
		"max-test-timeout": c.Rules.MaxTestTimeout, "max-test-deadline": c.Rules.MaxTestDeadline, "max-upgrade-timeout": c.Rules.MaxUpgradeTimeout,
		"fetch-timeout": c.Charts.Timeout, "resolve-timeout": c.Policy.ResolveTimeout, "no-worker-after": c.Policy.NoWorkerAfter, "withdraw-after": c.Policy.WithdrawAfter,
		"transient-budget": c.Policy.TransientBudget, "backoff-min": c.Policy.BackoffMin, "backoff-max": c.Policy.BackoffMax,
		"publish-retry": c.Policy.PublishRetry, "take-over": c.TakeOver,
	} {
		positive(flag, d, d > 0)
	}
	for flag, n := range map[string]int{
		"max-parallel": c.Rules.MaxParallel, "max-attempts": c.Rules.MaxAttempts, "max-history": c.Rules.MaxHistory,
		"transient-tries": int(c.Policy.TransientTries), "interrupted-tries": int(c.Policy.InterruptedTries),
		"max-revisions": c.Policy.MaxRevisions, "max-quarantined": c.Policy.MaxQuarantined,
		"slots": c.Slots, "fetches": c.Fetches, "waiters": c.Waiters,
	} {
		positive(flag, n, n > 0)
	}
	if _, err := c.rules(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Charts.Validate(); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		errs = []error{fmt.Errorf("%w: %w", service.ErrUsage, errors.Join(errs...))}
	}
	return errors.Join(append(errs, c.Config.Validate())...)
}

// rules returns the rules with the clusters and pools in them.
func (c Config) rules() (request.Rules, error) {
	rules := c.Rules
	rules.Clusters = map[string][]string{}
	for _, name := range c.Clusters {
		rules.Clusters[name] = nil
	}
	if len(rules.Clusters) == 0 {
		return rules, errors.New("--clusters names none: every request would be rejected")
	}
	for _, entry := range c.Pools {
		cluster, pool, _ := strings.Cut(entry, "/")
		if _, known := rules.Clusters[cluster]; !known || pool == "" {
			return rules, fmt.Errorf("--pools %q: want cluster/pool, with one of the clusters %s",
				entry, strings.Join(slices.Sorted(maps.Keys(rules.Clusters)), ", "))
		}
		rules.Clusters[cluster] = append(rules.Clusters[cluster], pool)
	}
	return rules, nil
}
