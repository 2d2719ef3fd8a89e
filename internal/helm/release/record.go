package release

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	helmrelease "helm.sh/helm/v3/pkg/release"
)

// maxDecoded bounds a record that is read, in bytes of JSON. What is more than that was never written by Helm from a
// chart within its limits; cut off, it is no JSON.
const maxDecoded = 64 << 20

// EncodedSize returns how many bytes the record of a release has in its Secret.
func EncodedSize(rel *helmrelease.Release) (int, error) {
	data, err := encode(rel)
	return len(data), err
}

// encode writes a record as Helm's storage drivers do: JSON, gzip, base64.
func encode(rel *helmrelease.Release) ([]byte, error) {
	data, err := json.Marshal(rel)
	if err != nil {
		return nil, fmt.Errorf("encode the record of %s: %w", rel.Name, err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return base64.StdEncoding.AppendEncode(nil, packed.Bytes()), nil
}

// decode is the reverse of encode.
func decode(data []byte) (*helmrelease.Release, error) {
	packed, err := base64.StdEncoding.AppendDecode(nil, data)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxDecoded))
	if err != nil {
		return nil, err
	}
	rel := &helmrelease.Release{}
	if err := json.Unmarshal(plain, rel); err != nil {
		return nil, err
	}
	if rel.Info == nil {
		return nil, errors.New("it is empty")
	}
	return rel, nil
}
