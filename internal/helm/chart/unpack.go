package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
)

const (
	// maxUnpacked is the most bytes that an archive may unpack to, all archives in it included. Helm's loader knows this
	// limit too, but grants it to each of them anew.
	maxUnpacked = 100 << 20
	// maxNesting is how deep archives may lie in each other: one can hold itself.
	maxNesting = 8
)

// errUnpacked is returned for an archive that is too much to be unpacked.
var errUnpacked = errors.New("the archive unpacks to too much")

// checkUnpacked returns an error for an archive that would unpack to too much. That it can be unpacked at all is for Helm
// to say.
func checkUnpacked(data []byte) error {
	left := int64(maxUnpacked)
	if err := unpack(data, &left, 1); errors.Is(err, errUnpacked) {
		return err
	}
	return nil
}

func unpack(data []byte, left *int64, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("%w: archives lie more than %d deep in each other", errUnpacked, maxNesting)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	files := tar.NewReader(&metered{Reader: unzipped, left: left})
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if path.Ext(header.Name) != ".tgz" {
			continue
		}
		inner, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		if err := unpack(inner, left, depth+1); errors.Is(err, errUnpacked) {
			return err
		}
	}
}

// metered fails once more was read than is left.
type metered struct {
	io.Reader
	left *int64
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if *m.left -= int64(n); *m.left < 0 {
		return n, fmt.Errorf("%w: the limit is %d bytes", errUnpacked, maxUnpacked)
	}
	return n, err
}
