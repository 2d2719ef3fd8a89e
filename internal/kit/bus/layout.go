package bus

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

const (
	day = 24 * time.Hour

	// maxAckPending is large because messages that wait for their next try count: a few busy releases must not keep all
	// others waiting. How much is worked on at once is up to the slots of each process.
	maxAckPending = 10_000

	// markerTTL is how long a bucket tells its watchers that a lease has expired.
	markerTTL = time.Minute
)

// Layout says what there is to provision. Start from DefaultLayout.
type Layout struct {
	// Clusters are those that executors and testers work for.
	Clusters []Cluster
	// Replicas of everything, each on a server of its own: 1, 3 or 5.
	Replicas int
	// AckWait is after how long without a sign of life a message is given to somebody else. It must be longer than the
	// restart of a server.
	AckWait time.Duration
}

// Cluster is a Kubernetes cluster with its tester pools. The default pool is always there; Pools are the named ones.
type Cluster struct {
	Name  string
	Pools []string
}

// DefaultLayout is one cluster named `local`, on one server.
func DefaultLayout() Layout {
	return Layout{Clusters: []Cluster{{Name: "local"}}, Replicas: 1, AckWait: 30 * time.Second}
}

// Validate checks names and numbers, and that nothing is there twice. It reports all that is wrong.
func (l Layout) Validate() error {
	var errs []error
	if len(l.Clusters) == 0 {
		errs = append(errs, errors.New("no cluster is named"))
	}
	if l.Replicas != 1 && l.Replicas != 3 && l.Replicas != 5 {
		errs = append(errs, fmt.Errorf("replicas %d: want 1, 3 or 5", l.Replicas))
	}
	if l.AckWait < time.Second {
		errs = append(errs, fmt.Errorf("ack wait %s: want at least 1s", l.AckWait))
	}
	clusters := map[string]bool{}
	for _, cluster := range l.Clusters {
		if err := subject.ValidateCluster(cluster.Name); err != nil {
			errs = append(errs, err)
		}
		if clusters[cluster.Name] {
			errs = append(errs, fmt.Errorf("cluster %q is named twice", cluster.Name))
		}
		clusters[cluster.Name] = true
		pools := map[string]bool{}
		for _, pool := range cluster.Pools {
			if err := subject.ValidatePool(pool); err != nil {
				errs = append(errs, fmt.Errorf("cluster %q: %w", cluster.Name, err))
			}
			if pools[pool] {
				errs = append(errs, fmt.Errorf("cluster %q: pool %q is named twice", cluster.Name, pool))
			}
			pools[pool] = true
		}
	}
	return errors.Join(errs...)
}

// streams returns what each stream is like.
func (l Layout) streams() []jetstream.StreamConfig {
	kept := func(name, subjects, description string, age time.Duration) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name:        name,
			Description: description,
			Subjects:    []string{subjects},
			Retention:   jetstream.LimitsPolicy,
			Storage:     jetstream.FileStorage,
			Replicas:    l.Replicas,
			MaxAge:      age,
			Duplicates:  2 * time.Minute,
			AllowDirect: true,
		}
	}
	requests := kept(subject.StreamRequests, subject.AllRequests, "What people and pipelines want", 30*day)
	// The planner knows a repeated request by its id for 30 days, and tells when the body is another one. A stream that
	// drops it unseen would keep that from happening; this is the shortest window there is.
	requests.Duplicates = 100 * time.Millisecond

	outcomes := kept(subject.StreamOutcomes, subject.AllOutcomes, "What happened: the audit trail", 90*day)
	outcomes.Duplicates = 6 * time.Hour
	outcomes.DenyDelete = true
	outcomes.DenyPurge = true

	// An outcome that comes again becomes the same event again, with the same id: not twice in the stream.
	events := kept(subject.StreamEvents, subject.AllEvents, "CloudEvents for subscribers", 30*day)
	events.Duplicates = outcomes.Duplicates

	return []jetstream.StreamConfig{
		requests,
		{
			Name:        subject.StreamCommands,
			Description: "Orders for the workers, one for each release and kind of worker",
			Subjects:    []string{subject.AllCommands},
			Retention:   jetstream.WorkQueuePolicy,
			Storage:     jetstream.FileStorage,
			Replicas:    l.Replicas,
			// Together they refuse a second command on a subject while the first is queued or being worked on.
			MaxMsgsPerSubject:    1,
			Discard:              jetstream.DiscardNew,
			DiscardNewPerSubject: true,
			Duplicates:           2 * time.Minute,
		},
		outcomes,
		events,
		kept(subject.StreamReceipts, subject.AllReceipts, "What each webhook sink answered", 30*day),
		kept(subject.StreamDead, subject.AllDead, "Messages that were given up, with the reason", 30*day),
	}
}

// buckets returns what each key-value bucket is like.
func (l Layout) buckets() []jetstream.KeyValueConfig {
	bucket := func(name, description string, history uint8) jetstream.KeyValueConfig {
		return jetstream.KeyValueConfig{
			Bucket:      name,
			Description: description,
			History:     history,
			Storage:     jetstream.FileStorage,
			Replicas:    l.Replicas,
		}
	}
	requests := bucket(subject.BucketRequests, "Requests by id", 1)
	requests.TTL = 30 * day
	// One value per key, or an expired lease would uncover the one before it.
	leases := bucket(subject.BucketLeases, "Who acts on a release now", 1)
	leases.LimitMarkerTTL = markerTTL
	return []jetstream.KeyValueConfig{
		bucket(subject.BucketReleases, "The planner's state of each release", 10),
		requests,
		bucket(subject.BucketLedger, "The highest command begun for each release, and its outcome", 10),
		leases,
		bucket(subject.BucketSubscribers, "Webhook subscribers, without their secrets", 5),
	}
}

// objects returns what each object store is like.
func (l Layout) objects() []jetstream.ObjectStoreConfig {
	store := func(name, description string, age time.Duration) jetstream.ObjectStoreConfig {
		return jetstream.ObjectStoreConfig{
			Bucket:      name,
			Description: description,
			TTL:         age,
			Storage:     jetstream.FileStorage,
			Replicas:    l.Replicas,
		}
	}
	return []jetstream.ObjectStoreConfig{
		store(subject.ObjectsCharts, "Chart archives by digest", 0),
		store(subject.ObjectsUploads, "Chart archives that people put here", 0),
		store(subject.ObjectsLogs, "Whole logs and JUnit of test runs", 90*day),
	}
}

// consumer is a durable consumer of a stream.
type consumer struct {
	stream string
	config jetstream.ConsumerConfig
}

// plannerKinds are the outcomes of executors and testers, by which the planner decides.
var plannerKinds = []string{
	seatrialv1.KindBlocked,
	seatrialv1.KindDeploying, seatrialv1.KindDeployed, seatrialv1.KindDeployFailed,
	seatrialv1.KindRollingBack, seatrialv1.KindRolledBack, seatrialv1.KindRollbackFailed,
	seatrialv1.KindUninstalling, seatrialv1.KindUninstalled, seatrialv1.KindUninstallFailed,
	seatrialv1.KindTesting, seatrialv1.KindTested,
	seatrialv1.KindInterrupted,
}

// notifierKinds are the outcomes that become events.
var notifierKinds = []string{
	seatrialv1.KindAccepted,
	seatrialv1.KindNoWorker, seatrialv1.KindBlocked,
	seatrialv1.KindDeploying, seatrialv1.KindDeployed, seatrialv1.KindDeployFailed,
	seatrialv1.KindRollingBack, seatrialv1.KindRolledBack, seatrialv1.KindRollbackFailed,
	seatrialv1.KindUninstalling, seatrialv1.KindUninstalled, seatrialv1.KindUninstallFailed,
	seatrialv1.KindTesting, seatrialv1.KindTested,
	seatrialv1.KindSettled,
}

// consumers returns the durable consumers of all services.
func (l Layout) consumers() []consumer {
	durable := func(stream, name string, filters ...string) consumer {
		return consumer{stream, jetstream.ConsumerConfig{
			Durable:        name,
			FilterSubjects: filters,
			DeliverPolicy:  jetstream.DeliverAllPolicy,
			AckPolicy:      jetstream.AckExplicitPolicy,
			AckWait:        l.AckWait,
			// A message over its deliveries would stay in the stream, skipped and unseen. Who handles it gives it up.
			MaxDeliver:    -1,
			MaxAckPending: maxAckPending,
			// Replicas are those of its stream, also when they change.
		}}
	}
	all := []consumer{
		durable(subject.StreamRequests, subject.ConsumerPlanner, subject.AllRequests),
		durable(subject.StreamOutcomes, subject.ConsumerPlanner, outcomeFilters(plannerKinds)...),
		durable(subject.StreamOutcomes, subject.ConsumerNotifier, outcomeFilters(notifierKinds)...),
	}
	for _, cluster := range l.Clusters {
		name := cluster.Name
		all = append(all,
			durable(subject.StreamCommands, subject.ConsumerExecutor(name), subject.ExecuteFilter(name)),
			durable(subject.StreamCommands, subject.ConsumerTester(name, ""), subject.TestFilter(name, "")))
		for _, pool := range cluster.Pools {
			all = append(all, durable(subject.StreamCommands, subject.ConsumerTester(name, pool), subject.TestFilter(name, pool)))
		}
	}
	return all
}

func outcomeFilters(kinds []string) []string {
	filters := make([]string, len(kinds))
	for i, kind := range kinds {
		filters[i] = subject.OutcomeFilter(kind)
	}
	return filters
}
