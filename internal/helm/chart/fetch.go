package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Objects is the object store that people put charts into.
type Objects interface {
	// Get returns the object of that name, if it has at most limit bytes. The class of its error decides what becomes of
	// the request.
	Get(ctx context.Context, name string, limit int64) ([]byte, error)
}

// Fetcher fetches charts from where requests say.
type Fetcher struct {
	Uploads Objects
	// AllowPath lets a request name a file on this machine, for development.
	AllowPath bool
}

// Fetch returns the chart that source names, as Load does. Where source pins a digest, it is that chart or an error.
func (f *Fetcher) Fetch(ctx context.Context, source *seatrialv1.ChartSource) (*Archive, error) {
	name, data, err := f.read(ctx, source)
	if err != nil {
		return nil, err
	}
	if want := source.GetDigest(); want != "" && want != digest(data) {
		return nil, refuse("upload the chart again, or correct chart.digest", "%s has the digest %s, the request wants %s", name, digest(data), want)
	}
	a, err := Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

// read returns the archive, and how people call it.
func (f *Fetcher) read(ctx context.Context, source *seatrialv1.ChartSource) (name string, data []byte, err error) {
	switch {
	case source.GetObject() != "":
		name = fmt.Sprintf("chart object %q", source.GetObject())
		data, err = f.Uploads.Get(ctx, source.GetObject(), MaxArchive)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	case source.GetPath() != "":
		name = fmt.Sprintf("chart file %q", source.GetPath())
		data, err = f.readFile(name, source.GetPath())
	case source.GetOci() != "", source.GetRepo() != "":
		err = refuse("put the packaged chart into the object store seatrial-uploads, and deploy it with chart.object",
			"charts from registries and repositories are not supported yet")
	default:
		err = refuse("set chart.object", "the request names no chart")
	}
	return name, data, err
}

func (f *Fetcher) readFile(name, path string) ([]byte, error) {
	if !f.AllowPath {
		return nil, refuse("put the packaged chart into the object store seatrial-uploads, and deploy it with chart.object",
			"%s: the operator does not allow charts from the planner's own disk", name)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse("the path is one on the planner's own machine", "%s does not exist", name)
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil, refuse("package the chart with `helm package`", "%s is not a file", name)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.New(seatrialv1.ClassTransient, "let the planner read it", "%s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	// One byte more than allowed shows that it is too large.
	data, err := io.ReadAll(io.LimitReader(file, MaxArchive+1))
	if err != nil {
		return nil, fault.New(seatrialv1.ClassTransient, "", "%s: %w", name, err)
	}
	return data, nil
}
