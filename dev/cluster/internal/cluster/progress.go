package cluster

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress tells a person what happens now, a line a step.
type progress struct {
	out   io.Writer
	total int
	begun time.Time

	mu   sync.Mutex
	done int
}

func newProgress(out io.Writer, total int) *progress {
	return &progress{out: out, total: total, begun: time.Now()}
}

// of corrects how many steps there are.
func (p *progress) of(total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
}

// step says what begins.
func (p *progress) step(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	fmt.Fprintf(p.out, "[%d/%d] %s (%s)\n", p.done, p.total, text, p.elapsed())
}

// note says something about the step that goes on.
func (p *progress) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "      "+format+"\n", args...)
}

// elapsed is the time since the first step, as people read it.
func (p *progress) elapsed() string {
	return fmt.Sprintf("%.1f s", time.Since(p.begun).Seconds())
}
