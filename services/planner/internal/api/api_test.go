package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/api"
	"github.com/seatrial/seatrial/services/planner/internal/core"
	"github.com/seatrial/seatrial/services/planner/internal/request"
	"github.com/seatrial/seatrial/services/planner/internal/shell"
)

var web = subject.Release{Cluster: "local", Namespace: "shop", Name: "web"}

const soon = 30 * time.Second

// endpoints are the subjects of the service, by name.
var endpoints = map[string]string{
	"deploy": "seatrial.api.deploy.*.*.*", "rollback": "seatrial.api.rollback.*.*.*", "uninstall": "seatrial.api.uninstall.*.*.*",
	"test": "seatrial.api.test.*.*.*", "cancel": "seatrial.api.cancel.*.*.*", "suspend": "seatrial.api.suspend.*.*.*",
	"resume": "seatrial.api.resume.*.*.*", "forgive": "seatrial.api.forgive.*.*.*",
	"get": "seatrial.api.get.*.*.*", "wait": "seatrial.api.wait.*.*.*", "history": "seatrial.api.history.*.*.*",
	"list": "seatrial.api.list", "list-cluster": "seatrial.api.list.*", "list-namespace": "seatrial.api.list.*.*",
}

// office is an API with what is behind it, and a person who asks.
type office struct {
	t    *testing.T
	url  string
	conn *bus.Conn
	// fetched lets the fetching of charts end, each of which then fails.
	fetched chan struct{}
}

func newOffice(t *testing.T) *office {
	t.Helper()
	server := kittest.Provisioned(t, bus.DefaultLayout())
	return &office{t: t, url: server.URL, conn: kittest.Connect(t, server.URL), fetched: make(chan struct{})}
}

func rules() request.Rules {
	r := request.DefaultRules()
	r.Clusters = map[string][]string{"local": nil}
	return r
}

// run runs a part of a planner until the test ends or stop is called.
func (o *office) run(part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = part(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	o.t.Cleanup(stop)
	return stop
}

// open starts an API and returns when it answers.
func (o *office) open(waiters int) (shut func()) {
	o.t.Helper()
	conn := kittest.Connect(o.t, o.url)
	a, err := api.New(o.t.Context(), conn, api.Options{Rules: rules(), Version: "v1.2.3-rc.1", Waiters: waiters}, kittest.Logger(o.t))
	require.NoError(o.t, err)
	before := len(o.services())
	shut = o.run(a.Run)
	require.Eventually(o.t, func() bool {
		services := o.services()
		return len(services) == before+1 && len(services[before].Endpoints) == len(endpoints)
	}, soon, 10*time.Millisecond)
	return shut
}

// services returns the instances that run, as `nats micro ls` finds them, the newest last.
func (o *office) services() []micro.Info {
	o.t.Helper()
	inbox, err := o.conn.NC.SubscribeSync(o.conn.NC.NewInbox())
	require.NoError(o.t, err)
	defer func() { _ = inbox.Unsubscribe() }()
	require.NoError(o.t, o.conn.NC.PublishRequest("$SRV.INFO."+api.Name, inbox.Subject, nil))
	var found []micro.Info
	for {
		msg, err := inbox.NextMsg(100 * time.Millisecond)
		if err != nil || msg.Header.Get("Status") == "503" {
			return found
		}
		var info micro.Info
		require.NoError(o.t, json.Unmarshal(msg.Data, &info))
		found = append(found, info)
	}
}

// plan starts what reads the requests.
func (o *office) plan() {
	o.t.Helper()
	s, err := shell.New(o.t.Context(), kittest.Connect(o.t, o.url), shell.Options{
		Policy: core.DefaultPolicy(), Rules: rules(), Instance: "a", Slots: 4, Fetches: 2, TakeOver: time.Second, Grace: time.Second,
		Fetch: func(ctx context.Context, _ *pb.ChartSource) ([]byte, *pb.ChartRevision, error) {
			select {
			case <-o.fetched:
			case <-ctx.Done():
			}
			return nil, nil, fault.New(pb.ClassRejected, "upload it", "no such chart")
		},
	}, kittest.Logger(o.t))
	require.NoError(o.t, err)
	for _, part := range []func(context.Context) error{s.Requests, s.Outcomes, s.Attend, s.Resolve} {
		o.run(part)
	}
}

// ask asks and returns the answer, with the code of one that is an error.
func (o *office) ask(verb, body string, header ...string) (code string, answer *nats.Msg) {
	o.t.Helper()
	return o.askOn(subject.API(verb, web), body, header...)
}

func (o *office) askOn(name, body string, header ...string) (code string, answer *nats.Msg) {
	o.t.Helper()
	msg := nats.NewMsg(name)
	msg.Data = []byte(body)
	for i := 0; i < len(header); i += 2 {
		msg.Header[header[i]] = []string{header[i+1]}
	}
	answer, err := o.conn.NC.RequestMsg(msg, soon)
	require.NoError(o.t, err)
	require.Equal(o.t, "application/json", answer.Header.Get("Content-Type"))
	return answer.Header.Get(micro.ErrorCodeHeader), answer
}

func (o *office) stored(verb, body string, header ...string) *pb.StoredAnswer {
	o.t.Helper()
	code, msg := o.ask(verb, body, header...)
	require.Empty(o.t, code, string(msg.Data))
	answer := &pb.StoredAnswer{}
	require.NoError(o.t, wire.Unmarshal(msg.Header, msg.Data, answer))
	return answer
}

func (o *office) refused(code, verb, body string, header ...string) *pb.ErrorAnswer {
	o.t.Helper()
	got, msg := o.ask(verb, body, header...)
	return o.refusal(code, got, msg)
}

func (o *office) refusal(want, code string, msg *nats.Msg) *pb.ErrorAnswer {
	o.t.Helper()
	require.Equal(o.t, want, code, string(msg.Data))
	answer := &pb.ErrorAnswer{}
	require.NoError(o.t, wire.Unmarshal(msg.Header, msg.Data, answer))
	require.Equal(o.t, strings.Join(strings.Fields(answer.GetError()), " "), msg.Header.Get(micro.ErrorHeader))
	require.NotEmpty(o.t, answer.GetNext())
	return answer
}

// messages returns how many requests are stored.
func (o *office) messages() int {
	o.t.Helper()
	stream, err := o.conn.JS.Stream(o.t.Context(), subject.StreamRequests)
	require.NoError(o.t, err)
	return int(stream.CachedInfo().State.Msgs)
}

// waiting asks to wait in the background and returns where the answer comes.
func (o *office) waiting(id string) <-chan *nats.Msg {
	o.t.Helper()
	answers := make(chan *nats.Msg, 1)
	inbox := o.conn.NC.NewInbox()
	sub, err := o.conn.NC.ChanSubscribe(inbox, answers)
	require.NoError(o.t, err)
	o.t.Cleanup(func() { _ = sub.Unsubscribe() })
	require.NoError(o.t, o.conn.NC.PublishRequest(subject.API("wait", web), inbox, fmt.Appendf(nil, `{"request": %q}`, id)))
	require.NoError(o.t, o.conn.NC.Flush())
	return answers
}

func (o *office) receive(answers <-chan *nats.Msg) *nats.Msg {
	o.t.Helper()
	select {
	case msg := <-answers:
		return msg
	case <-time.After(soon):
		require.Fail(o.t, "no answer")
		return nil
	}
}

const deploy = `{"id": "build-1", "chart": {"object": "web.tgz"}}`

func TestARequestIsStoredAsItWasSent(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	answer := o.stored("deploy", deploy, "content-TYPE", "application/json; charset=utf-8", "Traceparent", trace, "Other", "header")
	require.Equal(t, "build-1", answer.GetRequest())
	require.Equal(t, "local/shop/web", answer.GetRelease())
	require.Equal(t, uint64(1), answer.GetSequence())
	require.False(t, answer.GetDuplicate())

	stream, err := o.conn.JS.Stream(t.Context(), subject.StreamRequests)
	require.NoError(t, err)
	msg, err := stream.GetMsg(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, "seatrial.request.deploy.local.shop.web", msg.Subject)
	require.Equal(t, []byte(deploy), msg.Data, "byte for byte")
	require.Equal(t, "build-1", msg.Header.Get("Nats-Msg-Id"))
	require.Equal(t, "application/json; charset=utf-8", msg.Header.Get("Content-Type"))
	require.Equal(t, trace, msg.Header.Get("traceparent"))
	require.NotContains(t, msg.Header, "Other")

	require.Equal(t, "ci-7", o.stored("test", ``, "nats-msg-id", "ci-7").GetRequest())
	made := o.stored("rollback", `{}`)
	require.Regexp(t, `^[A-Za-z0-9]{22}$`, made.GetRequest(), "without an id one is made, so that it can be waited for")
	require.Equal(t, uint64(3), made.GetSequence())
}

func TestAllViolationsAreAnsweredAndNothingIsStored(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	answer := o.refused("400", "deploy", `{"chart": {"objct": "a"}, "test": {"timeout": "0s"}}`)
	found := map[string]string{}
	for _, v := range answer.GetViolations() {
		found[v.GetField()] = v.GetMessage()
	}
	require.Equal(t, map[string]string{
		"chart":        "must have exactly one of oci, repo, object and path",
		"chart.objct":  `unknown field: did you mean "object"?`,
		"test.timeout": "must be more than zero: nothing runs without a time-out",
	}, found)
	o.refused("400", "deploy", `{"chart":`)
	o.refused("400", "deploy", deploy, "Content-Type", "text/yaml")
	code, msg := o.askOn("seatrial.api.deploy.local.shop.UPPER", deploy)
	require.Contains(t, o.refusal("400", code, msg).GetError(), "UPPER")
	code, msg = o.askOn("seatrial.api.deploy.mars.shop.web", deploy)
	require.Contains(t, o.refusal("400", code, msg).GetError(), "is not served here; known: local")
	require.Zero(t, o.messages())
}

func TestTheSameRequestAgainGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	other := strings.Replace(deploy, "web.tgz", "other.tgz", 1)
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprintf("read by a planner: %v", read), func(t *testing.T) {
			t.Parallel()
			o := newOffice(t)
			o.open(10)
			// Wide enough for a slow machine.
			stream, err := o.conn.JS.Stream(t.Context(), subject.StreamRequests)
			require.NoError(t, err)
			config := stream.CachedInfo().Config
			config.Duplicates = time.Minute
			if read {
				config.Duplicates = 100 * time.Millisecond
			}
			_, err = o.conn.JS.UpdateStream(t.Context(), config)
			require.NoError(t, err)

			first := o.stored("deploy", deploy)
			storedAt := time.Now()
			if read {
				o.plan()
				rows, err := bus.OpenBucket[*pb.RequestRow](t.Context(), o.conn, subject.BucketRequests)
				require.NoError(t, err)
				require.Eventually(t, func() bool {
					_, _, err := rows.Get(t.Context(), "build-1")
					return err == nil && time.Since(storedAt) > 5*config.Duplicates // the stream has forgotten the id
				}, soon, 10*time.Millisecond)
			}
			again := o.stored("deploy", deploy)
			require.True(t, again.GetDuplicate())
			require.Equal(t, first.GetSequence(), again.GetSequence())
			require.Equal(t, first.GetRequest(), again.GetRequest())

			for verb, body := range map[string]string{"deploy": other, "rollback": `{"id": "build-1"}`} {
				answer := o.refused("409", verb, body)
				require.Equal(t, "id", answer.GetViolations()[0].GetField())
			}
			require.Equal(t, 1, o.messages())
		})
	}
}

func TestGetShowsWhatIsKnownOfARelease(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	o.plan()
	require.Contains(t, o.refused("404", "get", ``).GetError(), "local/shop/web")
	o.refused("400", "get", `{"x": 1}`)
	o.stored("deploy", deploy)
	require.Eventually(t, func() bool {
		code, msg := o.ask("get", `{}`)
		if code != "" {
			return false
		}
		answer := &pb.GetAnswer{}
		require.NoError(t, wire.Unmarshal(msg.Header, msg.Data, answer))
		require.Equal(t, "local/shop/web", answer.GetRelease())
		require.Equal(t, "build-1", answer.GetActive().GetRequest())
		require.Equal(t, "resolving", answer.GetActive().GetPhase())
		return true
	}, soon, 10*time.Millisecond)
}

func TestWaitAnswersWhenTheRequestIsSettled(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	o.stored("deploy", deploy)
	// Nobody has read it yet, so nothing but the stream knows it.
	early := o.waiting("build-1")
	o.plan()
	require.Eventually(t, func() bool {
		code, _ := o.ask("get", ``)
		return code == ""
	}, soon, 10*time.Millisecond)
	late := o.waiting("build-1")
	require.True(t, o.stored("deploy", deploy).GetDuplicate(), "others are answered meanwhile")
	require.Empty(t, early)
	require.Empty(t, late)
	close(o.fetched)
	for _, msg := range []*nats.Msg{o.receive(early), o.receive(late), o.receive(o.waiting("build-1"))} {
		require.Equal(t, "application/json", msg.Header.Get("Content-Type"))
		answer := &pb.WaitAnswer{}
		require.NoError(t, wire.Unmarshal(msg.Header, msg.Data, answer))
		require.Equal(t, "rejected", answer.GetSettled().GetSettlement().GetResult())
		require.Equal(t, "no such chart", answer.GetSettled().GetFailure().GetReason())
	}
	code, msg := o.askOn(strings.Replace(subject.API("wait", web), "web", "api", 1), `{"request": "build-1"}`)
	o.refusal("404", code, msg) // who may ask about one release learns nothing about another
}

func TestWaitRefusesWhatNobodyAskedFor(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	require.Contains(t, o.refused("404", "wait", `{"request": "never"}`).GetError(), "no request never for release local/shop/web")
	o.plan()
	o.stored("deploy", deploy)
	require.Contains(t, o.refused("404", "wait", `{"request": "never"}`).GetError(), "no request never")
	for _, body := range []string{``, `{}`, `{"request": ">"}`, `{"request": "*"}`, `{"request": "a b"}`, `{"req": "a"}`, `{`} {
		o.refused("400", "wait", body)
	}
}

func TestWaitersAreBounded(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(1)
	o.plan()
	o.stored("deploy", deploy)
	first := o.waiting("build-1")
	require.Eventually(t, func() bool {
		code, _ := o.ask("wait", `{"request": "never"}`)
		return code == "503"
	}, soon, 10*time.Millisecond)
	close(o.fetched)
	require.Empty(t, o.receive(first).Header.Get(micro.ErrorCodeHeader))
	require.Eventually(t, func() bool {
		code, _ := o.ask("wait", `{"request": "never"}`)
		return code == "404"
	}, soon, 10*time.Millisecond)
}

func TestWhoWaitsAtAPlannerThatStopsIsTold(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	shut := o.open(10)
	o.plan()
	o.stored("deploy", deploy)
	require.Eventually(t, func() bool {
		code, _ := o.ask("get", ``)
		return code == ""
	}, soon, 10*time.Millisecond)
	answers := o.waiting("build-1")
	require.Eventually(t, func() bool { // the question has arrived
		stats := o.services()
		return len(stats) == 1
	}, soon, 10*time.Millisecond)
	shut()
	msg := o.receive(answers)
	require.Equal(t, "ask again", o.refusal("503", msg.Header.Get(micro.ErrorCodeHeader), msg).GetNext())
}

func TestPlannersShareTheQuestions(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	o.open(10)
	var services []micro.Info
	require.Eventually(t, func() bool {
		services = o.services()
		return len(services) == 2
	}, soon, 10*time.Millisecond)
	for _, info := range services {
		require.Equal(t, "1.2.3-rc.1", info.Version)
		subjects := map[string]string{}
		for _, endpoint := range info.Endpoints {
			subjects[endpoint.Name] = endpoint.Subject
			require.Equal(t, api.Name, endpoint.QueueGroup)
		}
		require.Equal(t, endpoints, subjects)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() { o.stored("deploy", fmt.Sprintf(`{"id": "r-%d", "chart": {"object": "a"}}`, i)) })
	}
	all.Wait()
	require.Equal(t, 20, o.messages())
}

// put stores the state of a release, as planners leave it.
func (o *office) put(release string, state *pb.ReleaseState) {
	o.t.Helper()
	r, err := subject.ParseRelease(release)
	require.NoError(o.t, err)
	states, err := bus.OpenBucket[*pb.ReleaseState](o.t.Context(), o.conn, subject.BucketReleases)
	require.NoError(o.t, err)
	state.Release = release
	_, revision, err := states.Get(o.t.Context(), r.Key())
	require.True(o.t, err == nil || errors.Is(err, bus.ErrNotFound))
	_, err = states.Put(o.t.Context(), r.Key(), state, revision)
	require.NoError(o.t, err)
}

// list asks for a page, and returns it with the releases' names.
func (o *office) list(cluster, namespace, body string) (*pb.ListAnswer, []string) {
	o.t.Helper()
	code, msg := o.askOn(subject.APIList(cluster, namespace), body)
	require.Empty(o.t, code, string(msg.Data))
	answer := &pb.ListAnswer{}
	require.NoError(o.t, wire.Unmarshal(msg.Header, msg.Data, answer))
	names := []string{}
	for _, r := range answer.GetReleases() {
		names = append(names, r.GetRelease())
	}
	return answer, names
}

func content(version string, revision int32) *pb.ChartRevision {
	return &pb.ChartRevision{
		Name: "web", Version: version, AppVersion: "7", Digest: "sha256:" + version, HelmRevision: revision, ManifestDigest: "sha256:m",
		Annotations: map[string]string{"commit_sha": "abc"},
	}
}

func TestListSaysWhatRunsWhereSinceWhenAndWhatProvesIt(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	since := timestamppb.New(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	bare := content("1.0.0", 3)
	bare.Annotations = nil
	record := &pb.RevisionRecord{
		Content: bare, Generation: 2, Request: "build-1", Since: since, Number: 5,
		Standing: pb.StandingProven, Verdict: pb.VerdictPassed, JudgedBy: "nightly", JudgedNumber: 6, Tests: []string{"web-smoke"},
	}
	o.put("local/shop/web", &pb.ReleaseState{
		Generation: 3, Running: content("1.0.0", 3), Revisions: []*pb.RevisionRecord{record},
		Active: &pb.Active{
			Request: &pb.Request{Id: "build-2", Verb: "deploy"}, Phase: "deploying", Requested: content("1.1.0", 0),
			Cancels: []*pb.Request{{Id: "stop"}},
		},
		Waiting: &pb.Request{Id: "build-3"}, WaitingTest: &pb.Request{Id: "again"},
		Suspension: &pb.Suspension{Suspended: true, Request: "freeze", Since: since, Sequence: 9},
	})
	o.put("local/shop/api", &pb.ReleaseState{Generation: 1, Running: content("0.9.0", 8)}) // deployed by hand
	o.put("local/other/web", &pb.ReleaseState{Generation: 4})                              // uninstalled
	o.put("prod.eu/shop/web", &pb.ReleaseState{Generation: 1})
	o.put("local/shop/never", &pb.ReleaseState{Cancellation: &pb.Cancellation{Request: "stop", Sequence: 4}})

	answer, names := o.list("", "", ``)
	require.Equal(t, []string{"local/other/web", "local/shop/api", "local/shop/web", "prod.eu/shop/web"}, names)
	require.Empty(t, answer.GetContinue())
	byHand := content("0.9.0", 8)
	byHand.Annotations = nil
	require.True(t, proto.Equal(&pb.RevisionRecord{Content: byHand}, answer.GetReleases()[1].GetRunning()), answer.GetReleases()[1])
	requested := content("1.1.0", 0)
	requested.Annotations = nil
	require.True(t, proto.Equal(&pb.ListedRelease{
		Release: "local/shop/web", Running: record,
		Active:  &pb.ActiveView{Request: "build-2", Verb: "deploy", Phase: "deploying", Requested: requested, CancelledBy: []string{"stop"}},
		Waiting: "build-3", WaitingTest: "again",
		Suspended: &pb.Suspension{Suspended: true, Request: "freeze", Since: since, Sequence: 9},
	}, answer.GetReleases()[2]), answer.GetReleases()[2])

	_, names = o.list("local", "", `{}`)
	require.Equal(t, []string{"local/other/web", "local/shop/api", "local/shop/web"}, names)
	_, names = o.list("local", "shop", `{}`)
	require.Equal(t, []string{"local/shop/api", "local/shop/web"}, names)
	_, names = o.list("prod.eu", "shop", `{}`)
	require.Equal(t, []string{"prod.eu/shop/web"}, names)
	_, names = o.list("mars", "", `{}`)
	require.Empty(t, names)

	for _, body := range []string{`{"limit": -1}`, `{"limit": 501}`, `{"continue": "web"}`, `{"limits": 1}`} {
		code, msg := o.askOn(subject.APIList("", ""), body)
		o.refusal("400", code, msg)
	}
	code, msg := o.askOn("seatrial.api.list.local.UPPER", ``)
	o.refusal("400", code, msg)
}

func TestAListComesInPagesThatFitIntoAMessage(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	var want []string
	for i := range 30 {
		name := fmt.Sprintf("local/shop/web-%02d", i)
		want = append(want, name)
		state := &pb.ReleaseState{Generation: 1, Running: content("1.0.0", 1)}
		state.Running.Name = strings.Repeat("n", 100<<10) // 3 MiB in all
		o.put(name, state)
	}
	for _, row := range []struct {
		limit, atMost int
	}{{0, 30}, {7, 7}} {
		var all []string
		for next := ""; ; {
			answer, names := o.list("local", "", fmt.Sprintf(`{"limit": %d, "continue": %q}`, row.limit, next))
			require.NotEmpty(t, names)
			require.LessOrEqual(t, len(names), row.atMost)
			all = append(all, names...)
			if next = answer.GetContinue(); next == "" {
				break
			}
		}
		require.Equal(t, want, all)
	}
}

func TestHistoryHasTheRevisionsAndTheLastWordsNewestFirst(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	code, msg := o.ask("history", ``)
	require.Contains(t, o.refusal("404", code, msg).GetError(), "nothing is known of release local/shop/web")

	for i := range 5 {
		for _, r := range []string{"local/shop/web", "local/shop/api"} {
			require.NoError(t, o.conn.PublishOutcome(t.Context(), &pb.Outcome{
				Id: fmt.Sprintf("%s-%d/settled", strings.ReplaceAll(r, "/", "-"), i), Kind: pb.KindSettled, Release: r, Request: fmt.Sprintf("build-%d", i),
				Requested: content("1.0.0", 0), Running: content("1.0.0", int32(i+1)), Settlement: &pb.Settlement{Verb: "deploy", Result: pb.ResultProven},
			}))
		}
		require.NoError(t, o.conn.PublishOutcome(t.Context(), &pb.Outcome{Id: fmt.Sprintf("a-%d", i), Kind: pb.KindAccepted, Release: "local/shop/web"}))
	}
	page := func(body string) (*pb.HistoryAnswer, []string) {
		code, msg := o.ask("history", body)
		require.Empty(t, code, string(msg.Data))
		answer := &pb.HistoryAnswer{}
		require.NoError(t, wire.Unmarshal(msg.Header, msg.Data, answer))
		var requests []string
		for _, settled := range answer.GetSettled() {
			require.Equal(t, "local/shop/web", settled.GetRelease())
			require.Empty(t, settled.GetRunning().GetAnnotations())
			require.Empty(t, settled.GetRequested().GetAnnotations())
			requests = append(requests, settled.GetRequest())
		}
		return answer, requests
	}
	answer, requests := page(``)
	require.Equal(t, []string{"build-4", "build-3", "build-2", "build-1", "build-0"}, requests, "of a release that the planner has forgotten")
	require.Empty(t, answer.GetContinue())
	require.Equal(t, pb.ResultProven, answer.GetSettled()[0].GetSettlement().GetResult())
	require.EqualValues(t, 5, answer.GetSettled()[0].GetRunning().GetHelmRevision())

	o.put("local/shop/web", &pb.ReleaseState{Generation: 5, Revisions: []*pb.RevisionRecord{{Generation: 4}, {Generation: 5}}})
	answer, requests = page(`{"limit": 2}`)
	require.Equal(t, []string{"build-4", "build-3"}, requests)
	require.EqualValues(t, 5, answer.GetRevisions()[0].GetGeneration(), "newest first")
	require.Len(t, answer.GetRevisions(), 2)
	answer, requests = page(fmt.Sprintf(`{"limit": 2, "continue": %q}`, answer.GetContinue()))
	require.Equal(t, []string{"build-2", "build-1"}, requests)
	require.Empty(t, answer.GetRevisions(), "in the first answer only")
	answer, requests = page(fmt.Sprintf(`{"limit": 2, "continue": %q}`, answer.GetContinue()))
	require.Equal(t, []string{"build-0"}, requests)
	require.Empty(t, answer.GetContinue())

	for _, body := range []string{`{"limit": 201}`, `{"continue": "web"}`, `{"continue": "-1"}`} {
		o.refused("400", "history", body)
	}
}

func TestAllVerbsAreStored(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.open(10)
	for i, verb := range request.Verbs {
		body := `{}`
		if verb == pb.VerbDeploy {
			body = `{"chart": {"object": "a"}}`
		}
		require.EqualValues(t, i+1, o.stored(verb, body).GetSequence(), verb)
	}
}
