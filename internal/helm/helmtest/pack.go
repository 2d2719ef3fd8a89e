// Package helmtest makes charts for tests and installs them in the real cluster that tests run with.
package helmtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"path"
	"slices"
	"time"
)

// Pack packages the files of a chart, by their path in it, as `helm package` does: under a folder of the given name. The
// same files give the same bytes.
func Pack(name string, files map[string]string) []byte {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		content := files[file]
		must(archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(name, file), Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0),
		}))
		_, err := archive.Write([]byte(content))
		must(err)
	}
	must(archive.Close())
	must(zip.Close())
	return packed.Bytes()
}

// must: nothing that is written to memory fails.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
