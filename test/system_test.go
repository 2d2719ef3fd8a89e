// Package test plays people, pipelines and subscribers on all of Seatrial: the four services, a real NATS server and a
// real Kubernetes.
package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/dev/system"
	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// settleTimeout bounds what a request may take, far longer than it does.
const settleTimeout = 2 * time.Minute

// world is a running system, with a person's eyes on it.
type world struct {
	t      *testing.T
	sys    *system.System
	client *kube.Client

	mu       sync.Mutex
	outcomes []*seatrialv1.Outcome
	events   []nats.Header
	changed  chan struct{} // closed and replaced at each change
}

// start starts a system for one test. configure may change it first.
func start(t *testing.T, configure func(*system.Config)) *world {
	t.Helper()
	kubeconfig := helmtest.Kubeconfig(t)
	cfg := system.Defaults(t.TempDir(), kubeconfig, slog.New(slog.NewTextHandler(output(t), &slog.HandlerOptions{Level: slog.LevelDebug})))
	if configure != nil {
		configure(&cfg)
	}
	sys, err := system.Start(t.Context(), cfg)
	require.NoError(t, err)
	w := &world{t: t, sys: sys, client: helmtest.Connect(t), changed: make(chan struct{})}
	t.Cleanup(func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, sys.Stop(stopping))
	})
	for watched, see := range map[string]nats.MsgHandler{subject.AllOutcomes: w.seeOutcome, subject.AllEvents: w.seeEvent} {
		_, err := sys.Conn.NC.Subscribe(watched, see)
		require.NoError(t, err)
	}
	return w
}

// output is where the services log: it is shown where the test fails.
func output(t *testing.T) io.Writer {
	file, err := os.Create(t.TempDir() + "/services.log")
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(file.Name())
			t.Logf("the services logged:\n%s", log)
		}
		require.NoError(t, file.Close())
	})
	return file
}

func (w *world) seeOutcome(msg *nats.Msg) {
	o := &seatrialv1.Outcome{}
	if err := wire.Unmarshal(msg.Header, msg.Data, o); err != nil {
		w.t.Errorf("an outcome that cannot be read: %v: %s", err, msg.Data)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes = append(w.outcomes, o)
	w.wake()
}

func (w *world) seeEvent(msg *nats.Msg) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, msg.Header)
	w.wake()
}

// wake needs w.mu.
func (w *world) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// until waits until look finds something in what was seen.
func (w *world) until(what string, look func() bool) {
	w.t.Helper()
	late := time.After(settleTimeout)
	for {
		w.mu.Lock()
		found, changed := look(), w.changed
		w.mu.Unlock()
		if found {
			return
		}
		select {
		case <-changed:
		case <-late:
			require.Fail(w.t, "timed out", "waiting for %s; seen:\n%s", what, w.story(""))
		case <-w.t.Context().Done():
			require.Fail(w.t, "the test has ended", "waiting for %s", what)
		}
	}
}

// settled waits for the last word on a request.
func (w *world) settled(request string) *seatrialv1.Outcome {
	w.t.Helper()
	return w.outcome(seatrialv1.KindSettled, request)
}

// outcome waits for the first outcome of a kind about a request.
func (w *world) outcome(kind, request string) (found *seatrialv1.Outcome) {
	w.t.Helper()
	w.until(kind+" of "+request, func() bool {
		for _, o := range w.outcomes {
			if o.GetKind() == kind && o.GetRequest() == request {
				found = o
				return true
			}
		}
		return false
	})
	return found
}

// about returns all outcomes about a request so far.
func (w *world) about(request string) []*seatrialv1.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []*seatrialv1.Outcome
	for _, o := range w.outcomes {
		if request == "" || o.GetRequest() == request {
			found = append(found, o)
		}
	}
	return found
}

// release makes a namespace for one release.
func (w *world) release() subject.Release {
	return subject.Release{Cluster: system.Cluster, Namespace: helmtest.Namespace(w.t, w.client), Name: "web"}
}

// upload puts a packaged chart where requests can name it.
func (w *world) upload(name string, archive []byte) {
	w.t.Helper()
	require.NoError(w.t, w.sys.Conn.PutObject(w.t.Context(), subject.ObjectsUploads, name, archive))
}

// ask sends a request by the API and returns its id.
func (w *world) ask(verb string, r subject.Release, body map[string]any) string {
	w.t.Helper()
	answer := w.call(verb, r, body)
	stored := &seatrialv1.StoredAnswer{}
	require.NoError(w.t, wire.Unmarshal(answer.Header, answer.Data, stored), "%s: %s", verb, answer.Data)
	require.NotEmpty(w.t, stored.GetRequest(), "%s: %s", verb, answer.Data)
	return stored.GetRequest()
}

func (w *world) call(verb string, r subject.Release, body map[string]any) *nats.Msg {
	w.t.Helper()
	if body == nil {
		body = map[string]any{}
	}
	data, err := json.Marshal(body)
	require.NoError(w.t, err)
	// The planner may still be on its way up when a test begins.
	var answer *nats.Msg
	require.Eventually(w.t, func() bool {
		answer, err = w.sys.Conn.NC.Request(subject.API(verb, r), data, 10*time.Second)
		return err == nil
	}, settleTimeout, 20*time.Millisecond, "the API answers %s", verb)
	return answer
}

// deploy asks for a chart and waits until it is settled.
func (w *world) deploy(r subject.Release, name string, archive []byte, body map[string]any) *seatrialv1.Outcome {
	w.t.Helper()
	return w.settled(w.askDeploy(r, name, archive, body))
}

func (w *world) askDeploy(r subject.Release, name string, archive []byte, body map[string]any) string {
	w.t.Helper()
	w.upload(name, archive)
	request := map[string]any{"chart": map[string]any{"object": name}}
	maps.Copy(request, body)
	return w.ask(seatrialv1.VerbDeploy, r, request)
}

// story tells the outcomes about a request, a line each.
func (w *world) story(request string) string {
	var lines string
	for _, o := range w.about(request) {
		lines += fmt.Sprintf("%s %s\n", o.GetKind(), o.GetMessage())
	}
	return lines
}
