// Package demo plays the main job on a running system and tells it as a story: people's commands by the real natscli,
// the outcomes as they come, and the CloudEvents that subscribers receive.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seatrial/seatrial/dev/system"
	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// ErrDiffered is returned when a scene did not go as expected; the story says how.
var ErrDiffered = errors.New("a scene differed from what is expected")

// release is what the demo is about.
var release = subject.Release{Cluster: system.Cluster, Namespace: "shop", Name: "web"}

// connectTimeout is how long NATS may take to answer, and settleTimeout how long one scene may take.
const (
	connectTimeout = 10 * time.Second
	settleTimeout  = 5 * time.Minute
)

// Config says with what the demo is played.
type Config struct {
	// NATSCLI and HelmCLI are the paths of the programs `nats` and `helm`.
	NATSCLI string
	HelmCLI string
	// NATSURL reaches the system, and Kubeconfig the cluster that it works in.
	NATSURL    string
	Kubeconfig string
	// Dir keeps the charts.
	Dir string
	// Out takes the story, Log what goes wrong with the connection.
	Out io.Writer
	Log *slog.Logger
}

// demo is one performance.
type demo struct {
	cfg Config
	// proven is the digest of what 1.0.0 was.
	proven string

	mu      sync.Mutex
	started time.Time
	act     *act
	settled chan struct{} // gets something when the scene's settled event has come
}

// event is a CloudEvent as a subscriber reads it from NATS, in binary mode.
type event struct {
	kind       string
	attributes map[string]string
}

// Play plays all scenes. The release must not be known to the system yet.
func Play(ctx context.Context, cfg Config) error {
	connecting, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("no answer in %s", connectTimeout))
	defer cancel()
	conn, err := bus.Connect(connecting, bus.Config{URL: cfg.NATSURL, Name: "demo"}, cfg.Log)
	if err != nil {
		return err
	}
	defer conn.NC.Close()
	d := &demo{cfg: cfg}
	for _, watched := range []string{subject.Outcome("*", release), subject.Event("*", release)} {
		if _, err := conn.NC.Subscribe(watched, d.see); err != nil {
			return fmt.Errorf("watch %s: %w", watched, err)
		}
	}
	if err := unknown(connecting, conn); err != nil {
		return err
	}

	asExpected := 0
	for i, s := range scenes {
		d.say("\n━━ Scene %d of %d ━━ %s\n\n", i+1, len(scenes), s.title)
		differs, err := d.play(ctx, s)
		if err != nil {
			return fmt.Errorf("scene %d: %w", i+1, err)
		}
		if len(differs) == 0 {
			asExpected++
			d.say("\n  ✔ as expected: %s\n", s.result)
		}
		for _, how := range differs {
			d.say("\n  ✘ %s\n", how)
		}
	}

	d.say("\n━━ What Helm remembers ━━\n\n")
	if _, err := d.run(ctx, cfg.HelmCLI, "history", release.Name, "--namespace", release.Namespace); err != nil {
		return err
	}
	d.say("\ndemo: %d of %d scenes as expected\n", asExpected, len(scenes))
	if asExpected != len(scenes) {
		return ErrDiffered
	}
	return nil
}

// unknown returns an error if the system knows the release: it would count on from the revisions that it remembers.
func unknown(ctx context.Context, conn *bus.Conn) error {
	answer, err := conn.NC.RequestWithContext(ctx, subject.API("get", release), []byte("{}"))
	if err != nil {
		return fmt.Errorf("ask for release %s: %w", release, err)
	}
	switch answer.Header.Get(micro.ErrorCodeHeader) {
	case strconv.Itoa(http.StatusNotFound):
		return nil
	case "":
		return fmt.Errorf("release %s is there already: play the demo on a system that has never had it", release)
	default:
		return fmt.Errorf("ask for release %s: %s", release, answer.Header.Get(micro.ErrorHeader))
	}
}

// play plays one scene and returns how it differed.
func (d *demo) play(ctx context.Context, s scene) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	archive, err := pack(d.cfg.Dir, s.chart)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.act, d.settled, d.started = &act{}, make(chan struct{}, 1), time.Now()
	d.mu.Unlock()

	name := filepath.Base(archive)
	if _, err := d.run(ctx, d.cfg.NATSCLI, "object", "put", subject.ObjectsUploads, archive, "--name", name, "--force", "--no-progress"); err != nil {
		return nil, err
	}
	body := fmt.Sprintf(`{"chart": {"object": %q}, "upgrade": {"createNamespace": true}}`, name)
	answer, err := d.run(ctx, d.cfg.NATSCLI, "req", "--no-templates", "--raw", subject.API(seatrialv1.VerbDeploy, release), body)
	if err != nil {
		return nil, err
	}
	var stored struct{ Request, Error string }
	if err := json.Unmarshal([]byte(answer), &stored); err != nil || stored.Request == "" {
		return nil, fmt.Errorf("the answer to the deploy is %q, expected the id of the stored request", answer)
	}
	if _, err := d.run(ctx, d.cfg.NATSCLI, "req", "--no-templates", "--raw", "--timeout", settleTimeout.String(),
		subject.API("wait", release), fmt.Sprintf(`{"request": %q}`, stored.Request)); err != nil {
		return nil, err
	}
	select {
	case <-d.settled:
	case <-ctx.Done():
		return nil, fmt.Errorf("no settled event came: %w", context.Cause(ctx))
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	got := d.act
	if log := testLog(got); log != "" {
		d.say("\n  the log of the test:\n    | %s\n", strings.ReplaceAll(strings.TrimSpace(log), "\n", "\n    | "))
	}
	d.tell(got.events)
	if d.proven == "" {
		d.proven = got.find(seatrialv1.KindSettled).GetRunning().GetManifestDigest()
	}
	var differs []string
	if result := got.find(seatrialv1.KindSettled).GetSettlement().GetResult(); result != s.result {
		differs = append(differs, fmt.Sprintf("settled %s, expected %s", result, s.result))
	}
	return append(differs, s.check(d, got)...), nil
}

// see takes in an outcome or an event of the scene that is being played, and tells outcomes at once.
func (d *demo) see(msg *nats.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.act == nil {
		return // what comes before the first scene is none of the demo's
	}
	if kind, ok := strings.CutPrefix(msg.Subject, "seatrial.event."); ok {
		kind, _, _ = strings.Cut(kind, ".")
		d.act.events = append(d.act.events, event{kind: kind, attributes: attributes(msg.Header)})
		if kind == seatrialv1.KindSettled {
			select {
			case d.settled <- struct{}{}:
			default: // somebody else asks for something in the middle of the scene
			}
		}
		return
	}
	var o seatrialv1.Outcome
	if err := wire.Unmarshal(msg.Header, msg.Data, &o); err != nil {
		d.say("  an outcome that cannot be read: %v\n", err)
		return
	}
	d.act.outcomes = append(d.act.outcomes, &o)
	d.say("  %6.2fs  %-9s %-12s %s\n", time.Since(d.started).Seconds(), o.GetService(), o.GetKind(), o.GetMessage())
}

// attributes decodes the CloudEvents attributes of a message in binary mode.
func attributes(header nats.Header) map[string]string {
	all := map[string]string{}
	for key, values := range header {
		name, ok := strings.CutPrefix(strings.ToLower(key), "ce-")
		if !ok || len(values) == 0 {
			continue
		}
		value, err := url.PathUnescape(values[0])
		if err != nil {
			value = values[0]
		}
		all[name] = value
	}
	return all
}

// tell shows the CloudEvents: a line for each, and every attribute of the last one.
func (d *demo) tell(events []event) {
	d.say("\n  what a subscriber of %s received:\n", "seatrial.event.>")
	for _, e := range events {
		d.say("    %-34s", e.attributes["type"])
		for _, name := range []string{"revision", "helmrevision", "commitsha", "verdict", "result"} {
			if value, ok := e.attributes[name]; ok {
				d.say(" %s=%s", name, value)
			}
		}
		d.say("\n")
	}
	if len(events) == 0 {
		return
	}
	d.say("  all attributes of the last one:\n")
	last := events[len(events)-1].attributes
	names := make([]string, 0, len(last))
	for name := range last {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		d.say("    %-16s %s\n", name, last[name])
	}
}

// run runs a command as a person would, shows it and what it says, and returns that.
func (d *demo) run(ctx context.Context, program string, args ...string) (string, error) {
	shown := []string{filepath.Base(program)}
	for _, arg := range args {
		if strings.ContainsAny(arg, " {}") {
			arg = "'" + arg + "'"
		}
		shown = append(shown, strings.TrimPrefix(arg, d.cfg.Dir+string(filepath.Separator)))
	}
	d.say("$ %s\n", strings.Join(shown, " "))
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), "NATS_URL="+d.cfg.NATSURL, "KUBECONFIG="+d.cfg.Kubeconfig)
	out, err := command.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(shown, " "), err, text)
	}
	for line := range strings.Lines(text) {
		d.say("  %s\n", shorten(strings.TrimRight(line, "\n")))
	}
	return text, nil
}

// shorten cuts what no person would read to its end.
func shorten(line string) string {
	const most = 160
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return line
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.cfg.Out, format, args...) }
