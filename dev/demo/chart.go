package demo

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

//go:embed all:web
var web embed.FS

// edition is one version of the demo's chart.
type edition struct {
	version string
	// page is what the web server shows.
	page string
	// annotations of Chart.yaml; nil takes those of 1.0.0 away.
	annotations map[string]string
}

// pack writes an edition of the demo's chart to dir, as `helm package` does, and returns the archive's path. An archive
// that is there already is left as it is: packed anew it would have another digest.
func pack(dir string, e edition) (string, error) {
	archive := filepath.Join(dir, "web-"+e.version+".tgz")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	var files []*loader.BufferedFile
	err := fs.WalkDir(web, "web", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := web.ReadFile(path)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(path, "web/"), Data: data})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read the demo's chart: %w", err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return "", fmt.Errorf("load the demo's chart: %w", err)
	}
	c.Metadata.Version, c.Metadata.Annotations = e.version, e.annotations
	for _, file := range c.Raw {
		if file.Name == chartutil.ValuesfileName {
			file.Data = bytes.ReplaceAll(file.Data, []byte("welcome to the shop"), []byte(e.page))
		}
	}
	return chartutil.Save(c, dir)
}
