package kittest

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy stands between one client and its server, and takes the client away at a chosen moment: for the server that is
// what a killed, frozen or cut off process looks like.
type Proxy struct {
	// URL is where the client connects.
	URL string

	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	wake  *sync.Cond // held or dead has changed
	held  bool
	muted bool
	dead  bool
	pairs []pair
	traps []trap
}

// pair is the connection of the client and the one to the server that goes with it.
type pair struct {
	client, server *net.TCPConn
}

// Match chooses a message that the client publishes; payload has the headers too.
type Match func(subject, payload string) bool

// trap is what to do about a message.
type trap struct {
	match         Match
	before, after func()
}

// NewProxy starts a proxy before the server at url. It ends with the test.
func NewProxy(t testing.TB, url string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{
		URL:      "nats://" + listener.Addr().String(),
		target:   strings.TrimPrefix(url, "nats://"),
		listener: listener,
	}
	p.wake = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Kill()
		p.running.Wait()
	})
	return p
}

// Kill cuts the client off for ever.
func (p *Proxy) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead = true
	p.wake.Broadcast()
	for _, c := range p.pairs {
		_ = c.client.Close()
		// Only this half: the server still reads what it was sent. What it answers is dropped.
		_ = c.server.CloseWrite()
	}
}

// Killed says whether the client is cut off.
func (p *Proxy) Killed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// Hold lets nothing pass until Resume, as if the process stood still.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
}

// Resume lets everything pass that was held up.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = false
	p.wake.Broadcast()
}

// KillBefore kills the client when it publishes a message that matches, which does not arrive.
func (p *Proxy) KillBefore(match Match) { p.on(trap{match: match, before: p.Kill}) }

// KillAfter kills the client when it has published a message that matches. The message arrives, the answer does not.
func (p *Proxy) KillAfter(match Match) { p.on(trap{match: match, before: p.mute, after: p.Kill}) }

// mute drops from now on what the server answers.
func (p *Proxy) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.muted = true
}

// HoldBefore is Hold from the first message on that matches; it arrives after Resume. The returned channel is closed
// when that has happened.
func (p *Proxy) HoldBefore(match Match) (held <-chan struct{}) {
	reached := make(chan struct{})
	hold := sync.OnceFunc(func() {
		p.Hold()
		close(reached)
	})
	p.on(trap{match: match, before: hold})
	return reached
}

func (p *Proxy) on(t trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
}

// spring returns what is to be done about a message.
func (p *Proxy) spring(subject, payload string) (before, after func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, after = func() {}, func() {}
	for _, t := range p.traps {
		if !t.match(subject, payload) {
			continue
		}
		if t.before != nil {
			before = t.before
		}
		if t.after != nil {
			after = t.after
		}
	}
	return before, after
}

// pass waits while the proxy is held, and says whether the client still lives.
func (p *Proxy) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held && !p.dead {
		p.wake.Wait()
	}
	return !p.dead
}

// answers says whether what the server answers is passed on.
func (p *Proxy) answers() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.muted
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || p.Killed() {
			_ = client.Close()
			continue
		}
		c := pair{client.(*net.TCPConn), server.(*net.TCPConn)}
		p.mu.Lock()
		p.pairs = append(p.pairs, c)
		p.mu.Unlock()
		p.running.Go(func() { p.forward(c) })
		p.running.Go(func() { p.answer(c) })
	}
}

// forward passes on what the client sends, one protocol operation at a time.
func (p *Proxy) forward(c pair) {
	defer func() { _ = c.server.CloseWrite() }()
	in := bufio.NewReader(c.client)
	for {
		operation, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		before, after := func() {}, func() {}
		if word := strings.Fields(string(operation)); len(word) > 2 && (word[0] == "PUB" || word[0] == "HPUB") {
			size, err := strconv.Atoi(word[len(word)-1])
			if err != nil {
				return
			}
			payload := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(in, payload); err != nil {
				return
			}
			operation = append(operation, payload...)
			before, after = p.spring(word[1], string(payload))
		}
		before()
		if !p.pass() {
			return
		}
		if _, err := c.server.Write(operation); err != nil {
			return
		}
		after()
	}
}

// answer passes on what the server sends.
func (p *Proxy) answer(c pair) {
	defer func() {
		_ = c.client.Close()
		_ = c.server.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.server.Read(buffer)
		if err != nil {
			return
		}
		if p.pass() && p.answers() {
			_, _ = c.client.Write(buffer[:n])
		}
	}
}
