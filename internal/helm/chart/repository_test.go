package chart

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/helm/helmtest/chartserver"
	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// entry is a version of web in an index.
func entry(version, url string) chartserver.Entry {
	return chartserver.Entry{Name: "web", Version: version, URLs: []string{url}}
}

// indexes puts an index into a repository that lies in the folder stable.
func indexes(t *testing.T, shelf *chartserver.Shelf, entries ...chartserver.Entry) {
	t.Helper()
	shelf.Put("/stable/index.yaml", chartserver.Index(t, entries...))
}

func in(s *chartserver.Server, version string) *seatrialv1.ChartSource {
	return &seatrialv1.ChartSource{Repo: s.URL + "/stable", Name: "web", Version: version}
}

// known returns a fetcher to which the operator has said something about the repository: further lines of its entry in a
// repositories.yaml.
func known(t *testing.T, s *chartserver.Server, lines ...string) *Fetcher {
	t.Helper()
	dir := t.TempDir()
	lines = append([]string{"name: stable", "url: " + s.URL + "/stable/"}, lines...)
	if s.CA != nil {
		lines = append(lines, "caFile: "+writeFile(t, filepath.Join(dir, "ca.crt"), string(s.CA)))
	}
	config := "apiVersion: \"\"\ngenerated: \"0001-01-01T00:00:00Z\"\nrepositories:\n- " + strings.Join(lines, "\n  ") + "\n"
	return &Fetcher{Timeout: time.Minute, RepositoryConfig: writeFile(t, filepath.Join(dir, "repositories.yaml"), config)}
}

func TestARepositoryGivesTheWantedVersion(t *testing.T) {
	t.Parallel()
	s, shelf := chartserver.Repository(t)
	archives := map[string][]byte{}
	var entries []chartserver.Entry
	for _, version := range []string{"1.4.0", "1.10.0", "1.4.10", "2.0.0-rc.1", "1.4.2", "1.4.2+build.7"} {
		archives[version] = webChart(version)
		shelf.Put("/stable/charts/web-"+version+".tgz", archives[version])
		e := entry(version, "charts/web-"+version+".tgz")
		e.Digest = strings.TrimPrefix(digestOf(archives[version]), "sha256:")
		entries = append(entries, e)
	}
	entries = append(entries, chartserver.Entry{Name: "web", Version: "9.0.0"}, chartserver.Entry{Name: "webs", Version: "9.1.0", URLs: []string{"x"}}, entry("newest", "x"))
	indexes(t, shelf, entries...)
	f := known(t, s)
	for _, row := range []struct{ name, version, gives string }{
		{"exactly", "1.4.0", "1.4.0"},
		{"exactly, where there is a build too", "1.4.2", "1.4.2"},
		{"with a build, exactly", "1.4.2+build.7", "1.4.2+build.7"},
		{"nothing: the newest that is no pre-release and can be fetched", "", "1.10.0"},
		{"a patch", "1.4.x", "1.4.10"},
		{"a range", ">1.4.0 <1.4.10", "1.4.2+build.7"},
		{"with pre-releases", ">1.4.0-0", "2.0.0-rc.1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a, err := f.Fetch(t.Context(), in(s, row.version))
			require.NoError(t, err)
			require.Equal(t, archives[row.gives], a.Data)
			require.Equal(t, row.gives, a.Info.GetVersion())
			require.Equal(t, s.URL+"/stable/charts/web-"+row.gives+".tgz", a.Info.GetSource())
		})
	}
}

func TestARepositoryMayNameOtherServers(t *testing.T) {
	t.Parallel()
	storage, files := chartserver.Repository(t)
	oci := chartserver.Registry(t)
	s, shelf := chartserver.Repository(t, chartserver.WithLogin("ci", "s3cret"))
	files.Put("/a/web.tgz", webChart("1.0.0"))
	oci.Push(t, "charts/web", "2.0.0", webChart("2.0.0"), nil)
	shelf.Put("/stable/web.tgz", webChart("3.0.0"))
	indexes(t, shelf, entry("1.0.0", storage.URL+"/a/web.tgz?X-Signature=s1gn4ture"), entry("2.0.0", "oci://"+oci.Host+"/charts/web:2.0.0"),
		entry("3.0.0", s.URL+"/stable/web.tgz"))
	f := known(t, s, "username: ci", "password: s3cret")
	f.RegistryCerts = fetcher(t, oci).RegistryCerts

	a, err := f.Fetch(t.Context(), in(s, "1.0.0"))
	require.NoError(t, err)
	require.Equal(t, storage.URL+"/a/web.tgz", a.Info.GetSource(), "without what may be a signature")
	a, err = f.Fetch(t.Context(), in(s, "2.0.0"))
	require.NoError(t, err)
	require.Contains(t, a.Info.GetSource(), "oci://"+oci.Host+"/charts/web:2.0.0@sha256:")
	a, err = f.Fetch(t.Context(), in(s, "3.0.0"))
	require.NoError(t, err)
	require.Equal(t, "3.0.0", a.Info.GetVersion())
	s.Break(chartserver.On(".tgz", chartserver.Redirect(storage.URL)))
	_, err = f.Fetch(t.Context(), in(s, "3.0.0"))
	require.ErrorContains(t, err, "is not there")
	require.NotContains(t, err.Error(), "s1gn4ture")
	require.Len(t, storage.Seen(), 2)
	for _, r := range append(storage.Seen(), oci.Seen()...) {
		require.Empty(t, r.Header.Get("Authorization"), "%s: no credentials for others", r.URL)
	}
	s.Break(nil)

	f = known(t, s, "username: ci", "password: s3cret", "pass_credentials_all: true")
	_, err = f.Fetch(t.Context(), in(s, "1.0.0"))
	require.NoError(t, err)
	require.NotEmpty(t, storage.Seen()[2].Header.Get("Authorization"), "but where the operator says so")
}

func TestARepositoryKnowsThePlannerByWhatTheOperatorSays(t *testing.T) {
	t.Parallel()
	ca, cert, key := clientCertificate(t)
	dir := t.TempDir()
	certFile, keyFile := writeFile(t, filepath.Join(dir, "client.crt"), cert), writeFile(t, filepath.Join(dir, "client.key"), key)
	open, openShelf := chartserver.Repository(t)
	closed, closedShelf := chartserver.Repository(t, chartserver.WithLogin("ci", "s3cret"), chartserver.WithClientCA(ca))
	plain, plainShelf := chartserver.Repository(t, chartserver.WithoutTLS())
	for _, shelf := range []*chartserver.Shelf{openShelf, closedShelf, plainShelf} {
		shelf.Put("/stable/web.tgz", webChart("1.0.0"))
		indexes(t, shelf, entry("1.0.0", "web.tgz"))
	}
	listed := &Fetcher{Timeout: time.Minute, PlainHTTP: []string{plain.Host}}
	for _, row := range []struct {
		name string
		s    *chartserver.Server
		f    *Fetcher
		says string
	}{
		{"all it asks for", closed, known(t, closed, "username: ci", "password: s3cret", "certFile: "+certFile, "keyFile: "+keyFile), ""},
		{"another password", closed, known(t, closed, "username: ci", "password: s3cret-of-before", "certFile: "+certFile, "keyFile: "+keyFile), "does not let the planner read index.yaml"},
		{"no certificate", closed, known(t, closed, "username: ci", "password: s3cret"), "tls: certificate required"},
		{"what another repository asks for", open, known(t, closed, "username: ci", "password: s3cret"), "the certificate of " + open.Host + " cannot be trusted"},
		{"a server that need not be trusted", open, insecure(t, open), ""},
		{"no TLS", plain, &Fetcher{Timeout: time.Minute}, plain.Host + " would be reached by http, without TLS"},
		{"no TLS, as the operator allows", plain, listed, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a, err := row.f.Fetch(t.Context(), in(row.s, "1.x"))
			if row.says == "" {
				require.NoError(t, err)
				require.Equal(t, "1.0.0", a.Info.GetVersion())
				return
			}
			require.ErrorContains(t, err, row.says)
			require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
			require.NotEmpty(t, fault.Failure(err).GetNext())
			require.NotContains(t, err.Error(), "s3cret")
		})
	}
}

// insecure is known without the CA, for a server that is taken as it is.
func insecure(t *testing.T, s *chartserver.Server) *Fetcher {
	t.Helper()
	return known(t, &chartserver.Server{URL: s.URL}, "insecure_skip_tls_verify: true")
}

func TestARepositoriesFileThatCannotBeUsedIsNotQuoted(t *testing.T) {
	t.Parallel()
	s, _ := chartserver.Repository(t)
	for _, row := range []struct{ name, config, says string }{
		{"no YAML", "repositories:\n- password: \"s3cret\n", "is no repositories.yaml of Helm"},
		{"another type", "repositories:\n- password: [s3cret]\n", "is no repositories.yaml of Helm"},
		{"a CA that is not there", "repositories:\n- url: " + s.URL + "/stable\n  password: s3cret\n  caFile: /none/ca.crt\n", "/none/ca.crt"},
		{"half a certificate", "repositories:\n- url: " + s.URL + "/stable\n  password: s3cret\n  certFile: /none/client.crt\n", "client certificate /none/client.crt"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := &Fetcher{Timeout: time.Minute, RepositoryConfig: writeFile(t, filepath.Join(t.TempDir(), "repositories.yaml"), row.config)}
			_, err := f.Fetch(t.Context(), in(s, "1.0.0"))
			require.ErrorContains(t, err, row.says)
			require.NotContains(t, err.Error(), "s3cret")
			require.Equal(t, seatrialv1.ClassTransient, fault.Class(err))
			require.NotEmpty(t, fault.Failure(err).GetNext())
		})
	}
	_, err := (&Fetcher{Timeout: time.Minute, RepositoryConfig: "/none/repositories.yaml"}).Fetch(t.Context(), in(s, "1.0.0"))
	require.ErrorContains(t, err, "/none/repositories.yaml: no such file")
}

func TestARepositoryWithoutTheChartIsRefused(t *testing.T) {
	t.Parallel()
	s, shelf := chartserver.Repository(t)
	shelf.Put("/stable/web.tgz", webChart("1.0.0"))
	shelf.Put("/stable/large.tgz", make([]byte, MaxArchive+1))
	wrong := entry("1.4.0", "web.tgz")
	wrong.Digest = "sha256:" + strings.Repeat("0", 64)
	indexes(t, shelf, entry("1.0.0", "web.tgz"), entry("1.1.0", "none.tgz"), entry("1.2.0", "large.tgz"), entry("1.3.0", "web.tgz"), wrong,
		entry("1.5.0", "oci://registry.example/web"), entry("1.6.0", "ftp://files.example/web.tgz"), entry("1.7.0", "::"), entry("1.8.0", "index.yaml"),
		chartserver.Entry{Name: "other", Version: "1.0.0", URLs: []string{"web.tgz"}}, chartserver.Entry{Name: "early", Version: "1.0.0-rc.1", URLs: []string{"web.tgz"}})
	shelf.Put("/page/index.yaml", []byte("<!doctype html>\n<html>A page</html>\n"))
	shelf.Put("/empty/index.yaml", nil)
	shelf.Put("/none/index.yaml", []byte("apiVersion: v1\nentries: {}\n"))
	shelf.Put("/flow/index.yaml", []byte("entries: {web: [{version: 1.0.0}]}\n"))
	shelf.Put("/junk/index.yaml", []byte("entries:\n  web:\n  - version: [\n"))
	f := known(t, s)
	f.RepositoryConfig = writeFile(t, filepath.Join(t.TempDir(), "all.yaml"), fmt.Sprintf("repositories:\n"+strings.Repeat("- {url: %s/%s, caFile: %s}\n", 6),
		all(s, writeFile(t, filepath.Join(t.TempDir(), "ca.crt"), string(s.CA)), "stable", "page", "empty", "none", "flow", "junk")...))
	for _, row := range []struct{ name, repo, chart, version, says string }{
		{"no such chart", "stable", "none", "", "has no versions"},
		{"no such version", "stable", "web", "2.0.0", `has no version "2.0.0" among the 9 that there are`},
		{"only pre-releases", "stable", "early", "", "has only pre-releases"},
		{"an archive that is gone", "stable", "web", "1.1.0", "none.tgz is not there on " + s.Host},
		{"too large an archive", "stable", "web", "1.2.0", "web 1.2.0 of " + s.URL + "/stable has more than 10485760 bytes"},
		{"another version than the index says", "stable", "web", "1.3.0", "is version 1.0.0 by its Chart.yaml"},
		{"another digest than the index says", "stable", "web", "1.4.0", "the index says sha256:0000"},
		{"another chart than the index says", "stable", "other", "1.0.0", "is a chart named web by its Chart.yaml"},
		{"a registry without a tag", "stable", "web", "1.5.0", "no usable reference in a registry"},
		{"a protocol that nobody speaks", "stable", "web", "1.6.0", "would be reached by ftp"},
		{"no URL", "stable", "web", "1.7.0", "no usable URL for version 1.7.0"},
		{"no archive", "stable", "web", "1.8.0", "not a packaged chart"},
		{"no repository", "elsewhere", "web", "", "cannot be trusted"},
		{"a page", "page", "web", "", "it has no entries"},
		{"nothing", "empty", "web", "", "it has no entries"},
		{"no charts", "none", "web", "", "has no versions"},
		{"an index of one line", "flow", "web", "", "each chart in it must begin a line of its own"},
		{"junk", "junk", "web", "", "the index cannot be used"},
		{"no range", "stable", "web", "newest", `chart.version "newest": must be a version`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := f.Fetch(t.Context(), &seatrialv1.ChartSource{Repo: s.URL + "/" + row.repo, Name: row.chart, Version: row.version})
			require.ErrorContains(t, err, row.says)
			require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
			require.NotEmpty(t, fault.Failure(err).GetNext())
		})
	}
}

// all returns URL, folder and CA of the folders of a server, for Sprintf.
func all(s *chartserver.Server, ca string, folders ...string) (args []any) {
	for _, folder := range folders {
		args = append(args, s.URL, folder, ca)
	}
	return args
}

func TestARepositoryInTrouble(t *testing.T) {
	t.Parallel()
	const s3cret = "s3cret-of-the-planner"
	for _, row := range []struct {
		name  string
		fault chartserver.Fault
		says  string
		class string
	}{
		{"an error of its own", chartserver.Answer(500), "answered 500 Internal Server Error", seatrialv1.ClassTransient},
		{"too many requests", chartserver.Answer(429), "answered 429 Too Many Requests", seatrialv1.ClassTransient},
		{"no right", chartserver.Answer(403), "does not let the planner read index.yaml", seatrialv1.ClassRejected},
		{"no right on the archive", chartserver.On(".tgz", chartserver.Answer(401)), "does not let the planner read web.tgz", seatrialv1.ClassRejected},
		{"no index", chartserver.Answer(404), "index.yaml is not there", seatrialv1.ClassRejected},
		{"another protocol", chartserver.Answer(418), "answered 418 I'm a teapot for index.yaml", seatrialv1.ClassRejected},
		{"half an index", chartserver.On("index.yaml", chartserver.Truncate), "sent a part of it only", seatrialv1.ClassTransient},
		{"half an archive", chartserver.On(".tgz", chartserver.Truncate), "sent a part of it only", seatrialv1.ClassTransient},
		{"a changed archive", chartserver.On(".tgz", chartserver.Corrupt), "the index says sha256:", seatrialv1.ClassRejected},
		{"an archive without an end", chartserver.On(".tgz", chartserver.Endless), "has more than 10485760 bytes", seatrialv1.ClassRejected},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, shelf := chartserver.Repository(t, chartserver.WithLogin("ci", s3cret))
			shelf.Put("/stable/web.tgz", webChart("1.0.0"))
			e := entry("1.0.0", "web.tgz")
			e.Digest = digestOf(webChart("1.0.0"))
			indexes(t, shelf, e)
			f := known(t, s, "username: ci", "password: "+s3cret)
			s.Break(row.fault)
			_, err := f.Fetch(t.Context(), in(s, "1.0.0"))
			require.ErrorContains(t, err, row.says)
			require.ErrorContains(t, err, "chart web ")
			require.Equal(t, row.class, fault.Class(err), err)
			told := err.Error() + fault.Failure(err).GetNext()
			require.NotContains(t, told, s3cret)
			require.NotContains(t, told, base64.StdEncoding.EncodeToString([]byte("ci:"+s3cret)))
			require.NotEmpty(t, fault.Failure(err).GetNext())

			s.Break(nil)
			_, err = f.Fetch(t.Context(), in(s, "1.0.0"))
			require.NoError(t, err)
		})
	}
}

func TestASlowRepositoryIsGivenUp(t *testing.T) {
	t.Parallel()
	s, _ := chartserver.Repository(t)
	s.Break(chartserver.Hang)
	f := known(t, s)
	f.Timeout = 200 * time.Millisecond
	_, err := f.Fetch(t.Context(), in(s, "1.0.0"))
	require.ErrorContains(t, err, "chart web of "+s.URL+"/stable was not there within 200ms")
	require.Equal(t, seatrialv1.ClassTransient, fault.Class(err))
}

func TestCheckRepo(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"https://charts.example", "https://charts.example:8443/a/b/", "http://127.0.0.1:8080"} {
		require.NoError(t, CheckRepo(good), good)
	}
	for bad, says := range map[string]string{
		"charts.example":                        "must be a URL such as",
		"ftp://charts.example":                  "must be a URL such as",
		"https://":                              "must be a URL such as",
		"https://charts.example\x7f":            "must be a URL such as",
		"oci://registry.example/web":            "write it as chart.oci",
		"https://user:s3cret@charts.example":    "must not hold a user or a password",
		"https://charts.example?sig=s3cret":     "without a query",
		"https://charts.example#s3cret":         "without a query",
		"https://" + strings.Repeat("a", 1<<10): "at most 1024 bytes",
	} {
		err := CheckRepo(bad)
		require.ErrorContains(t, err, says, bad)
		require.NotContains(t, err.Error(), "s3cret")
	}
	require.NoError(t, CheckName("cert-manager.v2"))
	for _, bad := range []string{"", "../web", "a/b", ".web", strings.Repeat("a", 257)} {
		require.Error(t, CheckName(bad), bad)
	}
}
