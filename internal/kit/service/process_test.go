package service

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// process is this test binary, run as a service.
type process struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr io.ReadCloser
	lines  *bufio.Scanner
}

func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], args...)}
	p.cmd.Env = append([]string{childVariable + "=1"}, env...)
	p.cmd.Stdout = &p.stdout
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	p.stderr, p.lines = stderr, bufio.NewScanner(stderr)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// until reads log lines up to the one with that message.
func (p *process) until(t *testing.T, message string) map[string]any {
	t.Helper()
	for p.lines.Scan() {
		var line map[string]any
		require.NoError(t, json.Unmarshal(p.lines.Bytes(), &line), p.lines.Text())
		if line["msg"] == message {
			return line
		}
	}
	require.Fail(t, "the process ended without logging "+message)
	return nil
}

// wait returns what was written, and the exit code.
func (p *process) wait(t *testing.T) (stdout, stderr string, code int) {
	t.Helper()
	rest, err := io.ReadAll(p.stderr)
	require.NoError(t, err)
	_ = p.cmd.Wait()
	return p.stdout.String(), string(rest), p.cmd.ProcessState.ExitCode()
}

func TestSignalsDrainAndExitWithZero(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			p := start(t, nil, "--drain=10ms")
			address, _ := p.until(t, "serving HTTP")["address"].(string)
			require.Eventually(t, func() bool {
				code, _ := get(t, address, "/readyz")
				return code == http.StatusOK
			}, patience, tick)
			require.NoError(t, p.cmd.Process.Signal(signal))
			p.until(t, "stopping")
			p.until(t, "drained")
			p.until(t, "flushed")
			p.until(t, "stopped")
			_, stderr, code := p.wait(t)
			require.Zero(t, code, stderr)
		})
	}
}

func TestASecondSignalKillsAProcessThatHangs(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--drain=1h")
	p.until(t, "serving HTTP")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.until(t, "stopping")
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	_, _, _ = p.wait(t)
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.Equal(t, syscall.SIGTERM, status.Signal())
}

func TestCheckAsksTheRunningService(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "--drain=1h")
	address, _ := p.until(t, "serving HTTP")["address"].(string)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		stdout, stderr, code := start(t, []string{"SEATRIAL_HTTP_ADDR=:" + port, "HTTP_PROXY=http://127.0.0.1:1"}, "--check").wait(t)
		return code == 0 && stdout+stderr == ""
	}, patience, tick, "as a service listens, so it is asked")

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.until(t, "stopping")
	_, stderr, code := start(t, nil, "--check", "--http-addr="+address).wait(t)
	require.Equal(t, 1, code)
	require.Equal(t, "seatrial-child: not ready:\nservice: stopping\n", stderr)

	require.NoError(t, p.cmd.Process.Kill())
	_, _, _ = p.wait(t)
	_, stderr, code = start(t, nil, "--check", "--http-addr="+address).wait(t)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "connection refused")
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name           string
		env, args      []string
		code           int
		stdout, stderr []string
	}{
		{
			name: "help lists flags with variables and defaults", args: []string{"--help"},
			stdout: []string{
				"Usage: seatrial-child [flags]", "--shutdown-grace", "(default 30s)", "$SEATRIAL_SHUTDOWN_GRACE",
				"--nats-url", "(default nats://127.0.0.1:4222)", "$SEATRIAL_NATS_URL or $NATS_URL", "--drain", "$SEATRIAL_DRAIN",
			},
		},
		{name: "version", args: []string{"-version"}, stdout: []string{"seatrial-child unknown go1."}},
		{
			name: "unknown flag", args: []string{"--no-such"}, code: 2,
			stderr: []string{"-no-such", "See seatrial-child --help."},
		},
		{name: "argument", args: []string{"deploy"}, code: 2, stderr: []string{`unexpected argument "deploy"`}},
		{
			name: "bad value of a flag", args: []string{"--log-level=loud"}, code: 2,
			stderr: []string{`"loud"`, "-log-level"},
		},
		{
			name: "bad values of variables, all of them", env: []string{"SEATRIAL_LOG_FORMAT=xml", "SEATRIAL_DRAIN=soon"}, code: 2,
			stderr: []string{`invalid value "xml" for SEATRIAL_LOG_FORMAT: want json or text`, `invalid value "soon" for SEATRIAL_DRAIN`},
		},
		{
			name: "bad address", env: []string{"SEATRIAL_HTTP_ADDR=nowhere"}, code: 2,
			stderr: []string{`--http-addr "nowhere"`},
		},
		{
			name: "address of somebody else", args: []string{"--http-addr=192.0.2.1:1"}, code: 1,
			stderr: []string{"--http-addr: listen tcp 192.0.2.1:1"},
		},
		{
			name: "check without a port", args: []string{"--check"}, code: 2,
			stderr: []string{`--http-addr "127.0.0.1:0": it must name the port to ask at`},
		},
		{
			name: "negative grace", args: []string{"--shutdown-grace=-1s"}, code: 2,
			stderr: []string{"--shutdown-grace -1s"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			stdout, stderr, code := start(t, row.env, row.args...).wait(t)
			require.Equal(t, row.code, code, stderr)
			for _, want := range row.stdout {
				require.Contains(t, stdout, want)
			}
			for _, want := range row.stderr {
				require.Contains(t, stderr, want)
			}
			if row.code == 0 {
				require.Empty(t, stderr)
			}
		})
	}
}
