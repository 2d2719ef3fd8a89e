// Package wire encodes and decodes the messages of proto/seatrial/v1 as they travel: protobuf or protojson.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Content types that every subject takes.
const (
	Protobuf = "application/protobuf"
	JSON     = "application/json"
)

// HeaderContentType is the name of the header; it is read whatever its case (NATS header names are case-sensitive).
const HeaderContentType = "Content-Type"

// ErrContentType is returned for a content type that is neither protobuf nor JSON.
var ErrContentType = errors.New("unknown content type")

// MarshalJSON returns m as compact protojson: the same bytes for the same message in every build, which protojson alone
// does not promise.
func MarshalJSON(m proto.Message) ([]byte, error) {
	loose, err := protojson.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	var out bytes.Buffer
	if err := json.Compact(&out, loose); err != nil {
		return nil, fmt.Errorf("compact the JSON of %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return out.Bytes(), nil
}

// ContentType returns the content type that headers name, or the one that the first byte of data shows: `{` means JSON.
func ContentType(headers map[string][]string, data []byte) (string, error) {
	for key, values := range headers {
		if !strings.EqualFold(key, HeaderContentType) || len(values) == 0 {
			continue
		}
		kind, _, err := mime.ParseMediaType(values[0])
		if err != nil || (kind != Protobuf && kind != JSON) {
			return "", fmt.Errorf("%w: %s %q: want %s or %s", ErrContentType, key, values[0], JSON, Protobuf)
		}
		return kind, nil
	}
	// No white space is skipped: a protobuf message may well begin with the byte of a newline.
	if len(data) > 0 && data[0] == '{' {
		return JSON, nil
	}
	return Protobuf, nil
}

// Unmarshal decodes data into m by its content type. Unknown JSON fields are errors.
func Unmarshal(headers map[string][]string, data []byte, m proto.Message) error {
	return unmarshal(headers, data, m, protojson.UnmarshalOptions{})
}

// UnmarshalKnown is Unmarshal for what another service wrote, which may be newer: JSON fields that are unknown here are
// left out, as they are in protobuf.
func UnmarshalKnown(headers map[string][]string, data []byte, m proto.Message) error {
	return unmarshal(headers, data, m, protojson.UnmarshalOptions{DiscardUnknown: true})
}

func unmarshal(headers map[string][]string, data []byte, m proto.Message, json protojson.UnmarshalOptions) error {
	kind, err := ContentType(headers, data)
	if err != nil {
		return err
	}
	if kind == JSON {
		err = json.Unmarshal(data, m)
	} else {
		err = proto.Unmarshal(data, m)
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}
