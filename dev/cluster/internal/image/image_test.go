package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	var first, second bytes.Buffer
	require.NoError(t, Write(&first, []byte("program"), []string{"busybox", "sh", "sleep"}))
	require.NoError(t, Write(&second, []byte("program"), []string{"busybox", "sh", "sleep"}))
	require.Equal(t, first.Bytes(), second.Bytes())

	files := unpack(t, &first)
	var images []manifest
	require.NoError(t, json.Unmarshal(files["manifest.json"].content, &images))
	require.Len(t, images, 3)
	busybox, alpine, pause := images[0], images[1], images[2]
	require.Contains(t, busybox.RepoTags, Busybox)
	require.Contains(t, busybox.RepoTags, "busybox:latest")
	require.Contains(t, alpine.RepoTags, Alpine)
	require.Equal(t, busybox.Config, alpine.Config)
	require.Equal(t, []string{Pause}, pause.RepoTags)
	require.Equal(t, busybox.Layers, pause.Layers[:1], "the base is shared")

	var config configuration
	require.NoError(t, json.Unmarshal(files[pause.Config].content, &config))
	require.Equal(t, []string{"/pause"}, config.Config.Entrypoint)
	require.Len(t, config.RootFS.DiffIDs, 2)
	for i, layer := range pause.Layers {
		require.Equal(t, "sha256:"+digest(files[layer].content), config.RootFS.DiffIDs[i])
	}

	base := unpack(t, bytes.NewReader(files[busybox.Layers[0]].content))
	require.Equal(t, "program", string(base["bin/busybox"].content))
	require.EqualValues(t, 0o755, base["bin/busybox"].Mode)
	require.Equal(t, "/bin/busybox", base["bin/sh"].Linkname)
	require.EqualValues(t, 0o1777, base["tmp/"].Mode)

	top := unpack(t, bytes.NewReader(files[pause.Layers[1]].content))
	require.Equal(t, pauseScript, string(top["pause"].content))
	require.EqualValues(t, tar.TypeFifo, top["pause.fifo"].Typeflag)
}

type file struct {
	*tar.Header

	content []byte
}

func unpack(t *testing.T, packed io.Reader) map[string]file {
	t.Helper()
	files := map[string]file{}
	for reader := tar.NewReader(packed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		require.NotContains(t, files, header.Name)
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		files[header.Name] = file{header, content}
	}
}
