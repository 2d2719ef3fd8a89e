package test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
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

// The second does not meet the first one's release half done, as two runs of Helm at once would.
func TestADeployDuringAnUpgradeComesAfterIt(t *testing.T) {
	w := start(t, nil)
	r := w.release()
	first := w.askDeploy(r, "first.tgz", helmtest.Web("1.0.0", helmtest.WithFile("templates/gate.yaml", `apiVersion: v1
kind: Pod
metadata: {name: gate, annotations: {helm.sh/hook: pre-install}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: "busybox:1.36", command: [sleep, "3600"]}]}
`)), nil)
	w.outcome(seatrialv1.KindDeploying, first)
	var more []string
	for _, version := range []string{"2.0.0", "3.0.0", "4.0.0"} {
		more = append(more, w.askDeploy(r, "web-"+version+".tgz", helmtest.Web(version), nil))
	}
	w.outcome(seatrialv1.KindAccepted, more[2])
	pods := w.client.Clientset.CoreV1().Pods(r.Namespace)
	require.Eventually(t, func() bool { // to Helm, a hook that was deleted has run
		return pods.Delete(t.Context(), "gate", metav1.DeleteOptions{}) == nil
	}, settleTimeout, 20*time.Millisecond)

	newest := w.settled(more[2])
	require.Equal(t, seatrialv1.ResultProven, newest.GetSettlement().GetResult(), newest.GetMessage())
	require.Equal(t, "4.0.0", newest.GetRunning().GetVersion())
	for _, request := range []string{first, more[0], more[1]} {
		settled := w.settled(request)
		require.Equal(t, seatrialv1.ResultSuperseded, settled.GetSettlement().GetResult(), settled.GetMessage())
	}
	var mutations []string
	for _, o := range w.about("") {
		switch o.GetKind() {
		case seatrialv1.KindDeploying, seatrialv1.KindDeployed, seatrialv1.KindDeployFailed:
			mutations = append(mutations, o.GetKind()+" "+o.GetRequested().GetVersion())
		}
	}
	require.Equal(t, []string{"deploying 1.0.0", "deployed 1.0.0", "deploying 4.0.0", "deployed 4.0.0"}, mutations)
}

func TestACancelStopsARunningTest(t *testing.T) {
	w := start(t, nil)
	r := w.release()
	slow := w.askDeploy(r, "slow.tgz", helmtest.Web("1.0.0", helmtest.WithTest("smoke", "sleep 600")), nil)
	w.outcome(seatrialv1.KindTesting, slow)
	pods := w.client.Clientset.CoreV1().Pods(r.Namespace)
	require.Eventually(t, func() bool {
		_, err := pods.Get(t.Context(), "web-smoke", metav1.GetOptions{})
		return err == nil
	}, settleTimeout, 100*time.Millisecond)
	cancel := w.ask(seatrialv1.VerbCancel, r, map[string]any{"request": slow})
	require.Equal(t, seatrialv1.ResultDone, w.settled(cancel).GetSettlement().GetResult())
	settled := w.settled(slow)
	require.Equal(t, seatrialv1.ResultSuperseded, settled.GetSettlement().GetResult(), settled.GetMessage())
	require.Equal(t, cancel, settled.GetSettlement().GetSupersededBy())
	require.Equal(t, "cancelled by cancel "+cancel+": revision 1 deployed, not tested", settled.GetMessage())
	require.Eventually(t, func() bool {
		_, err := pods.Get(t.Context(), "web-smoke", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, settleTimeout, 100*time.Millisecond, "the test's pod is stopped")
}

func TestASuspendedReleaseWaitsUntilItIsResumed(t *testing.T) {
	w := start(t, nil)
	r := w.release()
	suspend := w.ask(seatrialv1.VerbSuspend, r, nil)
	require.Equal(t, seatrialv1.ResultDone, w.settled(suspend).GetSettlement().GetResult())
	first := w.askDeploy(r, "one.tgz", helmtest.Web("1.0.0"), nil)
	second := w.askDeploy(r, "two.tgz", helmtest.Web("2.0.0"), nil)
	require.Equal(t, seatrialv1.ResultSuperseded, w.settled(first).GetSettlement().GetResult(), "the newest waits")

	known := &seatrialv1.GetAnswer{}
	answer := w.call("get", r, nil)
	require.NoError(t, wire.Unmarshal(answer.Header, answer.Data, known))
	require.Equal(t, suspend, known.GetSuspended().GetRequest())
	require.NotNil(t, known.GetSuspended().GetSince())
	require.Equal(t, second, known.GetWaiting())
	require.Nil(t, known.GetActive())

	w.settled(w.ask(seatrialv1.VerbResume, r, nil))
	settled := w.settled(second)
	require.Equal(t, seatrialv1.ResultProven, settled.GetSettlement().GetResult(), settled.GetMessage())
}

func TestListAndHistorySayWhatRunsAndWhatRan(t *testing.T) {
	w := start(t, nil)
	r := w.release()
	proven := w.deploy(r, "one.tgz", helmtest.Web("1.0.0"), nil)
	again := w.settled(w.ask(seatrialv1.VerbTest, r, nil))

	list := &seatrialv1.ListAnswer{}
	answer, err := w.sys.Conn.NC.Request(subject.APIList(r.Cluster, r.Namespace), nil, 10*time.Second)
	require.NoError(t, err)
	require.NoError(t, wire.Unmarshal(answer.Header, answer.Data, list))
	require.Len(t, list.GetReleases(), 1)
	running := list.GetReleases()[0].GetRunning()
	require.Equal(t, "1.0.0", running.GetContent().GetVersion())
	require.Equal(t, proven.GetRequest(), running.GetRequest())
	require.NotNil(t, running.GetSince())
	require.Equal(t, seatrialv1.StandingProven, running.GetStanding())
	require.Equal(t, again.GetRequest(), running.GetJudgedBy())
	require.Equal(t, []string{"web-smoke"}, running.GetTests())

	w.settled(w.ask(seatrialv1.VerbUninstall, r, nil))
	history := &seatrialv1.HistoryAnswer{}
	answer = w.call("history", r, nil)
	require.NoError(t, wire.Unmarshal(answer.Header, answer.Data, history))
	require.Empty(t, history.GetRevisions())
	var results []string
	for _, o := range history.GetSettled() {
		results = append(results, o.GetSettlement().GetVerb()+" "+o.GetSettlement().GetResult())
	}
	require.Equal(t, []string{"uninstall uninstalled", "test proven", "deploy proven"}, results)
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
			for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
				require.NotContains(w.t, string(msg.Data), form, msg.Subject)
				require.NotContains(w.t, fmt.Sprint(msg.Header), form, msg.Subject)
			}
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
