package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/service"
	"github.com/seatrial/seatrial/internal/kit/subject"
)

// childVariable makes this test binary the program, so that tests can send it signals and read its exit code.
const childVariable = "UP_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program is a run of the program.
type program struct {
	*exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
}

// start starts the program; the folders that it throws away are made in tmp.
func start(t *testing.T, tmp string, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = []string{childVariable + "=1", "TMPDIR=" + tmp, "KUBECONFIG=" + helmtest.Kubeconfig(t)}
	stdout, err := p.StdoutPipe()
	require.NoError(t, err)
	p.stdout, p.Stderr = bufio.NewReader(stdout), &p.stderr
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", strings.Join(args, " "), p.stderr.String())
		}
	})
	return p
}

// ready waits for the line that says so, and returns the URL of NATS.
func (p *program) ready(t *testing.T) (natsURL string) {
	t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		_ = p.Wait()
		require.NoError(t, err, "it ended: %s", p.stderr.String())
	}
	tail, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "ready: nats=")
	require.True(t, ok, line)
	natsURL, kubeconfig, ok := strings.Cut(tail, " kubeconfig=")
	require.True(t, ok, line)
	require.Equal(t, helmtest.Kubeconfig(t), kubeconfig)
	return natsURL
}

// end waits for the end, and returns the exit code and what came on the standard output.
func (p *program) end(t *testing.T) (code int, rest string) {
	t.Helper()
	out, err := io.ReadAll(p.stdout)
	require.NoError(t, err)
	_ = p.Wait()
	return p.ProcessState.ExitCode(), string(out)
}

// stop interrupts it, as Ctrl-C does.
func (p *program) stop(t *testing.T) (code int, rest string) {
	t.Helper()
	require.NoError(t, p.Process.Signal(os.Interrupt))
	return p.end(t)
}

// taken listens on a port of 127.0.0.1.
func taken(t *testing.T) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().(*net.TCPAddr).Port
}

// open returns a port of 127.0.0.1 on which nobody listens.
func open(t *testing.T) (port int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().(*net.TCPAddr).Port
}

func TestAllIsReadyUntilInterruptedAndThenNothingIsLeft(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	killed := filepath.Join(tmp, temporary+"killed")
	require.NoError(t, os.MkdirAll(filepath.Join(killed, "nats"), 0o700))
	natsPort, httpPort := open(t), open(t)

	p := start(t, tmp, fmt.Sprint("--nats-port=", natsPort), fmt.Sprint("--http-port=", httpPort))
	url := p.ready(t)
	require.Equal(t, fmt.Sprint("nats://127.0.0.1:", natsPort), url)
	require.NoError(t, service.Ready(t.Context(), net.JoinHostPort("127.0.0.1", strconv.Itoa(httpPort))), "the planner")
	conn := kittest.Connect(t, url)
	release := subject.Release{Cluster: "local", Namespace: "shop", Name: "web"}
	answer, err := conn.NC.RequestWithContext(t.Context(), subject.API("get", release), []byte("{}"))
	require.NoError(t, err)
	require.Contains(t, string(answer.Data), "nothing is known of release local/shop/web")
	for _, durable := range []string{subject.ConsumerExecutor("local"), subject.ConsumerTester("local", "")} {
		consumer, err := conn.JS.Consumer(t.Context(), subject.StreamCommands, durable)
		require.NoError(t, err)
		require.NotZero(t, consumer.CachedInfo().NumWaiting, "%s: somebody waits for commands", durable)
	}
	require.NoDirExists(t, killed, "what a killed one left is removed")

	code, rest := p.stop(t)
	require.Zero(t, code)
	require.Empty(t, rest, "one line is all that it says")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestTwoRunBesideEachOther(t *testing.T) {
	t.Parallel()
	tmp, port := t.TempDir(), taken(t)
	first := start(t, tmp, fmt.Sprint("--nats-port=", port), fmt.Sprint("--http-port=", port))
	one := first.ready(t)
	second := start(t, tmp, fmt.Sprint("--nats-port=", port), fmt.Sprint("--http-port=", port))
	require.NotEqual(t, one, second.ready(t))
	left, err := filepath.Glob(filepath.Join(tmp, temporary+"*"))
	require.NoError(t, err)
	require.Len(t, left, 2, "neither has removed the other's state")
	for _, p := range []*program{first, second} {
		code, _ := p.stop(t)
		require.Zero(t, code)
	}
}

func TestTheStreamsAreKeptOnRequest(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	args := []string{"--nats-port=0", "--http-port=0", "--state=" + filepath.Join(tmp, "kept", "state")}
	p := start(t, tmp, args...)
	conn := kittest.Connect(t, p.ready(t))
	require.NoError(t, conn.PutObject(t.Context(), subject.ObjectsUploads, "web.tgz", []byte("a chart")))

	second := start(t, tmp, args...)
	code, rest := second.end(t)
	require.Equal(t, 1, code)
	require.Empty(t, rest)
	require.Contains(t, second.stderr.String(), "another one is running on the state in "+filepath.Join(tmp, "kept", "state"))

	require.NoError(t, p.Process.Signal(syscall.SIGKILL))
	_, _ = p.end(t)
	p = start(t, tmp, args...)
	found, err := kittest.Connect(t, p.ready(t)).GetObject(t.Context(), subject.ObjectsUploads, "web.tgz", 100)
	require.NoError(t, err)
	require.Equal(t, "a chart", string(found))
	code, _ = p.stop(t)
	require.Zero(t, code)
}

func TestWhatCannotBeRunIsSaid(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no cluster", []string{"--kubeconfig="}, 2, "no cluster: set KUBECONFIG, or use `make up`"},
		{"no such kubeconfig", []string{"--kubeconfig=/no/such/file"}, 1, "/no/such/file"},
		{"no folder", []string{"--state=/dev/null/state"}, 1, "make the folder of the state: mkdir /dev/null"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			tmp := t.TempDir()
			p := start(t, tmp, append(row.args, "--nats-port=0", "--http-port=0")...)
			code, rest := p.end(t)
			require.Equal(t, row.code, code, p.stderr.String())
			require.Empty(t, rest)
			require.Contains(t, p.stderr.String(), row.says)
			left, err := os.ReadDir(tmp)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}
