package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seatrial/seatrial/dev/cluster/internal/claim"
	"github.com/seatrial/seatrial/dev/cluster/internal/process"
)

// programName is args[0] where this test binary plays the program.
const programName = "seatrial-cluster"

// deadline is for what takes seconds on an idle machine; beat is how often it is asked for.
const (
	deadline = 3 * time.Minute
	beat     = 50 * time.Millisecond
)

// The test binary has everything that the program has: it plays the program, the first process and the components
// when it is started under their names.
func TestMain(m *testing.M) {
	if !strings.HasSuffix(os.Args[0], ".test") {
		os.Exit(run(os.Args))
	}
	os.Exit(m.Run())
}

// program is a run of the program under test.
type program struct {
	*exec.Cmd

	ended  <-chan struct{}
	output *os.File // the program's end of stdout
	stdout *bufio.Reader
	stderr *bytes.Buffer
}

// start starts the program; it is killed with the test, if it still runs.
func start(t *testing.T, environment []string, args ...string) *program {
	t.Helper()
	p := prepare(t, environment, args...)
	p.begin(t)
	return p
}

// prepare prepares a run of the program.
func prepare(t *testing.T, environment []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	output, stdout, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { output.Close() })
	p := &program{
		Cmd:    &exec.Cmd{Path: self, Args: append([]string{programName}, args...)},
		output: stdout,
		stdout: bufio.NewReader(output),
		stderr: &bytes.Buffer{},
	}
	// What make builds beside the program is not beside this test.
	built, err := filepath.Abs("../../.bin")
	require.NoError(t, err)
	p.Env = append(withoutKubeconfig(), "PATH="+built+string(filepath.ListSeparator)+os.Getenv("PATH"))
	p.Env = append(p.Env, environment...)
	p.Stdout, p.Stderr = stdout, p.stderr
	return p
}

// begin starts what was prepared.
func (p *program) begin(t *testing.T) {
	t.Helper()
	var err error
	p.ended, err = process.Start(p.Cmd)
	require.NoError(t, err)
	require.NoError(t, p.output.Close())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(p.Args, " "), p.stderr)
		}
	})
}

// withoutKubeconfig is the environment of these tests, in which a cluster with its real node will be started.
func withoutKubeconfig() []string {
	var environment []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, kubeconfigVariable+"=") && !strings.HasPrefix(variable, nodeVariable+"=") {
			environment = append(environment, variable)
		}
	}
	return environment
}

// line reads the next line of the standard output.
func (p *program) line(t *testing.T) string {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		<-p.ended
	}
	require.NoError(t, err, "the program ended: %s", p.stderr)
	return strings.TrimSuffix(line, "\n")
}

// stop sends a signal, waits for the end, and returns the exit code.
func (p *program) stop(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	require.NoError(t, p.Process.Signal(signal))
	select {
	case <-p.ended:
	case <-time.After(deadline):
		require.FailNow(t, "the program does not end")
	}
	return p.ProcessState.ExitCode()
}

// up starts a cluster and returns when it is ready.
func up(t *testing.T, args ...string) (p *program, kubeconfig string) {
	t.Helper()
	p = start(t, nil, append([]string{"up"}, args...)...)
	kubeconfig, ok := strings.CutPrefix(p.line(t), "ready: kubeconfig=")
	require.True(t, ok)
	return p, kubeconfig
}

func clientOf(t *testing.T, kubeconfig string) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return config, client
}

// recordOf is what the cluster of that name has told others that it holds.
func recordOf(t *testing.T, name string) claim.Record {
	t.Helper()
	content, err := os.ReadFile(recordPath(name))
	require.NoError(t, err)
	var record claim.Record
	require.NoError(t, json.Unmarshal(content, &record))
	return record
}

func recordPath(name string) string {
	return filepath.Join(string(claim.Machine), name+".json")
}

// uniqueName is a name for a cluster that no other test, and no one beside these tests, has.
func uniqueName(name string) string {
	return fmt.Sprintf("test-%s-%d", name, os.Getpid())
}
