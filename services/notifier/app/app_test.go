package app

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	"github.com/seatrial/seatrial/services/notifier/internal/binding"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

const (
	patience = 20 * time.Second
	tick     = 10 * time.Millisecond
)

var web = subject.Release{Cluster: "local", Namespace: "shop", Name: "web"}

// fixture is a provisioned server, and a connection to publish outcomes and to read events.
type fixture struct {
	*testing.T
	layout bus.Layout
	server *kittest.Server
	conn   *bus.Conn
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	layout := bus.DefaultLayout()
	layout.AckWait = 2 * time.Second // an acknowledgement that a restart swallows is made up for soon
	server := kittest.Provisioned(t, layout)
	return &fixture{T: t, layout: layout, server: server, conn: kittest.Connect(t, server.URL)}
}

// start runs a notifier until the test ends or stop is called, which returns when it has drained.
func (f *fixture) start(change ...func(*Config)) (stop func()) {
	f.Helper()
	cfg := Defaults()
	cfg.NATS.URL = f.server.URL
	cfg.HTTPAddr = ""
	cfg.Log = kittest.Logger(f)
	for _, change := range change {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(f.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	stopped := false
	stop = func() {
		f.Helper()
		cancel()
		if !stopped {
			stopped = true
			require.NoError(f, <-done)
		}
	}
	f.Cleanup(stop)
	return stop
}

// outcome returns one about a command to deploy web 1.1.0.
func outcome(kind string, number uint32) *seatrialv1.Outcome {
	return &seatrialv1.Outcome{
		Id:      fmt.Sprintf("%s/%d/%s", web, number, kind),
		Kind:    kind,
		Release: web.String(),
		Request: fmt.Sprintf("build-%d", number),
		Number:  number,
		Time:    timestamppb.New(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)),
		Requested: &seatrialv1.ChartRevision{
			Name: "web", Version: "1.1.0", Annotations: map[string]string{"commit_sha": "4f2d9c1", "changes": "- one\n- two\n"},
		},
	}
}

func (f *fixture) publish(outcomes ...*seatrialv1.Outcome) {
	f.Helper()
	for _, o := range outcomes {
		require.NoError(f, f.conn.PublishOutcome(f.Context(), o))
	}
}

// messages waits until a stream has that many messages and returns them.
func (f *fixture) messages(stream string, count int) []*jetstream.RawStreamMsg {
	f.Helper()
	s, err := f.conn.JS.Stream(f.Context(), stream)
	require.NoError(f, err)
	require.Eventually(f, func() bool {
		info, err := s.Info(f.Context())
		return err == nil && info.State.Msgs >= uint64(count)
	}, patience, tick)
	var all []*jetstream.RawStreamMsg
	info, err := s.Info(f.Context())
	require.NoError(f, err)
	for sequence := uint64(1); sequence <= info.State.LastSeq; sequence++ {
		msg, err := s.GetMsg(f.Context(), sequence)
		require.NoError(f, err)
		all = append(all, msg)
	}
	require.Len(f, all, count, "no more than that")
	return all
}

// handled waits until the notifier has acknowledged every outcome that there is.
func (f *fixture) handled() {
	f.Helper()
	require.Eventually(f, func() bool {
		consumer, err := f.conn.JS.Consumer(f.Context(), subject.StreamOutcomes, subject.ConsumerNotifier)
		if err != nil {
			return false
		}
		info := consumer.CachedInfo()
		return info.NumPending == 0 && info.NumAckPending == 0
	}, patience, tick)
}

// ids returns the event ids of messages, sorted.
func ids(t *testing.T, messages []*jetstream.RawStreamMsg) []string {
	t.Helper()
	var all []string
	for _, msg := range messages {
		e, err := binding.Decode(msg.Header, msg.Data)
		require.NoError(t, err)
		require.Equal(t, e.ID(), msg.Header.Get(nats.MsgIdHdr))
		all = append(all, e.ID())
	}
	slices.Sort(all)
	return all
}

func TestEventsSayWhatWasDeployed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.start()
	o := outcome(seatrialv1.KindDeployed, 4)
	o.Mutation = &seatrialv1.Mutation{HelmRevision: 2}
	f.publish(o)

	msg := f.messages(subject.StreamEvents, 1)[0]
	require.Equal(t, "seatrial.event.deployed.local.shop.web", msg.Subject)
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-type": "dev.seatrial.deployed.v1", "ce-source": "/seatrial/local/shop/web",
		"ce-id": "local/shop/web/4/deployed", "ce-time": "2026-03-04T05:06:07Z", "ce-datacontenttype": "application/json",
		"ce-revision": "1.1.0", "ce-helmrevision": "2", "ce-chartname": "web", "ce-commitsha": "4f2d9c1",
		"ce-correlationid": "build-4", "ce-causationid": "local/shop/web/4",
		nats.MsgIdHdr: "local/shop/web/4/deployed",
	} {
		require.Equal(t, want, msg.Header.Get(name), name)
	}
	require.NotContains(t, msg.Header, "ce-changes", "a newline is legal nowhere in an attribute")

	var data seatrialv1.EventData
	require.NoError(t, protojson.Unmarshal(msg.Data, &data))
	require.Equal(t, o.GetRequested().GetAnnotations(), data.GetOutcome().GetRequested().GetAnnotations(), "byte for byte")
	require.Equal(t, map[string]string{"commit_sha": "commitsha"}, data.GetAttributes())
	require.Len(t, data.GetLeftOut(), 1)
	require.Equal(t, "changes", data.GetLeftOut()[0].GetAnnotation())
	require.Contains(t, data.GetLeftOut()[0].GetReason(), "U+000A")
}

func TestDeployedTestedAndSettledAreDifferentEventsInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.start()
	kinds := []string{
		seatrialv1.KindAccepted, seatrialv1.KindDeploying, seatrialv1.KindDeployed, seatrialv1.KindTesting,
		seatrialv1.KindTested, seatrialv1.KindSettled,
	}
	for _, kind := range kinds {
		f.publish(outcome(kind, 4))
		f.publish(outcome(seatrialv1.KindCommanded, 4)) // recorded for auditors, no event
	}
	f.handled()
	for i, msg := range f.messages(subject.StreamEvents, len(kinds)) {
		require.Equal(t, "seatrial.event."+kinds[i]+".local.shop.web", msg.Subject)
		require.Equal(t, "dev.seatrial."+kinds[i]+".v1", msg.Header.Get("ce-type"))
		require.Equal(t, "local/shop/web/4/"+kinds[i], msg.Header.Get("ce-id"))
	}
}

func TestASecondUpgradeIsAnnounced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.start()
	f.publish(outcome(seatrialv1.KindDeployed, 4), outcome(seatrialv1.KindDeployed, 5))
	require.Equal(t, []string{"local/shop/web/4/deployed", "local/shop/web/5/deployed"},
		ids(t, f.messages(subject.StreamEvents, 2)))
}

func TestARedeliveredOutcomeMakesTheSameEventOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	sent := make(chan *nats.Msg, 2) // a plain subscriber also sees what the stream drops as a duplicate
	_, err := f.conn.NC.ChanSubscribe(subject.AllEvents, sent)
	require.NoError(t, err)
	require.NoError(t, f.conn.NC.Flush())
	f.publish(outcome(seatrialv1.KindDeployed, 4))

	stop := f.start()
	first := <-sent
	f.handled()
	stop()
	// The consumer, made anew, delivers all from the beginning.
	require.NoError(t, f.conn.JS.DeleteConsumer(t.Context(), subject.StreamOutcomes, subject.ConsumerNotifier))
	f.server.Provision(t, f.layout)
	f.start()
	second := <-sent
	f.handled()

	require.Equal(t, first.Subject, second.Subject)
	require.Equal(t, first.Header, second.Header)
	require.Equal(t, string(first.Data), string(second.Data))
	f.messages(subject.StreamEvents, 1)
}

func TestTwoNotifiersDoubleNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.start()
	f.start()
	var want []string
	for number := range uint32(100) {
		o := outcome(seatrialv1.KindDeployed, number+1)
		want = append(want, o.GetId())
		f.publish(o)
	}
	slices.Sort(want)
	f.handled()
	require.Equal(t, want, ids(t, f.messages(subject.StreamEvents, len(want))))
}

func TestARestartOfNATSLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	stop := f.start()
	var want []string
	publish := func(from, to uint32) {
		for number := from; number < to; number++ {
			o := outcome(seatrialv1.KindDeployed, number)
			want = append(want, o.GetId())
			f.publish(o)
		}
	}
	publish(1, 50)
	f.server.Restart(t) // in the middle of it
	publish(50, 100)
	f.handled()
	stop()
	publish(100, 110) // while no notifier runs
	f.server.Restart(t)
	f.start()
	slices.Sort(want)
	require.Equal(t, want, ids(t, f.messages(subject.StreamEvents, len(want))))
}

func TestABrokenOutcomeIsADeadLetterAndInNobodysWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.start()
	deployed := subject.Outcome(seatrialv1.KindDeployed, web)
	otherKind, otherRelease, noTime := outcome(seatrialv1.KindTested, 1), outcome(seatrialv1.KindDeployed, 2), outcome(seatrialv1.KindDeployed, 3)
	otherRelease.Release = "local/shop/api"
	noTime.Time = nil
	broken := []struct{ subject, body, reason string }{
		{deployed, `{"kind":`, "decode Outcome"},
		{deployed, `{"kindness":"deployed"}`, `says that it is "" of ""`},
		{deployed, jsonOf(t, otherKind), `says that it is "tested" of "local/shop/web"`},
		{deployed, jsonOf(t, otherRelease), `says that it is "deployed" of "local/shop/api"`},
		{deployed, jsonOf(t, noTime), "time"},
		{"seatrial.outcome.deployed.local.shop", "{}", "want seatrial.outcome."},
	}
	for i, b := range broken {
		_, err := f.conn.JS.Publish(t.Context(), b.subject, []byte(b.body), jetstream.WithMsgID(fmt.Sprint("broken-", i)))
		require.NoError(t, err)
	}
	f.publish(outcome(seatrialv1.KindDeployed, 4))

	require.Equal(t, []string{"local/shop/web/4/deployed"}, ids(t, f.messages(subject.StreamEvents, 1)))
	f.handled()
	for i, letter := range f.messages(subject.StreamDead, len(broken)) {
		require.Equal(t, "seatrial.dead.notifier", letter.Subject)
		require.Equal(t, broken[i].body, string(letter.Data))
		require.Equal(t, broken[i].subject, letter.Header.Get(bus.HeaderDeadSubject))
		require.Contains(t, letter.Header.Get(bus.HeaderDeadReason), broken[i].reason)
	}
}

func jsonOf(t *testing.T, o *seatrialv1.Outcome) string {
	t.Helper()
	data, err := wire.MarshalJSON(o)
	require.NoError(t, err)
	return string(data)
}

func TestStructuredModeAndTheOperatorsMapping(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.start(func(cfg *Config) {
		fs := flag.NewFlagSet("notifier", flag.ContinueOnError)
		cfg.Flags(fs)
		require.NoError(t, fs.Parse([]string{
			"--event-mode=structured", "--annotation-aliases=commit_sha=gitcommit, org.example/a.b=ab", "--annotation-deny=time,changes",
			"--annotation-allow=x/*,team", "--annotation-prefix=my",
		}))
	})
	o := outcome(seatrialv1.KindDeploying, 4)
	o.Requested.Annotations = map[string]string{"commit_sha": "4f2d9c1", "team": "web", "x/y": "z", "changes": "1", "other": "2"}
	f.publish(o)
	msg := f.messages(subject.StreamEvents, 1)[0]
	require.Equal(t, "application/cloudevents+json", msg.Header.Get("Content-Type"))
	var got map[string]any
	require.NoError(t, json.Unmarshal(msg.Data, &got))
	require.Equal(t, "4f2d9c1", got["gitcommit"])
	require.Equal(t, "web", got["myteam"])
	require.Equal(t, "z", got["myxy"])
	require.NotContains(t, got, "mychanges")
	require.NotContains(t, got, "myother")
	require.IsType(t, map[string]any{}, got["data"], "JSON within JSON, no base64")
}

func TestWrongFlagsAreNamed(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, arg, want string }{
		{"mode", "--event-mode=batch", "want binary or structured"},
		{"no alias", "--annotation-aliases=commit_sha", `"commit_sha" is not key=name`},
		{"two aliases", "--annotation-aliases=a=x,a=y", `annotation "a" has two aliases`},
		{"reserved alias", "--annotation-aliases=a=time", `alias "time" of annotation "a": the name time is reserved`},
		{"pattern", "--annotation-deny=[", `pattern "["`},
		{"prefix", "--annotation-prefix=a_", `prefix "a_"`},
		{"grace", "--shutdown-grace=-1s", "--shutdown-grace -1s"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			cfg := Defaults()
			fs := flag.NewFlagSet("notifier", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			cfg.Flags(fs)
			err := fs.Parse([]string{row.arg})
			if err == nil {
				err = Run(t.Context(), cfg)
				require.ErrorIs(t, err, service.ErrUsage)
			}
			require.ErrorContains(t, err, row.want)
		})
	}
}

func TestReadyzSaysWhenTheConsumerIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	addresses := make(chan string, 1)
	f.start(func(cfg *Config) {
		cfg.HTTPAddr = "127.0.0.1:0"
		cfg.Listening = func(a net.Addr) { addresses <- a.String() }
	})
	address := <-addresses
	ready := func(code int) func() bool {
		return func() bool {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", nil)
			require.NoError(t, err)
			request.Close = true
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return false
			}
			_ = response.Body.Close()
			return response.StatusCode == code
		}
	}
	require.Eventually(t, ready(http.StatusOK), patience, tick)
	require.NoError(t, f.conn.JS.DeleteConsumer(t.Context(), subject.StreamOutcomes, subject.ConsumerNotifier))
	require.Eventually(t, ready(http.StatusServiceUnavailable), patience, tick)
	f.server.Provision(t, f.layout)
	f.publish(outcome(seatrialv1.KindDeployed, 4))
	require.Eventually(t, ready(http.StatusOK), patience, tick)
	f.messages(subject.StreamEvents, 1)
}
