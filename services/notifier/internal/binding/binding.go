// Package binding puts CloudEvents into NATS messages and takes them out, as the NATS protocol binding for CloudEvents
// describes it: in binary mode each attribute is a header and the data is the payload, in structured mode all of the
// event is JSON in the payload.
package binding

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/nats-io/nats.go"
)

// Mode is how an event lies in a message.
type Mode string

// Modes.
const (
	Binary     Mode = "binary"
	Structured Mode = "structured"
)

// MarshalText returns the mode's name.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m), nil }

// UnmarshalText takes the name of a mode.
func (m *Mode) UnmarshalText(text []byte) error {
	switch mode := Mode(text); mode {
	case Binary, Structured:
		*m = mode
		return nil
	default:
		return fmt.Errorf("want %s or %s", Binary, Structured)
	}
}

// ErrInvalid is wrapped by the errors for events and messages that break the rules.
var ErrInvalid = errors.New("invalid CloudEvent")

const (
	headerPrefix      = "ce-"
	headerContentType = "Content-Type"
	// structuredType begins every content type of structured mode.
	structuredType = "application/cloudevents"
	jsonType       = structuredType + "+json"

	specVersion     = "specversion"
	dataContentType = "datacontenttype"
)

// Encode returns the headers and the payload of an event.
func Encode(e event.Event, mode Mode) (nats.Header, []byte, error) {
	if err := e.Validate(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	attributes, err := attributesOf(e)
	if err != nil {
		return nil, nil, err
	}
	if mode == Structured {
		data, err := e.MarshalJSON() // json.Marshal would escape <, > and & in the data
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return nats.Header{headerContentType: {jsonType}}, data, nil
	}
	header := nats.Header{}
	for name, value := range attributes {
		header.Set(headerPrefix+name, percentEncode(value))
	}
	return header, e.Data(), nil
}

// Size returns how many bytes an event takes in a mode, with the names of its headers and what stands between them.
func Size(e event.Event, mode Mode) (int, error) {
	header, data, err := Encode(e, mode)
	if err != nil {
		return 0, err
	}
	size := len(data)
	for name, values := range header {
		size += len(name) + len(": ") + len(values[0]) + len("\r\n")
	}
	return size, nil
}

// attributesOf returns all attributes that an event has, in their canonical form.
func attributesOf(e event.Event) (map[string]string, error) {
	attributes := map[string]string{
		specVersion: e.SpecVersion(),
		"id":        e.ID(),
		"source":    e.Source(),
		"type":      e.Type(),
	}
	for name, value := range map[string]string{
		"subject":       e.Subject(),
		"dataschema":    e.DataSchema(),
		dataContentType: e.DataContentType(),
	} {
		if value != "" {
			attributes[name] = value
		}
	}
	if !e.Time().IsZero() {
		attributes["time"] = types.FormatTime(e.Time())
	}
	for name, value := range e.Extensions() {
		if _, taken := attributes[name]; taken || name == "data" {
			return nil, fmt.Errorf("%w: extension %q has the name of a core attribute", ErrInvalid, name)
		}
		text, err := types.Format(value)
		if err != nil {
			return nil, fmt.Errorf("%w: extension %q: %w", ErrInvalid, name, err)
		}
		attributes[name] = text
	}
	return attributes, nil
}

// Decode returns the event of a message. Header names are read in any case. In binary mode the extensions are strings.
func Decode(header nats.Header, data []byte) (event.Event, error) {
	attributes, structured, err := readHeader(header)
	if err != nil {
		return event.Event{}, err
	}
	var e event.Event
	if structured {
		err = json.Unmarshal(data, &e)
	} else {
		e, err = fromAttributes(attributes)
		e.DataEncoded = data
	}
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return event.Event{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return e, nil
}

// readHeader returns the attributes in a header, and whether it announces structured mode.
func readHeader(header nats.Header) (attributes map[string]string, structured bool, err error) {
	attributes = map[string]string{}
	for key, values := range header {
		key := strings.ToLower(key)
		if key == strings.ToLower(headerContentType) {
			structured = structured || len(values) > 0 && strings.HasPrefix(strings.ToLower(values[0]), structuredType)
		}
		name, isAttribute := strings.CutPrefix(key, headerPrefix)
		if !isAttribute {
			continue
		}
		if _, twice := attributes[name]; twice || len(values) != 1 {
			return nil, false, fmt.Errorf("%w: header %s is not there exactly once", ErrInvalid, key)
		}
		if attributes[name], err = percentDecode(values[0]); err != nil {
			return nil, false, fmt.Errorf("%w: header %s: %w", ErrInvalid, key, err)
		}
	}
	return attributes, structured, nil
}

// fromAttributes returns an event without data.
func fromAttributes(attributes map[string]string) (event.Event, error) {
	version := attributes[specVersion]
	if version != event.CloudEventsVersionV1 {
		return event.Event{}, fmt.Errorf("header %s%s is %q: want %s", headerPrefix, specVersion, version, event.CloudEventsVersionV1)
	}
	e := event.New(version)
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		value := attributes[name]
		switch name {
		case specVersion:
		case "id":
			e.SetID(value)
		case "source":
			e.SetSource(value)
		case "type":
			e.SetType(value)
		case "subject":
			e.SetSubject(value)
		case "dataschema":
			e.SetDataSchema(value)
		case dataContentType:
			e.SetDataContentType(value)
		case "time":
			at, err := types.ParseTime(value)
			if err != nil {
				return event.Event{}, err
			}
			e.SetTime(at)
		case "data":
			return event.Event{}, fmt.Errorf("header %sdata: data is no attribute", headerPrefix)
		default:
			e.SetExtension(name, value)
		}
	}
	return e, nil
}
