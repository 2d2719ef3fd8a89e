package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seatrial/seatrial/internal/kit/wire"
)

// decode reads the body into m. protojson stops at the first mistake and names no path, so a walk along the descriptor
// finds the fields, and protojson reads each leaf: what it takes is taken here, and nothing else.
//
// It returns false where nothing can be read at all; otherwise m has all fields that are right.
func (c *check) decode(m proto.Message) bool {
	body := c.message.Body
	if len(body) > maxBody {
		c.add("body", "", "has %d bytes; at most %d (512 KiB)", len(body), maxBody)
		return false
	}
	kind, err := wire.ContentType(c.message.Header, body)
	if err != nil {
		c.add(wire.HeaderContentType, c.message.Get(wire.HeaderContentType), "must be %s or %s", wire.JSON, wire.Protobuf)
		return false
	}
	if kind == wire.Protobuf {
		if err := proto.Unmarshal(body, m); err != nil {
			c.add("body", "", "is neither JSON, which starts with {, nor a protobuf message %s", m.ProtoReflect().Descriptor().FullName())
			return false
		}
		c.unknownNumbers("", m.ProtoReflect())
		return true
	}
	if !utf8.Valid(body) {
		c.add("body", "", "is not UTF-8")
		return false
	}
	var raw json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		at := int64(len(body))
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = syntax.Offset
		}
		before := body[:max(0, min(at, int64(len(body)))-1)]
		c.add("body", "", "is not JSON: line %d, column %d: %v",
			1+bytes.Count(before, []byte("\n")), len(before)-bytes.LastIndexByte(before, '\n'), err)
		return false
	}
	c.object("", raw, m.ProtoReflect())
	return true
}

// member is one name and value of a JSON object.
type member struct {
	name string
	raw  json.RawMessage
}

// members splits a JSON object, in its order and with what it repeats. raw is known to be valid JSON.
func members(raw json.RawMessage) ([]member, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, false
	}
	var all []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		m := member{name: fmt.Sprint(name)}
		if err := dec.Decode(&m.raw); err != nil {
			return nil, false
		}
		all = append(all, m)
	}
	return all, true
}

// object reads a JSON object into m.
func (c *check) object(path string, raw json.RawMessage, m protoreflect.Message) {
	all, ok := members(raw)
	if !ok {
		c.add(pathOrBody(path), show(raw), "must be an object")
		return
	}
	fields := m.Descriptor().Fields()
	given := map[protoreflect.Name]bool{}
	for _, member := range all {
		fd := fields.ByJSONName(member.name)
		if fd == nil {
			fd = fields.ByName(protoreflect.Name(member.name)) // protojson takes the names of the .proto as well
		}
		if fd == nil {
			// What stands in an unknown field is not shown: it may be a mistyped `values`.
			c.add(join(path, member.name), "", "unknown field%s", c.suggest(member.name, fields))
			continue
		}
		at := join(path, fd.JSONName())
		switch {
		case given[fd.Name()]:
			c.add(at, "", "is given twice")
		case string(member.raw) != "null": // null is the same as leaving it out
			c.seen[at] = true
			c.field(at, member.raw, m, fd)
		}
		given[fd.Name()] = true
	}
}

// field reads a JSON value into one field of m.
func (c *check) field(path string, raw json.RawMessage, m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.IsMap():
		all, ok := members(raw)
		if !ok {
			c.add(path, show(raw), "must be an object")
			return
		}
		into := m.Mutable(fd).Map()
		for _, member := range all {
			key := protoreflect.ValueOfString(member.name).MapKey()
			if into.Has(key) {
				c.add(join(path, member.name), "", "is given twice")
			}
			into.Set(key, c.value(join(path, member.name), member.raw, fd.MapValue(), into.NewValue()))
		}
	case fd.IsList():
		var items []json.RawMessage
		if err := json.Unmarshal(raw, &items); err != nil {
			c.add(path, show(raw), "must be a list")
			return
		}
		into := m.Mutable(fd).List()
		for i, item := range items {
			into.Append(c.value(fmt.Sprintf("%s[%d]", path, i), item, fd, into.NewElement()))
		}
	default:
		m.Set(fd, c.value(path, raw, fd, m.NewField(fd)))
	}
}

// value reads one JSON value of fd's kind and returns it; where it cannot, it notes why and returns empty.
func (c *check) value(path string, raw json.RawMessage, fd protoreflect.FieldDescriptor, empty protoreflect.Value) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		var v wrapperspb.StringValue
		if protojson.Unmarshal(raw, &v) == nil {
			return protoreflect.ValueOfString(v.Value)
		}
	case protoreflect.BoolKind:
		var v wrapperspb.BoolValue
		if protojson.Unmarshal(raw, &v) == nil {
			return protoreflect.ValueOfBool(v.Value)
		}
	case protoreflect.Int32Kind:
		var v wrapperspb.Int32Value
		if protojson.Unmarshal(raw, &v) == nil {
			return protoreflect.ValueOfInt32(v.Value)
		}
	case protoreflect.MessageKind:
		if fd.Message().FullName() != "google.protobuf.Struct" {
			c.object(path, raw, empty.Message())
			return empty
		}
		if protojson.Unmarshal(raw, empty.Message().Interface()) == nil {
			return empty
		}
		c.add(path, "", "must be an object in which no name is given twice")
		return empty
	default:
		panic(fmt.Sprintf("%s: requests have no fields of kind %s", fd.FullName(), fd.Kind()))
	}
	c.add(path, show(raw), "must be %s", expected(fd))
	return empty
}

// expected says in words what a scalar field takes.
func expected(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.Kind() == protoreflect.BoolKind:
		return "true or false"
	case fd.Kind() == protoreflect.Int32Kind:
		return "a whole number of at most 32 bits"
	case fd.Name() == "timeout" || fd.Name() == "deadline":
		return `a duration in quotes, such as "5m"`
	default:
		return "a string of Unicode characters"
	}
}

// unknownNumbers notes the fields of a protobuf message that its descriptor does not have.
func (c *check) unknownNumbers(path string, m protoreflect.Message) {
	for unknown := m.GetUnknown(); len(unknown) > 0; {
		number, _, n := protowire.ConsumeField(unknown)
		c.add(join(path, strconv.Itoa(int(number))), "", "unknown field number")
		unknown = unknown[n:]
	}
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		at := join(path, fd.JSONName())
		switch {
		case fd.Message() == nil || fd.IsMap():
		case fd.IsList():
			for i := range v.List().Len() {
				c.unknownNumbers(fmt.Sprintf("%s[%d]", at, i), v.List().Get(i).Message())
			}
		default:
			c.unknownNumbers(at, v.Message())
		}
		return true
	})
}

func pathOrBody(path string) string {
	if path == "" {
		return "body"
	}
	return path
}

// join appends a name to a path; a name that is long or holds more than printable characters is shortened and quoted.
func join(path, name string) string {
	if short := shorten(name); short != name || strings.ContainsFunc(name, func(r rune) bool { return !strconv.IsPrint(r) }) {
		name = strconv.Quote(short)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// show returns a scalar as it stands in the JSON, shortened, and of other values only what they are.
func show(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	default:
		return shorten(string(raw))
	}
}

// shorten cuts s to 64 bytes, and to what is Unicode: a header or a subject may hold anything.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return strings.ToValidUTF8(s, "\uFFFD")
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// suggest returns `: did you mean "x"?` for the field nearest to name, if one is near.
func (c *check) suggest(name string, fields protoreflect.FieldDescriptors) string {
	if len(name) > 40 || len(c.violations) == maxViolations {
		return ""
	}
	best, nearest := "", 1+len(name)/3 // more edits than a third of the letters make another word
	for i := range fields.Len() {
		known := fields.Get(i).JSONName()
		if d := distance(strings.ToLower(name), strings.ToLower(known)); d <= nearest {
			if d < nearest || best == "" {
				best, nearest = known, d
			}
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

// distance counts the letters to insert, delete or replace to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
