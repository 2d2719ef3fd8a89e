package chart

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// uploads has the object `web.tgz`, and its provenance if there is one; anything else fails with err.
type uploads struct {
	data, provenance []byte
	err              error
}

func (u uploads) Get(_ context.Context, name string, limit int64) ([]byte, error) {
	data := u.data
	switch {
	case name == "web.tgz.prov" && u.provenance != nil:
		data = u.provenance
	case name != "web.tgz":
		return nil, u.err
	}
	if int64(len(data)) > limit {
		return nil, errors.New("over the limit")
	}
	return data, nil
}

func TestFetchTakesTheChartThatTheRequestNames(t *testing.T) {
	t.Parallel()
	data := annotated("abc")
	path := filepath.Join(t.TempDir(), "web-1.0.0.tgz")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	f := &Fetcher{Uploads: uploads{data: data}, AllowPath: true, Timeout: time.Minute}
	for _, row := range []struct {
		name   string
		source *seatrialv1.ChartSource
	}{
		{"an object", &seatrialv1.ChartSource{Object: "web.tgz"}},
		{"a file", &seatrialv1.ChartSource{Path: path}},
		{"an object with its digest", &seatrialv1.ChartSource{Object: "web.tgz", Digest: digestOf(data)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a, err := f.Fetch(t.Context(), row.source)
			require.NoError(t, err)
			require.Equal(t, data, a.Data)
			require.Equal(t, digestOf(data), a.Digest)
		})
	}
}

func TestFetchRefusesWhatItCannotGive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := filepath.Join(dir, "large.tgz")
	require.NoError(t, os.WriteFile(large, make([]byte, MaxArchive+1), 0o600))
	f := &Fetcher{Uploads: uploads{data: []byte("junk")}, AllowPath: true, Timeout: time.Minute}
	for _, row := range []struct {
		name    string
		fetcher *Fetcher
		source  *seatrialv1.ChartSource
		says    string
	}{
		{"no chart", f, nil, "the request names no chart"},
		{"junk in the store", f, &seatrialv1.ChartSource{Object: "web.tgz"}, `chart object "web.tgz": not a packaged chart`},
		{"another chart than wanted", f, &seatrialv1.ChartSource{Object: "web.tgz", Digest: "sha256:00"}, "the request wants sha256:00"},
		{"a path that is not allowed", &Fetcher{Timeout: time.Minute}, &seatrialv1.ChartSource{Path: large}, "the operator does not allow"},
		{"a path where nothing is", f, &seatrialv1.ChartSource{Path: filepath.Join(dir, "none.tgz")}, "does not exist"},
		{"a folder", f, &seatrialv1.ChartSource{Path: dir}, "is not a file"},
		{"a file over the limit", f, &seatrialv1.ChartSource{Path: large}, "the limit is 10485760"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := row.fetcher.Fetch(t.Context(), row.source)
			require.ErrorContains(t, err, row.says)
			require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
		})
	}
}

func TestTheStoresErrorKeepsItsClass(t *testing.T) {
	t.Parallel()
	down := fault.New(seatrialv1.ClassTransient, "", "the store is down")
	_, err := (&Fetcher{Uploads: uploads{err: down}, Timeout: time.Minute}).Fetch(t.Context(), &seatrialv1.ChartSource{Object: "other.tgz"})
	require.ErrorIs(t, err, down)
	require.ErrorContains(t, err, `chart object "other.tgz"`)
	require.Equal(t, seatrialv1.ClassTransient, fault.Class(err))
}
