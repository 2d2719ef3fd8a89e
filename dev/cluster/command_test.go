package main

import (
	"encoding/json"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/dev/cluster/internal/claim"
)

func TestRunUsesTheKubeconfigOfTheUser(t *testing.T) {
	p := start(t, []string{kubeconfigVariable + "=/somewhere/config"}, "run", "--", "sh", "-c", "echo $KUBECONFIG; exit 3")
	require.Equal(t, "/somewhere/config", p.line(t))
	<-p.ended
	require.Equal(t, 3, p.ProcessState.ExitCode())
	require.Equal(t, "using KUBECONFIG=/somewhere/config\n", p.stderr.String())
}

func TestRunPassesOnSignalsAndTheExitCode(t *testing.T) {
	name := uniqueName("signals")
	p := start(t, nil, "run", "--name", name, "--", "sh", "-c",
		`trap 'echo told; exit 42' TERM; test -s "$KUBECONFIG" -a -s "$SEATRIAL_AUDIT_LOG" && echo started; while sleep 0.1; do :; done`)
	require.Equal(t, "started", p.line(t))
	record := recordOf(t, name)
	require.Equal(t, 42, p.stop(t, syscall.SIGTERM))
	require.Equal(t, "told", p.line(t))
	requireNothingLeft(t, name, record)
}

func TestRunOfNoProgramStartsNothing(t *testing.T) {
	p := start(t, nil, "run", "--", "no-such-program")
	<-p.ended
	require.Equal(t, 1, p.ProcessState.ExitCode())
	require.Contains(t, p.stderr.String(), `"no-such-program": executable file not found`)
	require.NotContains(t, p.stderr.String(), "[1/")
}

func TestUpInterruptedWhileStarting(t *testing.T) {
	name := uniqueName("interrupted")
	p := start(t, nil, "up", "--name", name)
	var record claim.Record
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(recordPath(name))
		return err == nil && json.Unmarshal(content, &record) == nil && record.Interface != ""
	}, deadline, beat, "the namespaces are not made")
	require.NotZero(t, p.stop(t, syscall.SIGINT))
	require.Contains(t, p.stderr.String(), "interrupt")
	requireNothingLeft(t, name, record)
}
