package test

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestANewerRequestStopsATestAndSupersedesIt(t *testing.T) {
	w := start(t, nil)
	r := w.release()
	slow := w.askDeploy(r, "slow.tgz", helmtest.Web("1.0.0", helmtest.WithTest("smoke", "sleep 600")), nil)
	w.outcome(seatrialv1.KindTesting, slow)

	newest := w.deploy(r, "quick.tgz", helmtest.Web("2.0.0"), nil)
	require.Equal(t, seatrialv1.ResultProven, newest.GetSettlement().GetResult(), newest.GetMessage())

	settled := w.settled(slow)
	require.Equal(t, seatrialv1.ResultSuperseded, settled.GetSettlement().GetResult(), settled.GetMessage())
	require.Equal(t, newest.GetRequest(), settled.GetSettlement().GetSupersededBy())
	require.Contains(t, settled.GetMessage(), "revision 1", "it says what it left behind")
	require.Equal(t, seatrialv1.VerdictCancelled, w.outcome(seatrialv1.KindTested, slow).GetTestRun().GetVerdict())
}

func TestASlowTestDelaysNoDeploy(t *testing.T) {
	w := start(t, nil)
	slow := w.askDeploy(w.release(), "slow.tgz", helmtest.Web("1.0.0", helmtest.WithTest("smoke", "sleep 600")), nil)
	w.outcome(seatrialv1.KindTesting, slow)
	other := w.deploy(w.release(), "quick.tgz", helmtest.Web("2.0.0"), nil)
	require.Equal(t, seatrialv1.ResultProven, other.GetSettlement().GetResult(), other.GetMessage())
	for _, o := range w.about(slow) {
		require.NotEqual(t, seatrialv1.KindSettled, o.GetKind(), "the slow one still runs")
	}
}

func TestEveryEventSaysWhatWasDeployed(t *testing.T) {
	w := start(t, nil)
	r := w.release()
	annotations := map[string]string{"commit_sha": "4f2a91c07e6b", "notes": "two\nlines"}
	proven := w.deploy(r, "good.tgz", helmtest.Web("1.0.0", helmtest.WithAnnotations(annotations)), nil)
	require.Equal(t, annotations, proven.GetRunning().GetAnnotations(), "the outcome has them unchanged")

	attribute := func(kind, name string) (value string) {
		w.until("the event "+kind, func() bool {
			for _, header := range w.events {
				if header.Get("ce-type") == "dev.seatrial."+kind+".v1" {
					value = header.Get("ce-" + name)
					return true
				}
			}
			return false
		})
		decoded, err := url.PathUnescape(value)
		require.NoError(t, err)
		return decoded
	}
	for _, kind := range []string{
		seatrialv1.KindDeploying, seatrialv1.KindDeployed, seatrialv1.KindTesting, seatrialv1.KindTested, seatrialv1.KindSettled,
	} {
		require.Equal(t, "4f2a91c07e6b", attribute(kind, "commitsha"), kind)
		require.Equal(t, "1.0.0", attribute(kind, "revision"), kind)
		require.Equal(t, "web", attribute(kind, "chartname"), kind)
		require.Equal(t, proven.GetRequested().GetDigest(), attribute(kind, "chartdigest"), kind)
		require.Empty(t, attribute(kind, "notes"), "two lines are no attribute: %s", kind)
	}
	require.Equal(t, "1", attribute(seatrialv1.KindSettled, "helmrevision"))
}

// canary is a Secret's value that nobody may see outside of the cluster.
const canary = "c4n4ry-in-a-s3cret"

func TestASecretsValueAppearsNowhere(t *testing.T) {
	w := start(t, nil)
	r := w.release()
	fails := helmtest.Web("1.0.0",
		helmtest.WithSecret("token", "token", canary),
		helmtest.WithFile("templates/tests/smoke.yaml", `
apiVersion: v1
kind: Pod
metadata:
  name: {{ .Release.Name }}-smoke
  annotations: {helm.sh/hook: test}
spec:
  restartPolicy: Never
  containers:
    - name: smoke
      image: busybox:1.36
      imagePullPolicy: IfNotPresent
      command: [sh, -c, 'echo "the token is $TOKEN"; exit 1']
      env:
        - name: TOKEN
          valueFrom: {secretKeyRef: {name: "{{ .Release.Name }}-token", key: token}}
`))
	settled := w.deploy(r, "secret.tgz", fails, nil)
	require.Equal(t, seatrialv1.ResultHeld, settled.GetSettlement().GetResult(), settled.GetMessage())
	tests := w.outcome(seatrialv1.KindTested, settled.GetRequest()).GetTestRun().GetTests()
	require.Len(t, tests, 1)
	require.Contains(t, tests[0].GetLogs()[0].GetTail(), "the token is", "the log itself is told")

	w.neverTold(canary)
}

// neverTold fails the test if a text stands in anything that was ever stored, but for the charts.
func (w *world) neverTold(secret string) {
	w.t.Helper()
	streams := w.sys.Conn.JS.ListStreams(w.t.Context())
	looked := 0
	for info := range streams.Info() {
		if strings.HasPrefix(info.Config.Name, "OBJ_") {
			continue
		}
		stream, err := w.sys.Conn.JS.Stream(w.t.Context(), info.Config.Name)
		require.NoError(w.t, err)
		for sequence := max(1, info.State.FirstSeq); sequence <= info.State.LastSeq; sequence++ {
			msg, err := stream.GetMsg(w.t.Context(), sequence)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			require.NoError(w.t, err)
			require.NotContains(w.t, string(msg.Data), secret, msg.Subject)
			looked++
		}
	}
	require.NoError(w.t, streams.Err())
	require.NotZero(w.t, looked)
}

func TestRecordsOfHelmAreNotTouchedByTests(t *testing.T) {
	w := start(t, nil)
	r := w.release()
	w.deploy(r, "good.tgz", helmtest.Web("1.0.0"), nil)
	records := func() map[string]string {
		secrets, err := w.client.Clientset.CoreV1().Secrets(r.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "owner=helm"})
		require.NoError(t, err)
		found := map[string]string{}
		for _, secret := range secrets.Items {
			found[secret.Name] = secret.ResourceVersion + " " + string(secret.Data["release"])
		}
		return found
	}
	before := records()
	require.Len(t, before, 1)
	again := w.settled(w.ask(seatrialv1.VerbTest, r, nil))
	require.Equal(t, seatrialv1.ResultProven, again.GetSettlement().GetResult(), again.GetMessage())
	require.Equal(t, before, records())
}

// console finds the blocks of commands in the README.
var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// TestTheCommandsOfTheREADME runs every command that the README shows to people who use Seatrial, in its order, with the
// real NATS CLI, against a running system.
func TestTheCommandsOfTheREADME(t *testing.T) {
	cli := os.Getenv("SEATRIAL_NATS_CLI")
	require.NotEmpty(t, cli, "this test needs the NATS CLI: run it by make test, or set SEATRIAL_NATS_CLI to its path")
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	w := start(t, nil)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(cli, dir+"/nats"))
	for version, archive := range map[string][]byte{
		"1.0.0": helmtest.Web("1.0.0", helmtest.WithAnnotations(map[string]string{"commit_sha": "4f2a91c07e6b"})),
		"1.1.0": helmtest.Web("1.1.0", helmtest.WithValues(map[string]any{"page": "two"})),
	} {
		require.NoError(t, os.WriteFile(dir+"/web-"+version+".tgz", archive, 0o600))
	}
	w.call("get", subject.Release{Cluster: "local", Namespace: "shop", Name: "web"}, nil) // the planner is up

	ran := 0
	for _, block := range console.FindAllStringSubmatch(string(readme), -1) {
		for _, script := range commands(block[1]) {
			script = strings.TrimSpace(script)
			if !strings.HasPrefix(script, "nats ") {
				continue // make and the services themselves: CI runs them
			}
			if strings.HasPrefix(script, "nats sub ") {
				script = "timeout 2 " + script + " || test $? = 124" // it would go on for ever
			}
			command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
			command.Dir = dir
			command.WaitDelay = time.Second
			command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "NATS_URL="+w.sys.NATS.URL)
			out, err := command.CombinedOutput()
			require.NoError(t, err, "%s\n%s", script, out)
			require.NotContains(t, string(out), "Nats-Service-Error", "%s\n%s", script, out)
			ran++
		}
	}
	require.NotZero(t, ran)
}

// commands returns those of a block: a line that begins with `$ `, with the lines that it continues on.
func commands(block string) []string {
	var found []string
	open := false
	for line := range strings.Lines(block) {
		command, begins := strings.CutPrefix(line, "$ ")
		switch {
		case begins:
			found = append(found, command)
		case open:
			found[len(found)-1] += strings.TrimPrefix(line, "> ")
		default:
			continue
		}
		whole := found[len(found)-1]
		open = strings.HasSuffix(strings.TrimRight(whole, "\n"), `\`) || strings.Count(whole, "'")%2 == 1
	}
	return found
}
