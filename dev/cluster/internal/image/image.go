// Package image makes container images from this machine's static busybox and from Debian's packages: a cluster has no
// registry to pull from.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"runtime"
	"time"
)

// The names of the images, as charts write them.
const (
	Busybox = "busybox:1.36"
	Alpine  = "alpine:3"
	Pause   = "registry.k8s.io/pause:3.10"
	Curl    = "curlimages/curl:8.11.1"
	Nginx   = "nginx:1.27"
)

// otherTags are more names of the same images. The last of nginx is in every chart of `helm create`.
var otherTags = map[string][]string{
	Busybox: {"busybox:1.36.1", "busybox:1.37", "busybox:stable", "busybox:latest"},
	Alpine:  {"alpine:3.20", "alpine:3.21", "alpine:3.22", "alpine:latest"},
	Curl:    {"curlimages/curl:8.10.1", "curlimages/curl:latest"},
	Nginx:   {"nginx:stable", "nginx:alpine", "nginx:1.27-alpine", "nginx:latest", "nginx:1.16.0"},
}

// Tags lists all names of each image.
func Tags() [][]string {
	var all [][]string
	for _, name := range []string{Busybox, Alpine, Curl, Nginx, Pause} {
		all = append(all, tags(name))
	}
	return all
}

func tags(name string) []string { return append([]string{name}, otherTags[name]...) }

// busyboxPath is where the program is in the image; every applet is a link to it.
const busyboxPath = "/bin/busybox"

// pauseScript waits in one process, the shell itself, and ends at once on SIGTERM: reading from a pipe that nobody
// writes to is the one way for it to wait without a child. As PID 1 it would ignore a signal that it has no trap for.
const pauseScript = `#!` + busyboxPath + ` sh
trap 'exit 0' TERM INT
exec 3<>/pause.fifo
while :; do read -r _ <&3; done
`

// searchPath is the PATH of the containers.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Write writes an archive of the images that need no more than busybox, in the format of `docker save`, made of the
// given static busybox and the names of its applets. Alpine is one of them, without apk, which could install nothing.
// The same input gives the same bytes.
func Write(w io.Writer, busybox []byte, applets []string) error {
	base, err := busyboxLayer(busybox, applets)
	if err != nil {
		return fmt.Errorf("pack the busybox layer: %w", err)
	}
	pause, err := pauseLayer()
	if err != nil {
		return fmt.Errorf("pack the pause layer: %w", err)
	}
	return writeArchive(w, []image{
		{name: Busybox, layers: [][]byte{base}, command: []string{"sh"}},
		{name: Alpine, layers: [][]byte{base}, command: []string{"sh"}},
		{name: Pause, layers: [][]byte{base, pause}, entrypoint: []string{"/pause"}},
	})
}

type image struct {
	name       string
	layers     [][]byte
	entrypoint []string
	command    []string
}

func busyboxLayer(busybox []byte, applets []string) ([]byte, error) {
	var layer bytes.Buffer
	files := archive{w: tar.NewWriter(&layer)}
	for _, folder := range []string{"bin", "dev", "etc", "home", "proc", "root", "run", "sys", "usr", "usr/bin", "var"} {
		files.folder(folder, 0o755)
	}
	for _, folder := range []string{"tmp", "var/tmp"} {
		files.folder(folder, 0o1777)
	}
	files.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n"))
	files.file("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	files.file(busyboxPath[1:], 0o755, busybox)
	for _, applet := range applets {
		if link := path.Join("bin", applet); link != busyboxPath[1:] {
			files.link(link, busyboxPath)
		}
	}
	files.link("usr/bin/env", busyboxPath) // where scripts look for it
	err := files.close()
	return layer.Bytes(), err
}

func pauseLayer() ([]byte, error) {
	var layer bytes.Buffer
	files := archive{w: tar.NewWriter(&layer)}
	files.file("pause", 0o755, []byte(pauseScript))
	files.fifo("pause.fifo", 0o666) // pods run as any user
	err := files.close()
	return layer.Bytes(), err
}

// The parts of an archive that say what is in it: the list of the images, and the configuration of each.
type (
	manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	configuration struct {
		Architecture string  `json:"architecture"`
		OS           string  `json:"os"`
		Config       process `json:"config"`
		RootFS       rootFS  `json:"rootfs"`
	}
	process struct {
		Env        []string
		Entrypoint []string `json:",omitempty"`
		Cmd        []string `json:",omitempty"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
)

func writeArchive(w io.Writer, images []image) error {
	files := archive{w: tar.NewWriter(w)}
	var manifests []manifest
	written := map[string]bool{}
	write := func(name string, content []byte) {
		if !written[name] { // images share layers
			files.file(name, 0o644, content)
			written[name] = true
		}
	}
	for _, image := range images {
		entry := manifest{RepoTags: tags(image.name)}
		config := configuration{
			Architecture: runtime.GOARCH,
			OS:           "linux",
			Config:       process{Env: []string{searchPath}, Entrypoint: image.entrypoint, Cmd: image.command},
			RootFS:       rootFS{Type: "layers"},
		}
		for _, layer := range image.layers {
			digest := digest(layer)
			config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, "sha256:"+digest)
			name := digest + "/layer.tar"
			write(name, layer)
			entry.Layers = append(entry.Layers, name)
		}
		encoded, err := json.Marshal(config)
		if err != nil {
			return fmt.Errorf("encode the configuration of %s: %w", image.name, err)
		}
		entry.Config = digest(encoded) + ".json"
		write(entry.Config, encoded)
		manifests = append(manifests, entry)
	}
	encoded, err := json.Marshal(manifests)
	if err != nil {
		return fmt.Errorf("encode the list of the images: %w", err)
	}
	write("manifest.json", encoded)
	if err := files.close(); err != nil {
		return fmt.Errorf("write the archive of the images: %w", err)
	}
	return nil
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// archive writes entries that are the same each time, owned by root. The first error stays until close.
type archive struct {
	w   *tar.Writer
	err error
}

func (a *archive) folder(name string, mode int64) {
	a.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (a *archive) file(name string, mode int64, content []byte) {
	a.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))}, content)
}

func (a *archive) link(name, target string) {
	a.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}, nil)
}

func (a *archive) fifo(name string, mode int64) {
	a.add(tar.Header{Typeflag: tar.TypeFifo, Name: name, Mode: mode}, nil)
}

func (a *archive) add(header tar.Header, content []byte) {
	if a.err != nil {
		return
	}
	header.ModTime = time.Unix(0, 0)
	if a.err = a.w.WriteHeader(&header); a.err == nil {
		_, a.err = a.w.Write(content)
	}
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.w.Close()
}
