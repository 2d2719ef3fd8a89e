package bus_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
)

const day = 24 * time.Hour

func streamConfig(t *testing.T, c *bus.Conn, name string) jetstream.StreamConfig {
	t.Helper()
	stream, err := c.JS.Stream(t.Context(), name)
	require.NoError(t, err)
	return stream.CachedInfo().Config
}

func consumerConfig(t *testing.T, c *bus.Conn, stream, name string) jetstream.ConsumerConfig {
	t.Helper()
	consumer, err := c.JS.Consumer(t.Context(), stream, name)
	require.NoError(t, err)
	return consumer.CachedInfo().Config
}

func TestProvisionMakesTheStreams(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	for name, want := range map[string]struct {
		subjects string
		age      time.Duration
	}{
		"SEATRIAL_REQUESTS": {"seatrial.request.>", 30 * day},
		"SEATRIAL_COMMANDS": {"seatrial.command.>", 0},
		"SEATRIAL_OUTCOMES": {"seatrial.outcome.>", 90 * day},
		"SEATRIAL_EVENTS":   {"seatrial.event.>", 30 * day},
		"SEATRIAL_RECEIPTS": {"seatrial.receipt.>", 30 * day},
		"SEATRIAL_DEAD":     {"seatrial.dead.>", 30 * day},
	} {
		config := streamConfig(t, c, name)
		require.Equal(t, []string{want.subjects}, config.Subjects, name)
		require.Equal(t, want.age, config.MaxAge, name)
		require.Equal(t, jetstream.FileStorage, config.Storage, name)
		require.NotEmpty(t, config.Description, name)
	}
	commands := streamConfig(t, c, "SEATRIAL_COMMANDS")
	require.Equal(t, jetstream.WorkQueuePolicy, commands.Retention)
	require.EqualValues(t, 1, commands.MaxMsgsPerSubject)
	require.Equal(t, jetstream.DiscardNew, commands.Discard)
	require.True(t, commands.DiscardNewPerSubject)

	outcomes := streamConfig(t, c, "SEATRIAL_OUTCOMES")
	require.GreaterOrEqual(t, outcomes.Duplicates, 2*time.Hour)
}

func TestTheAuditTrailCannotBeChanged(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	require.NoError(t, c.PublishOutcomeBytes(t.Context(), "settled", newRelease(), "1", []byte("{}")))
	stream, err := c.JS.Stream(t.Context(), "SEATRIAL_OUTCOMES")
	require.NoError(t, err)
	require.Error(t, stream.DeleteMsg(t.Context(), 1))
	require.Error(t, stream.Purge(t.Context()))
	require.Len(t, messages(t, c, "SEATRIAL_OUTCOMES", subject.AllOutcomes), 1)
}

// An id that is used again, with another body, must reach the planner, which tells.
func TestARequestUnderAUsedIDIsNotDroppedUnseen(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	first, err := c.JS.Publish(t.Context(), subject.Request("deploy", newRelease()), []byte("a"), jetstream.WithMsgID("id-1"))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		again, err := c.JS.Publish(context.Background(), subject.Request("deploy", newRelease()), []byte("b"), jetstream.WithMsgID("id-1"))
		return err == nil && again.Sequence > first.Sequence
	}, soon, 50*time.Millisecond)
}

func TestProvisionMakesTheBucketsAndObjectStores(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	for name, want := range map[string]struct {
		age     time.Duration
		history int64
		marker  time.Duration
	}{
		"KV_seatrial-releases":    {0, 10, 0},
		"KV_seatrial-requests":    {30 * day, 1, 0},
		"KV_seatrial-ledger":      {0, 10, 0},
		"KV_seatrial-leases":      {0, 1, time.Minute},
		"KV_seatrial-subscribers": {0, 5, 0},
		"OBJ_seatrial-charts":     {0, -1, 0},
		"OBJ_seatrial-uploads":    {0, -1, 0},
		"OBJ_seatrial-logs":       {90 * day, -1, 0},
	} {
		config := streamConfig(t, c, name)
		require.Equal(t, want.age, config.MaxAge, name)
		require.Equal(t, want.history, config.MaxMsgsPerSubject, name)
		require.Equal(t, want.marker, config.SubjectDeleteMarkerTTL, name)
		require.Equal(t, want.marker > 0, config.AllowMsgTTL, name)
	}
}

func TestProvisionMakesTheConsumersOfAllServicesClustersAndPools(t *testing.T) {
	t.Parallel()
	l := layout()
	l.Clusters = append(l.Clusters, bus.Cluster{Name: "prod.eu"})
	l.AckWait = 42 * time.Second
	c := kittest.Connect(t, kittest.Provisioned(t, l).URL)
	for _, want := range []struct {
		stream, name string
		filters      []string
	}{
		{"SEATRIAL_REQUESTS", "planner", []string{"seatrial.request.>"}},
		{"SEATRIAL_OUTCOMES", "planner", outcomeFilters(
			"blocked", "deploying", "deployed", "deployfailed", "rollingback", "rolledback", "rollbackfailed",
			"uninstalling", "uninstalled", "uninstallfailed", "testing", "tested", "interrupted")},
		{"SEATRIAL_OUTCOMES", "notifier", outcomeFilters(
			"accepted", "noworker", "blocked", "deploying", "deployed", "deployfailed", "rollingback", "rolledback", "rollbackfailed",
			"uninstalling", "uninstalled", "uninstallfailed", "testing", "tested", "settled")},
		{"SEATRIAL_COMMANDS", "executor-local", []string{"seatrial.command.execute.local.>"}},
		{"SEATRIAL_COMMANDS", "tester-local", []string{"seatrial.command.test.local.>"}},
		{"SEATRIAL_COMMANDS", "tester-local__gpu", []string{"seatrial.command.test-gpu.local.>"}},
		{"SEATRIAL_COMMANDS", "executor-prod_eu", []string{"seatrial.command.execute.prod_eu.>"}},
		{"SEATRIAL_COMMANDS", "tester-prod_eu", []string{"seatrial.command.test.prod_eu.>"}},
	} {
		config := consumerConfig(t, c, want.stream, want.name)
		require.ElementsMatch(t, want.filters, config.FilterSubjects, want.name)
		require.Equal(t, jetstream.AckExplicitPolicy, config.AckPolicy, want.name)
		require.Equal(t, jetstream.DeliverAllPolicy, config.DeliverPolicy, want.name)
		require.Equal(t, 42*time.Second, config.AckWait, want.name)
		require.Empty(t, config.BackOff, want.name)
		require.Equal(t, -1, config.MaxDeliver, want.name)
		require.GreaterOrEqual(t, config.MaxAckPending, 10_000, want.name)
	}
}

func outcomeFilters(kinds ...string) []string {
	var filters []string
	for _, kind := range kinds {
		filters = append(filters, "seatrial.outcome."+kind+".>")
	}
	return filters
}

// lines collects log messages.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.all, ""), text)
}

func testProvisionAgain(t *testing.T, p place) {
	said := &lines{}
	require.NoError(t, bus.Provision(t.Context(), kittest.Connect(t, p.url).JS, p.layout, slog.New(slog.NewTextHandler(said, nil))))
	require.False(t, said.has("created"))
	require.False(t, said.has("changed"))
}

func TestProvisionChangesWhatIsDifferentAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	r := newRelease()
	require.NoError(t, c.PublishOutcomeBytes(t.Context(), "deployed", r, "1", []byte("{}")))
	update := func(name string, change func(*jetstream.StreamConfig)) {
		config := streamConfig(t, c, name)
		change(&config)
		_, err := c.JS.UpdateStream(t.Context(), config)
		require.NoError(t, err)
	}
	update("SEATRIAL_OUTCOMES", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour * 24; c.MaxBytes = 1 << 30 })
	update("SEATRIAL_COMMANDS", func(c *jetstream.StreamConfig) { c.DiscardNewPerSubject = false; c.MaxMsgsPerSubject = -1 })
	update("KV_seatrial-requests", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	update("OBJ_seatrial-logs", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour })
	_, err := c.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{"theirs"}})
	require.NoError(t, err)
	planner := consumerConfig(t, c, "SEATRIAL_OUTCOMES", "planner")
	planner.FilterSubjects = []string{"seatrial.outcome.deployed.>"}
	planner.MaxAckPending = 1
	_, err = c.JS.UpdateConsumer(t.Context(), "SEATRIAL_OUTCOMES", planner)
	require.NoError(t, err)

	l := layout()
	l.Clusters = append(l.Clusters, bus.Cluster{Name: "new"})
	l.Clusters[0].Pools = nil // a pool that is not named any more
	s.Provision(t, l)
	outcomes := streamConfig(t, c, "SEATRIAL_OUTCOMES")
	require.Equal(t, 90*day, outcomes.MaxAge)
	require.EqualValues(t, 1<<30, outcomes.MaxBytes, "what the layout says nothing about stays")
	require.True(t, streamConfig(t, c, "SEATRIAL_COMMANDS").DiscardNewPerSubject)
	require.EqualValues(t, 1, streamConfig(t, c, "SEATRIAL_COMMANDS").MaxMsgsPerSubject)
	require.Equal(t, 30*day, streamConfig(t, c, "KV_seatrial-requests").MaxAge)
	require.Equal(t, 90*day, streamConfig(t, c, "OBJ_seatrial-logs").MaxAge)
	require.Len(t, consumerConfig(t, c, "SEATRIAL_OUTCOMES", "planner").FilterSubjects, 13)
	require.Equal(t, 10_000, consumerConfig(t, c, "SEATRIAL_OUTCOMES", "planner").MaxAckPending)
	consumerConfig(t, c, "SEATRIAL_COMMANDS", "executor-new")
	consumerConfig(t, c, "SEATRIAL_COMMANDS", "tester-local__gpu")
	streamConfig(t, c, "THEIRS")
	require.Len(t, messages(t, c, "SEATRIAL_OUTCOMES", subject.AllOutcomes), 1, "nothing is lost")
}

func TestProvisionSpreadsOverMoreServers(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Cluster3(t, layout()).URL)
	require.Equal(t, 1, streamConfig(t, c, "SEATRIAL_COMMANDS").Replicas)
	l := layout()
	l.Replicas = 3
	require.NoError(t, bus.Provision(t.Context(), c.JS, l, kittest.Logger(t)))
	for _, stream := range []string{"SEATRIAL_COMMANDS", "KV_seatrial-ledger", "OBJ_seatrial-charts"} {
		require.Equal(t, 3, streamConfig(t, c, stream).Replicas, stream)
	}
	eventually(t, func() bool {
		consumer, err := c.JS.Consumer(t.Context(), "SEATRIAL_COMMANDS", "executor-local")
		require.NoError(t, err)
		cluster := consumer.CachedInfo().Cluster
		return cluster != nil && len(cluster.Replicas) == 2
	}, "the consumers go with their streams")
}

func TestProvisionRefusesWhatCannotBeChanged(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		make func(ctx context.Context, js jetstream.JetStream) error
		want string
	}{
		"retention of a stream": {
			func(ctx context.Context, js jetstream.JetStream) error {
				_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "SEATRIAL_COMMANDS", Subjects: []string{"seatrial.command.>"}})
				return err
			},
			"stream SEATRIAL_COMMANDS: exists with a setting that cannot be changed: retention is Limits, wanted is WorkQueue",
		},
		"storage of a stream": {
			func(ctx context.Context, js jetstream.JetStream) error {
				_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "SEATRIAL_EVENTS", Subjects: []string{"seatrial.event.>"}, Storage: jetstream.MemoryStorage})
				return err
			},
			"stream SEATRIAL_EVENTS: exists with a setting that cannot be changed: storage is Memory, wanted is File",
		},
		"storage of a bucket": {
			func(ctx context.Context, js jetstream.JetStream) error {
				_, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "seatrial-ledger", Storage: jetstream.MemoryStorage})
				return err
			},
			"bucket seatrial-ledger: exists with a setting that cannot be changed: storage is Memory, wanted is File",
		},
		"storage of an object store": {
			func(ctx context.Context, js jetstream.JetStream) error {
				_, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "seatrial-logs", Storage: jetstream.MemoryStorage})
				return err
			},
			"object store seatrial-logs: exists with a setting that cannot be changed: storage is Memory, wanted is File",
		},
		"policies of a consumer": {
			func(ctx context.Context, js jetstream.JetStream) error {
				if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "SEATRIAL_REQUESTS", Subjects: []string{"seatrial.request.>"}}); err != nil {
					return err
				}
				_, err := js.CreateConsumer(ctx, "SEATRIAL_REQUESTS", jetstream.ConsumerConfig{
					Durable: "planner", DeliverPolicy: jetstream.DeliverNewPolicy, AckPolicy: jetstream.AckNonePolicy,
				})
				return err
			},
			"consumer planner of stream SEATRIAL_REQUESTS: exists with a setting that cannot be changed: deliver policy is new, wanted is all\n" +
				"exists with a setting that cannot be changed: ack policy is AckNone, wanted is AckExplicit",
		},
		"a subject that another stream has": {
			func(ctx context.Context, js jetstream.JetStream) error {
				_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ALL", Subjects: []string{"seatrial.>"}})
				return err
			},
			"stream SEATRIAL_REQUESTS: nats: API error: code=400 err_code=10065 description=subjects overlap with an existing stream",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kittest.Connect(t, kittest.NATS(t).URL)
			require.NoError(t, row.make(t.Context(), c.JS))
			err := bus.Provision(t.Context(), c.JS, layout(), kittest.Logger(t))
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestProvisionWaitsForJetStreamAndSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	c, err := bus.Connect(t.Context(), bus.Config{URL: restricted(t, &server.Permissions{})}, kittest.Logger(t))
	require.NoError(t, err)
	defer c.NC.Close()
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- bus.Provision(ctx, c.JS, layout(), kittest.Logger(t)) }()
	eventually(t, func() bool { return c.NC.Stats().OutMsgs > 2 }, "it asks more than once")
	require.Empty(t, ended)
	cancel(stop)
	err = receive(t, ended, "the end")
	require.ErrorIs(t, err, stop)
	require.ErrorContains(t, err, "stream SEATRIAL_REQUESTS: JetStream cannot do it: is it enabled")
}

func TestLayoutIsChecked(t *testing.T) {
	t.Parallel()
	good := bus.DefaultLayout()
	require.NoError(t, good.Validate())
	bad := bus.Layout{
		Replicas: 2, AckWait: time.Millisecond,
		Clusters: []bus.Cluster{{Name: "a"}, {Name: "a"}, {Name: "Upper"}, {Name: "b", Pools: []string{"gpu", "gpu", "g_u", ""}}},
	}
	err := bad.Validate()
	for _, want := range []string{
		"replicas 2", "ack wait 1ms", `cluster "a" is named twice`, `cluster "Upper"`, `pool "gpu" is named twice`, `pool "g_u"`, `pool ""`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, bus.Layout{}.Validate(), "no cluster is named")
	require.NotContains(t, err.Error(), "no cluster")
}
