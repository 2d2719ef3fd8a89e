// Package subject names everything that lives on NATS: subjects, streams, consumers and buckets. Nothing else
// concatenates or splits a subject.
package subject

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Streams.
const (
	StreamRequests = "SEATRIAL_REQUESTS"
	StreamCommands = "SEATRIAL_COMMANDS"
	StreamOutcomes = "SEATRIAL_OUTCOMES"
	StreamEvents   = "SEATRIAL_EVENTS"
	StreamReceipts = "SEATRIAL_RECEIPTS"
	StreamDead     = "SEATRIAL_DEAD"
)

// Key-value buckets and object stores.
const (
	BucketReleases    = "seatrial-releases"
	BucketRequests    = "seatrial-requests"
	BucketLedger      = "seatrial-ledger"
	BucketLeases      = "seatrial-leases"
	BucketSubscribers = "seatrial-subscribers"
	ObjectsCharts     = "seatrial-charts"
	ObjectsUploads    = "seatrial-uploads"
	ObjectsLogs       = "seatrial-logs"
)

// Wildcards of the streams and of the services' filters.
const (
	AllRequests = "seatrial.request.>"
	AllCommands = "seatrial.command.>"
	AllOutcomes = "seatrial.outcome.>"
	AllEvents   = "seatrial.event.>"
	AllReceipts = "seatrial.receipt.>"
	AllDead     = "seatrial.dead.>"
)

// Durable consumers with one name everywhere: the planner's on SEATRIAL_REQUESTS and on SEATRIAL_OUTCOMES, and the
// notifier's on SEATRIAL_OUTCOMES.
const (
	ConsumerPlanner  = "planner"
	ConsumerNotifier = "notifier"
)

// ErrInvalid is returned for a subject or a release that does not have the form that its parser documents.
var ErrInvalid = errors.New("invalid name")

// Release names one Helm release in one cluster. Its string form is cluster/namespace/name.
type Release struct {
	Cluster   string
	Namespace string
	Name      string
}

// name is a DNS-1123 subdomain, the rule of Kubernetes and Helm for the names that stand in a subject.
var name = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// word is the form of verbs and kinds.
var word = regexp.MustCompile(`^[a-z]+$`)

// ParseRelease parses cluster/namespace/name.
func ParseRelease(s string) (Release, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return Release{}, fmt.Errorf("%w: release %q: want cluster/namespace/name", ErrInvalid, s)
	}
	r := Release{Cluster: parts[0], Namespace: parts[1], Name: parts[2]}
	return r, r.Validate()
}

// Validate checks the parts as Kubernetes and Helm do: DNS-1123 names, the release at most 53 characters (Helm's
// limit), the namespace at most 63 and without dots, the cluster at most 63.
func (r Release) Validate() error {
	if err := ValidateCluster(r.Cluster); err != nil {
		return err
	}
	if err := validateNamespace(r.Namespace); err != nil {
		return err
	}
	return validate("release", r.Name, 53)
}

func validateNamespace(namespace string) error {
	if err := validate("namespace", namespace, 63); err != nil {
		return err
	}
	if strings.Contains(namespace, ".") {
		return fmt.Errorf("%w: namespace %q: no namespace of Kubernetes has a dot", ErrInvalid, namespace)
	}
	return nil
}

// ValidateCluster checks the name of a cluster.
func ValidateCluster(cluster string) error { return validate("cluster", cluster, 63) }

// ValidatePool checks the name of a tester pool. The default pool has no name, and needs no check.
func ValidatePool(pool string) error { return validate("pool", pool, 63) }

func validate(field, value string, most int) error {
	if len(value) > most || !name.MatchString(value) {
		return fmt.Errorf("%w: %s %q: want at most %d characters of a-z, 0-9, - and ., starting and ending with a letter or digit",
			ErrInvalid, field, value, most)
	}
	return nil
}

// String returns cluster/namespace/name.
func (r Release) String() string { return r.Cluster + "/" + r.Namespace + "/" + r.Name }

// Key returns the release's key in a bucket: <cluster>.<namespace>.<release>, the tail of its subjects.
func (r Release) Key() string {
	return token(r.Cluster) + "." + token(r.Namespace) + "." + token(r.Name)
}

// ParseKey is the reverse of Key.
func ParseKey(key string) (Release, error) {
	return fromTokens(key, strings.Split(key, "."))
}

// Request returns seatrial.request.<verb>.<cluster>.<namespace>.<release>.
func Request(verb string, r Release) string { return "seatrial.request." + verb + "." + r.Key() }

// ParseRequest is the reverse of Request.
func ParseRequest(s string) (verb string, r Release, err error) {
	return parse("seatrial.request.", s)
}

// CommandExecute returns seatrial.command.execute.<cluster>.<namespace>.<release>.
func CommandExecute(r Release) string { return "seatrial.command.execute." + r.Key() }

// CommandTest returns seatrial.command.test.<cluster>.<namespace>.<release>, or test-<pool> for a named pool.
func CommandTest(pool string, r Release) string {
	return "seatrial.command." + testToken(pool) + "." + r.Key()
}

// ExecuteFilter returns the filter of the executors of a cluster.
func ExecuteFilter(cluster string) string {
	return "seatrial.command.execute." + token(cluster) + ".>"
}

// TestFilter returns the filter of the testers of a cluster and pool; the empty pool is the default one.
func TestFilter(cluster, pool string) string {
	return "seatrial.command." + testToken(pool) + "." + token(cluster) + ".>"
}

// ConsumerExecutor returns the durable consumer that the executors of a cluster share.
func ConsumerExecutor(cluster string) string { return "executor-" + token(cluster) }

// ConsumerTester returns the durable consumer that the testers of a cluster and pool share.
func ConsumerTester(cluster, pool string) string {
	if pool == "" {
		return "tester-" + token(cluster)
	}
	// A cluster's name cannot hold a `_` followed by another, so no cluster collides with another one's pool.
	return "tester-" + token(cluster) + "__" + token(pool)
}

// Outcome returns seatrial.outcome.<kind>.<cluster>.<namespace>.<release>.
func Outcome(kind string, r Release) string { return "seatrial.outcome." + kind + "." + r.Key() }

// OutcomeFilter returns the filter of one kind of outcome over all releases.
func OutcomeFilter(kind string) string { return "seatrial.outcome." + kind + ".>" }

// ParseOutcome is the reverse of Outcome.
func ParseOutcome(s string) (kind string, r Release, err error) {
	return parse("seatrial.outcome.", s)
}

// Event returns seatrial.event.<kind>.<cluster>.<namespace>.<release>.
func Event(kind string, r Release) string { return "seatrial.event." + kind + "." + r.Key() }

// Dead returns seatrial.dead.<service>.
func Dead(service string) string { return "seatrial.dead." + service }

// Log returns seatrial.log.<cluster>.<namespace>.<release>.<number>.<test>.<container>.
func Log(r Release, number uint32, test, container string) string {
	return "seatrial.log." + r.Key() + "." + strconv.FormatUint(uint64(number), 10) + "." + token(test) + "." + token(container)
}

// APIFilter returns the subject on which a micro service listens for one verb of the API.
func APIFilter(verb string) string { return "seatrial.api." + verb + ".*.*.*" }

// API returns seatrial.api.<verb>.<cluster>.<namespace>.<release>.
func API(verb string, r Release) string { return "seatrial.api." + verb + "." + r.Key() }

// ParseAPI is the reverse of API.
func ParseAPI(s string) (verb string, r Release, err error) {
	return parse("seatrial.api.", s)
}

// APIListFilters returns the subjects on which a micro service listens for questions about many releases: everywhere, in a
// cluster, in a namespace.
func APIListFilters() []string { return []string{apiList, apiList + ".*", apiList + ".*.*"} }

const apiList = "seatrial.api.list"

// APIList returns seatrial.api.list, seatrial.api.list.<cluster> or seatrial.api.list.<cluster>.<namespace>: a question about
// many releases ends at what it asks for. Empty is all; a namespace needs its cluster.
func APIList(cluster, namespace string) string {
	return strings.TrimSuffix(apiList+"."+Keys(cluster, namespace), ".>")
}

// ParseAPIList is the reverse of APIList.
func ParseAPIList(s string) (cluster, namespace string, err error) {
	tail, ok := strings.CutPrefix(s+".", apiList+".")
	tokens := strings.Split(tail, ".")
	if !ok || len(tokens) > 3 {
		return "", "", fmt.Errorf("%w: subject %q: want %s, with .<cluster> or .<cluster>.<namespace> behind it", ErrInvalid, s, apiList)
	}
	if len(tokens) > 1 {
		cluster = untoken(tokens[0])
		err = ValidateCluster(cluster)
	}
	if len(tokens) > 2 {
		namespace = untoken(tokens[1])
		err = errors.Join(err, validateNamespace(namespace))
	}
	return cluster, namespace, err
}

// Keys returns the filter of the keys of a bucket by release, for all releases, those of a cluster, or of a namespace.
func Keys(cluster, namespace string) string {
	switch {
	case cluster == "":
		return ">"
	case namespace == "":
		return token(cluster) + ".>"
	default:
		return token(cluster) + "." + token(namespace) + ".>"
	}
}

func testToken(pool string) string {
	if pool == "" {
		return "test"
	}
	return "test-" + token(pool)
}

func parse(prefix, s string) (first string, r Release, err error) {
	tail, ok := strings.CutPrefix(s, prefix)
	tokens := strings.Split(tail, ".")
	if !ok || len(tokens) != 4 || !word.MatchString(tokens[0]) {
		return "", Release{}, fmt.Errorf("%w: subject %q: want %s<word>.<cluster>.<namespace>.<release>", ErrInvalid, s, prefix)
	}
	r, err = fromTokens(s, tokens[1:])
	return tokens[0], r, err
}

func fromTokens(whole string, tokens []string) (Release, error) {
	if len(tokens) != 3 {
		return Release{}, fmt.Errorf("%w: %q: want <cluster>.<namespace>.<release>", ErrInvalid, whole)
	}
	r := Release{Cluster: untoken(tokens[0]), Namespace: untoken(tokens[1]), Name: untoken(tokens[2])}
	return r, r.Validate()
}

// token makes one subject token of a name: a dot becomes `_`, which no Kubernetes name can hold, so untoken reverses it.
func token(name string) string { return strings.ReplaceAll(name, ".", "_") }

func untoken(token string) string { return strings.ReplaceAll(token, "_", ".") }
