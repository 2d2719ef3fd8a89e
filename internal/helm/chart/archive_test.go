package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestLoadSaysWhatChartYamlSays(t *testing.T) {
	t.Parallel()
	data := pack(map[string]string{"Chart.yaml": chartYAML + `
appVersion: "9.9"
annotations:
  commit_sha: 4f2a91c
  example.org/notes: |
    two
    lines
`})

	a, err := Load(data)

	require.NoError(t, err)
	require.Equal(t, data, a.Data)
	require.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256(data)), a.Digest)
	require.True(t, proto.Equal(&seatrialv1.ChartRevision{
		Name: "web", Version: "1.2.3", AppVersion: "9.9", Digest: a.Digest,
		Annotations: map[string]string{"commit_sha": "4f2a91c", "example.org/notes": "two\nlines\n"},
	}, a.Info), a.Info)
}

func TestChartIsMadeAnewEachTime(t *testing.T) {
	t.Parallel()
	a, err := Load(pack(map[string]string{"Chart.yaml": chartYAML, "values.yaml": "page: welcome"}))
	require.NoError(t, err)
	first, err := a.Chart()
	require.NoError(t, err)
	first.Values["page"] = "changed by rendering"

	second, err := a.Chart()

	require.NoError(t, err)
	require.Equal(t, "welcome", second.Values["page"])
}

func TestLoadRefusesWhatCannotBeDeployed(t *testing.T) {
	t.Parallel()
	packed := func(chartYAML string) []byte { return pack(map[string]string{"Chart.yaml": chartYAML}) }
	nested := packed(chartYAML)
	for range maxNesting {
		nested = pack(map[string]string{"Chart.yaml": chartYAML, "charts/web.tgz": string(nested)})
	}
	bomb := pack(map[string]string{"zeros": strings.Repeat("\x00", 4<<20)})
	bombs := map[string]string{"Chart.yaml": chartYAML}
	for i := range maxUnpacked/(4<<20) + 1 {
		bombs[fmt.Sprintf("charts/bomb%d.tgz", i)] = string(bomb)
	}
	for _, row := range []struct {
		name string
		data []byte
		says string
	}{
		{"nothing", nil, "not a packaged chart: EOF"},
		{"no archive", []byte("a text"), "not a packaged chart: "},
		{"an archive that ends too soon", packed(chartYAML)[:100], "not a packaged chart: unexpected EOF"},
		{"no Chart.yaml", pack(map[string]string{"values.yaml": "a: b"}), "Chart.yaml file is missing"},
		{"a Chart.yaml that is no YAML", packed("{"), "cannot load Chart.yaml"},
		{"no name", packed("apiVersion: v2\nversion: 1.0.0\n"), "chart.metadata.name is required"},
		{"no version", packed("apiVersion: v2\nname: web\n"), "chart.metadata.version is required"},
		{"no semantic version", packed("apiVersion: v2\nname: web\nversion: newest\n"), `chart.metadata.version "newest" is invalid`},
		{"an annotation that is no string", packed(chartYAML + "annotations: {build: [7]}\n"), "Metadata.annotations of type string"},
		{"a file outside of the chart", pack(map[string]string{"../../Chart.yaml": chartYAML}), "not a packaged chart: "},
		{"a library", packed(chartYAML + "type: library\n"), "chart web 1.2.3 is a library"},
		{
			"annotations over the limit", annotated(strings.Repeat("v", MaxAnnotations)),
			"chart web 1.2.3: the annotations have 32769 bytes, the limit is 32768",
		},
		{"a long name", packed("apiVersion: v2\nname: " + strings.Repeat("n", 257) + "\nversion: 1.0.0\n"), "name has 257 bytes, the limit is 256"},
		{"a long appVersion", packed(chartYAML + "appVersion: " + strings.Repeat("a", 257) + "\n"), "appVersion has 257 bytes, the limit is 256"},
		{"an archive over the limit", make([]byte, MaxArchive+1), "the archive has 10485761 bytes, the limit is 10485760"},
		{"archives in it that unpack to too much", pack(bombs), "the archive unpacks to too much: the limit is 104857600 bytes"},
		{"archives too deep in each other", nested, "the archive unpacks to too much: archives lie more than 8 deep in each other"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(row.data)
			require.ErrorContains(t, err, row.says)
			require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
			require.NotEmpty(t, fault.Failure(err).GetNext())
		})
	}
}

func TestLoadTakesWhatIsJustWithinTheLimits(t *testing.T) {
	t.Parallel()
	a, err := Load(annotated(strings.Repeat("v", MaxAnnotations-1)))
	require.NoError(t, err)
	require.Len(t, a.Info.GetAnnotations()["k"], MaxAnnotations-1)
}

func TestTheReasonOfARefusalStaysShort(t *testing.T) {
	t.Parallel()
	_, err := Load(pack(map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: " + strings.Repeat("ä", 1<<20) + "\n",
	}))
	require.ErrorContains(t, err, "chart.metadata.version")
	require.LessOrEqual(t, len(err.Error()), maxReason+len("..."))
}

// FuzzLoad: whatever is uploaded, Load neither panics nor accepts what the messages cannot carry.
func FuzzLoad(f *testing.F) {
	f.Add(annotated("abc"), "Chart.yaml", chartYAML+"annotations: {commit_sha: abc}\n")
	f.Add([]byte("junk"), "Chart.yaml", chartYAML+"maintainers: [null]\ndependencies: [null, {name: a, version: \"*\"}]\n")
	f.Add([]byte{0x1f, 0x8b, 8}, "requirements.yaml", "dependencies:\n- name: x\n")
	f.Add([]byte{}, "charts/sub/Chart.yaml", "")
	f.Add([]byte{}, "charts/sub.tgz", "x")
	f.Add([]byte{}, "Chart.lock", "dependencies: [null]")
	f.Add([]byte{}, "values.yaml", "a: &a [*a]")
	f.Fuzz(func(t *testing.T, data []byte, path, content string) {
		archives := [][]byte{data}
		if archive, err := tryPack(map[string]string{"Chart.yaml": chartYAML, path: content}); err == nil {
			archives = append(archives, archive)
		}
		for _, archive := range archives {
			a, err := Load(archive)
			if err != nil {
				require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
				require.LessOrEqual(t, len(err.Error()), maxReason+len("..."))
				continue
			}
			require.NotEmpty(t, a.Info.GetName())
			require.NotEmpty(t, a.Info.GetVersion())
			_, err = proto.Marshal(a.Info)
			require.NoError(t, err)
			_, err = a.Chart()
			require.NoError(t, err)
		}
	})
}

// chartYAML is a Chart.yaml that is valid.
const chartYAML = "apiVersion: v2\nname: web\nversion: 1.2.3\n"

// annotated returns a packaged chart with one annotation.
func annotated(value string) []byte {
	return pack(map[string]string{"Chart.yaml": chartYAML + "annotations: {k: " + value + "}\n"})
}

// pack packages the files of a chart, by their path in it. It is not helmtest's, which links Kubernetes: fuzzing would
// count the coverage of all that.
func pack(files map[string]string) []byte {
	packed, err := tryPack(files)
	if err != nil {
		panic(err)
	}
	return packed
}

// tryPack is pack for names that tar may refuse.
func tryPack(files map[string]string) ([]byte, error) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "web/" + name, Mode: 0o644, Size: int64(len(content))})
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(archive, content); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), zip.Close())
	return packed.Bytes(), err
}
