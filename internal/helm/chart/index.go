package chart

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// limits are the most bytes that are read of an index, of one in JSON, which is kept as a whole, and that the entries of one
// chart may have.
type limits struct{ index, json, entries int64 }

var indexLimits = limits{index: 256 << 20, json: 32 << 20, entries: 8 << 20}

// errIndex is wrapped by the error of an index that cannot be used.
var errIndex = errors.New("the index cannot be used")

// indexed is one version of a chart in an index.
type indexed struct {
	Version string   `json:"version"`
	URLs    []string `json:"urls"`
	Digest  string   `json:"digest"`
}

// findEntries returns the versions of one chart in an index, none if it is not there. An index can have hundreds of megabytes
// of other charts, and a YAML parser needs many times that: it is read line by line, and only the lines of the one chart
// are kept and parsed. So the outer levels must be written as every tool writes them, a key in each line; or all of it in
// JSON, as `helm repo index --json` does.
func findEntries(index io.Reader, name string, most limits) ([]indexed, error) {
	limited := &io.LimitedReader{R: index, N: most.index + 1}
	r := bufio.NewReaderSize(limited, 64<<10)
	var found []indexed
	var err error
	if first, peeked := firstByte(r); peeked == nil && first == '{' {
		found, err = findJSON(r, name, most.json)
	} else {
		found, err = findYAML(r, name, most.entries)
	}
	if limited.N == 0 {
		return nil, fmt.Errorf("%w: it has more than %d bytes", errIndex, most.index)
	}
	return found, err
}

// firstByte returns the first byte that is no white space, and leaves it there.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil || !strings.ContainsRune(" \t\r\n", rune(b)) {
			return b, errors.Join(err, r.UnreadByte())
		}
	}
}

// findYAML takes the lines from `<name>:`, below `entries:`, to the next chart.
func findYAML(r *bufio.Reader, name string, most int64) ([]indexed, error) {
	var kept bytes.Buffer
	at := outline{name: name, indent: -1}
	for starts := true; ; {
		part, err := r.ReadSlice('\n') // a line, or as much of it as the buffer holds
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if starts {
			if err := at.line(part); err != nil {
				return nil, err
			}
		}
		if at.found && !at.over {
			kept.Write(part)
		}
		if int64(kept.Len()) > most {
			return nil, fmt.Errorf("%w: the entries of %s have more than %d bytes", errIndex, name, most)
		}
		if at.over || errors.Is(err, io.EOF) {
			break
		}
		starts = err == nil
	}
	if !at.inside {
		return nil, fmt.Errorf("%w: it has no entries", errIndex)
	}
	var charts map[string][]indexed
	if err := yaml.Unmarshal(kept.Bytes(), &charts); err != nil {
		return nil, fmt.Errorf("%w: %s", errIndex, clean(err))
	}
	return charts[name], nil
}

// outline is where in an index a line stands.
type outline struct {
	name string
	// inside of the entries; found: among the lines of the chart; over: behind them.
	inside, found, over bool
	// indent is that of the names of charts, -1 before the first.
	indent int
}

// line goes on by one line. All that belongs to a chart is indented more than its name, but for the `-` of a list.
func (o *outline) line(text []byte) error {
	trimmed := bytes.TrimLeft(text, " ")
	indent := len(text) - len(trimmed)
	switch {
	case len(bytes.TrimSpace(trimmed)) == 0 || trimmed[0] == '#':
	case !o.inside:
		rest, is := valueOf(trimmed, "entries")
		if o.inside = is && indent == 0; o.inside && rest != "" && rest != "{}" {
			return fmt.Errorf("%w: each chart in it must begin a line of its own", errIndex)
		}
	case indent == 0 && trimmed[0] != '-':
		o.over = true
	case o.indent < 0 || indent == o.indent && trimmed[0] != '-':
		o.indent = indent
		o.over = o.found
		_, o.found = valueOf(trimmed, o.name)
	}
	return nil
}

// valueOf returns what stands behind `<key>:` in a line, and whether the line is that.
func valueOf(line []byte, key string) (rest string, is bool) {
	for _, quote := range []string{"", `"`, "'"} {
		if rest, is := bytes.CutPrefix(line, []byte(quote+key+quote+":")); is && (len(rest) == 0 || bytes.IndexByte([]byte(" \r\n"), rest[0]) >= 0) {
			text, _, _ := strings.Cut(string(rest), " #")
			return strings.TrimSpace(text), true
		}
	}
	return "", false
}

// findJSON takes the value of `<name>`, in `entries`.
func findJSON(r io.Reader, name string, most int64) ([]indexed, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("%w: in JSON it may have at most %d bytes", errIndex, most)
	}
	var index struct {
		Entries map[string]json.RawMessage `json:"entries"`
	}
	var found []indexed
	err = json.Unmarshal(text, &index)
	if err == nil && index.Entries == nil {
		err = errors.New("it has no entries")
	}
	if chart := index.Entries[name]; err == nil && chart != nil {
		err = json.Unmarshal(chart, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", errIndex, clean(err))
	}
	return found, nil
}
