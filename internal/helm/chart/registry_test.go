package chart

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/helm/helmtest/chartserver"
	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// webChart returns the packaged chart web in a version.
func webChart(version string) []byte {
	return pack(map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: " + version + "\n"})
}

// fetcher returns one that trusts the servers.
func fetcher(t *testing.T, servers ...*chartserver.Server) *Fetcher {
	t.Helper()
	f := &Fetcher{Timeout: time.Minute, RegistryCerts: t.TempDir()}
	for _, s := range servers {
		if s.CA != nil {
			writeFile(t, filepath.Join(f.RegistryCerts, s.Host, "ca.crt"), string(s.CA))
		}
	}
	return f
}

func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// dockerLogin returns a config.json as `docker login` writes it.
func dockerLogin(host, user, password string) string {
	return fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

func at(s *chartserver.Server, version string) *seatrialv1.ChartSource {
	return &seatrialv1.ChartSource{Oci: "oci://" + s.Host + "/charts/web", Version: version}
}

func TestARegistryGivesTheWantedVersion(t *testing.T) {
	t.Parallel()
	s := chartserver.Registry(t)
	archives := map[string][]byte{}
	manifests := map[string]string{}
	for _, version := range []string{"1.3.9", "1.4.0", "1.4.2", "1.4.10", "1.10.0", "2.0.0-rc.1", "2.0.0+build.7", "3.0.0-alpha"} {
		archives[version] = webChart(version)
		manifests[version] = s.Push(t, "charts/web", version, archives[version], nil)
	}
	s.Put(t, "charts/web", "latest", "application/vnd.oci.image.manifest.v1+json", `{"schemaVersion": 2, "config": {}, "layers": []}`)
	f := fetcher(t, s)
	for _, row := range []struct{ name, version, gives string }{
		{"exactly", "1.4.2", "1.4.2"},
		{"a pre-release, exactly", "2.0.0-rc.1", "2.0.0-rc.1"},
		{"with a build, exactly", "2.0.0+build.7", "2.0.0+build.7"},
		{"nothing: the newest that is no pre-release", "", "2.0.0+build.7"},
		{"a patch", "1.4.x", "1.4.10"},
		{"a part of a version", "1.4", "1.4.10"},
		{"a tilde", "~1.3.1", "1.3.9"},
		{"a caret", "^1.4.0", "1.10.0"},
		{"bounds", ">=1.3.0 <1.4.2", "1.4.0"},
		{"one or the other", "1.3.x || 1.4.0", "1.4.0"},
		{"with pre-releases", ">=2.0.1-0", "3.0.0-alpha"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			a, err := f.Fetch(t.Context(), at(s, row.version))
			require.NoError(t, err)
			require.Equal(t, archives[row.gives], a.Data)
			require.Equal(t, row.gives, a.Info.GetVersion())
			require.Equal(t, digestOf(archives[row.gives]), a.Info.GetDigest())
			require.Equal(t, "oci://"+s.Host+"/charts/web:"+strings.ReplaceAll(row.gives, "+", "_")+"@"+manifests[row.gives], a.Info.GetSource())
			require.Empty(t, a.Info.GetSignedBy())
		})
	}
	t.Run("the digest of the archive", func(t *testing.T) {
		t.Parallel()
		source := at(s, "1.4.x")
		source.Digest = digestOf(archives["1.4.10"])
		a, err := f.Fetch(t.Context(), source)
		require.NoError(t, err)
		require.Equal(t, "1.4.10", a.Info.GetVersion())
	})
	t.Run("the digest of the manifest", func(t *testing.T) {
		t.Parallel()
		source := at(s, "")
		source.Oci += "@" + manifests["1.4.0"]
		a, err := f.Fetch(t.Context(), source)
		require.NoError(t, err)
		require.Equal(t, "1.4.0", a.Info.GetVersion())
		require.Equal(t, source.GetOci(), a.Info.GetSource())
	})
}

func TestARegistryKnowsThePlannerByItsCredentials(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]chartserver.Option{
		"a password": chartserver.WithLogin("ci", "s3cret"), "a token": chartserver.WithTokens("ci", "s3cret"),
	} {
		s := chartserver.Registry(t, option)
		s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
		other := dockerLogin("registry.example", "ci", "s3cret")
		for _, row := range []struct {
			name, config string
			says         string // empty: it is let in
		}{
			{"as docker login writes it", dockerLogin(s.Host, "ci", "s3cret"), ""},
			{"in two fields", fmt.Sprintf(`{"auths": {%q: {"username": "ci", "password": "s3cret"}}}`, s.Host), ""},
			{"with a scheme and a path", dockerLogin("https://"+s.Host+"/v1/", "ci", "s3cret"), ""},
			{"for a part of the registry", dockerLogin(s.Host+"/charts", "ci", "s3cret"), ""},
			{
				"for a part of the registry, beside others for all of it",
				fmt.Sprintf(`{"auths": {%[1]q: {"auth": "YTpi"}, "%[1]s/charts": {"username": "ci", "password": "s3cret"}, "https://%[1]s/": {"auth": "YTpi"}}}`, s.Host), "",
			},
			{"for another part of the registry", dockerLogin(s.Host+"/cha", "ci", "s3cret"), "does not let the planner read it"},
			{"for another registry", other, "does not let the planner read it"},
			{"wrong ones", dockerLogin(s.Host, "ci", "s3cret-of-before"), "does not let the planner read it"},
			{"none", `{}`, "does not let the planner read it"},
		} {
			t.Run(name+", "+row.name, func(t *testing.T) {
				t.Parallel()
				byFile, byText := fetcher(t, s), fetcher(t, s)
				byFile.RegistryConfig = writeFile(t, filepath.Join(t.TempDir(), "config.json"), row.config)
				byFile.RegistryAuth = other
				byText.RegistryAuth = row.config
				for _, f := range []*Fetcher{byFile, byText} {
					for _, version := range []string{"1.0.0", "1.x"} {
						a, err := f.Fetch(t.Context(), at(s, version))
						if row.says == "" {
							require.NoError(t, err)
							require.Equal(t, "1.0.0", a.Info.GetVersion())
							continue
						}
						require.ErrorContains(t, err, row.says)
						require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
						require.Contains(t, fault.Failure(err).GetNext(), "--registry-config")
						require.NotContains(t, err.Error(), "s3cret")
					}
				}
			})
		}
	}
}

func TestRotatedCredentialsArePickedUp(t *testing.T) {
	t.Parallel()
	s := chartserver.Registry(t, chartserver.WithLogin("ci", "s3cret"))
	s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
	f := fetcher(t, s)
	f.RegistryConfig = writeFile(t, filepath.Join(t.TempDir(), "config.json"), dockerLogin(s.Host, "ci", "of-before"))
	_, err := f.Fetch(t.Context(), at(s, "1.0.0"))
	require.ErrorContains(t, err, "does not let the planner read it")

	writeFile(t, f.RegistryConfig, dockerLogin(s.Host, "ci", "s3cret"))

	_, err = f.Fetch(t.Context(), at(s, "1.0.0"))
	require.NoError(t, err)
}

func TestALoginThatCannotBeReadIsNotQuoted(t *testing.T) {
	t.Parallel()
	s := chartserver.Registry(t)
	for _, row := range []struct{ name, config, says string }{
		{"no JSON", `{"auths": {"` + s.Host + `": {"auth": "s3cret`, "is no Docker config.json"},
		{"another type", `{"auths": {"` + s.Host + `": {"auth": ["s3cret"]}}}`, "is no Docker config.json"},
		{"no base64", `{"auths": {"` + s.Host + `": {"auth": "s3cret"}}}`, "is not user:password in base64"},
		{"no password", `{"auths": {"` + s.Host + `": {"auth": "` + base64.StdEncoding.EncodeToString([]byte("s3cret")) + `"}}}`, "is not user:password in base64"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f := fetcher(t, s)
			f.RegistryAuth = row.config
			_, err := f.Fetch(t.Context(), at(s, "1.0.0"))
			require.ErrorContains(t, err, row.says)
			require.NotContains(t, err.Error(), "s3cret")
			require.Equal(t, seatrialv1.ClassTransient, fault.Class(err), "the request is not to blame, and the file may be put right")
			require.NotEmpty(t, fault.Failure(err).GetNext())
		})
	}
	f := fetcher(t, s)
	f.RegistryConfig = filepath.Join(t.TempDir(), "none.json")
	_, err := f.Fetch(t.Context(), at(s, "1.0.0"))
	require.ErrorContains(t, err, "none.json: no such file")
}

func TestARegistryWithoutTLSMustBeListed(t *testing.T) {
	t.Parallel()
	s := chartserver.Registry(t, chartserver.WithoutTLS())
	s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
	f := fetcher(t)
	_, err := f.Fetch(t.Context(), at(s, "1.0.0"))
	require.ErrorContains(t, err, s.Host+" does not speak TLS")
	require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
	require.Contains(t, fault.Failure(err).GetNext(), "--plain-http-registries")

	f.PlainHTTP = []string{"registry.example", s.Host}

	a, err := f.Fetch(t.Context(), at(s, "1.x"))
	require.NoError(t, err)
	require.Equal(t, "1.0.0", a.Info.GetVersion())
}

func TestTheCertificatesOfARegistry(t *testing.T) {
	t.Parallel()
	ca, cert, key := clientCertificate(t)
	s := chartserver.Registry(t, chartserver.WithClientCA(ca))
	s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)

	f := &Fetcher{Timeout: time.Minute}
	_, err := f.Fetch(t.Context(), at(s, "1.0.0"))
	require.ErrorContains(t, err, "the certificate of "+s.Host+" cannot be trusted")
	require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
	require.Contains(t, fault.Failure(err).GetNext(), "--registry-certs")

	f = fetcher(t, s)
	_, err = f.Fetch(t.Context(), at(s, "1.0.0"))
	require.ErrorContains(t, err, "tls: certificate required")
	require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))

	writeFile(t, filepath.Join(f.RegistryCerts, s.Host, "client.cert"), cert)
	writeFile(t, filepath.Join(f.RegistryCerts, s.Host, "client.key"), key)
	a, err := f.Fetch(t.Context(), at(s, "1.0.0"))
	require.NoError(t, err)
	require.Equal(t, "1.0.0", a.Info.GetVersion())
}

func TestARegistryWithoutTheChartIsRefused(t *testing.T) {
	t.Parallel()
	const image = "application/vnd.oci.image.manifest.v1+json"
	s := chartserver.Registry(t)
	s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
	s.Push(t, "charts/web", "1.1.0", webChart("9.9.9"), nil)
	s.Push(t, "charts/early", "1.0.0-rc.1", webChart("1.0.0-rc.1"), nil)
	s.Put(t, "charts/image", "1.0.0", image, `{"schemaVersion": 2, "mediaType": "`+image+`",
		"config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:`+strings.Repeat("0", 64)+`", "size": 2}, "layers": []}`)
	s.Put(t, "charts/empty", "1.0.0", image, `{"schemaVersion": 2, "config": {"mediaType": "`+mediaConfig+`"}, "layers": []}`)
	s.Put(t, "charts/large", "1.0.0", image, `{"schemaVersion": 2, "config": {"mediaType": "`+mediaConfig+`"}, "layers":
		[{"mediaType": "`+mediaChart+`", "digest": "sha256:`+strings.Repeat("0", 64)+`", "size": 10485761}]}`)
	s.Put(t, "charts/index", "1.0.0", "application/vnd.oci.image.index.v1+json", `{"schemaVersion": 2, "manifests": []}`)
	s.Put(t, "charts/long", "1.0.0", image, `{"schemaVersion": 2, "annotations": {"a": "`+strings.Repeat("a", maxManifest)+`"}}`)
	f := fetcher(t, s)
	for _, row := range []struct{ name, repository, version, says string }{
		{"no such repository", "charts/none", "", "chart oci://" + s.Host + "/charts/none does not exist"},
		{"no such version", "charts/web", "1.2.0", "chart oci://" + s.Host + "/charts/web:1.2.0 does not exist"},
		{"a version that no tag can hold", "charts/web", "1.0.0-" + strings.Repeat("a", 200), "does not exist"},
		{"none in the range", "charts/web", "2.x", `has no version "2.x" among the 2 that there are`},
		{"only pre-releases", "charts/early", "", "has only pre-releases"},
		{"an image", "charts/image", "1.0.0", `is no Helm chart: its configuration is "application/vnd.oci.image.config.v1+json"`},
		{"an index", "charts/index", "1.0.0", `is no Helm chart: it is "application/vnd.oci.image.index.v1+json"`},
		{"no archive", "charts/empty", "1.0.0", "is no Helm chart: it holds no archive"},
		{"too large an archive", "charts/large", "1.0.0", "has 10485761 bytes, the limit is 10485760"},
		{"too large a manifest", "charts/long", "1.0.0", "the limit is 1048576"},
		{"another version than the tag says", "charts/web", "1.1.0", "is version 9.9.9 by its Chart.yaml"},
		{"no reference", "charts/web:1.0.0", "", "must not hold a tag"},
		{"no range", "charts/web", "newest", `chart.version "newest": must be a version`},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := f.Fetch(t.Context(), &seatrialv1.ChartSource{Oci: "oci://" + s.Host + "/" + row.repository, Version: row.version})
			require.ErrorContains(t, err, row.says)
			require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
			require.NotEmpty(t, fault.Failure(err).GetNext())
		})
	}
}

func TestAnotherArchiveThanThePinnedOneIsRefused(t *testing.T) {
	t.Parallel()
	s := chartserver.Registry(t)
	s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
	f := fetcher(t, s)
	other := digestOf(webChart("1.0.1"))
	byArchive, byManifest := at(s, "1.0.0"), at(s, "")
	byArchive.Digest = other
	byManifest.Oci += "@" + other
	_, err := f.Fetch(t.Context(), byArchive)
	require.ErrorContains(t, err, "the request wants "+other)
	require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
	_, err = f.Fetch(t.Context(), byManifest)
	require.ErrorContains(t, err, "@"+other+" does not exist")
	require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
}

func TestARegistryInTrouble(t *testing.T) {
	t.Parallel()
	const s3cret = "s3cret-of-the-planner"
	for _, row := range []struct {
		name  string
		fault chartserver.Fault
		says  string
		class string
	}{
		{"an error of its own", chartserver.Answer(500), "answered 500 Internal Server Error", seatrialv1.ClassTransient},
		{"a gateway without it", chartserver.Answer(502), "answered 502 Bad Gateway", seatrialv1.ClassTransient},
		{"too many requests", chartserver.Answer(429), "answered 429 Too Many Requests", seatrialv1.ClassTransient},
		{"no right", chartserver.Answer(403), "does not let the planner read it", seatrialv1.ClassRejected},
		{"no right any more", chartserver.Answer(401), "does not let the planner read it", seatrialv1.ClassRejected},
		{"another protocol", chartserver.Answer(418), "answered 418 I'm a teapot", seatrialv1.ClassRejected},
		{"a broken archive", chartserver.On("/blobs/", chartserver.Corrupt), "sent something else than the digest says", seatrialv1.ClassRejected},
		{"a broken manifest", chartserver.On("/manifests/", chartserver.Corrupt), "sent something else than the digest says", seatrialv1.ClassRejected},
		{"half an archive", chartserver.On("/blobs/", chartserver.Truncate), "sent a part of it only", seatrialv1.ClassTransient},
		{"a blob that is gone", chartserver.On("/blobs/", chartserver.Answer(404)), "does not exist", seatrialv1.ClassRejected},
		{"storage that is away", chartserver.On("/blobs/", chartserver.Answer(503)), "answered 503 Service Unavailable", seatrialv1.ClassTransient},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := chartserver.Registry(t, chartserver.WithLogin("ci", s3cret))
			s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
			f := fetcher(t, s)
			f.RegistryAuth = dockerLogin(s.Host, "ci", s3cret)
			s.Break(afterLogin(row.fault))
			_, err := f.Fetch(t.Context(), at(s, "1.0.0"))
			require.ErrorContains(t, err, row.says)
			require.ErrorContains(t, err, "chart oci://"+s.Host+"/charts/web:1.0.0")
			require.Equal(t, row.class, fault.Class(err), err)
			told := err.Error() + fault.Failure(err).GetNext()
			require.NotContains(t, told, s3cret)
			require.NotContains(t, told, base64.StdEncoding.EncodeToString([]byte("ci:"+s3cret)))
			require.NotEmpty(t, fault.Failure(err).GetNext())

			s.Break(nil)
			_, err = f.Fetch(t.Context(), at(s, "1.0.0"))
			require.NoError(t, err)
		})
	}
}

func TestASlowRegistryIsGivenUp(t *testing.T) {
	t.Parallel()
	s := chartserver.Registry(t)
	s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
	s.Break(chartserver.On("/blobs/", chartserver.Hang))
	f := fetcher(t, s)
	f.Timeout = 200 * time.Millisecond
	_, err := f.Fetch(t.Context(), at(s, "1.0.0"))
	require.ErrorContains(t, err, "chart oci://"+s.Host+"/charts/web was not there within 200ms")
	require.Equal(t, seatrialv1.ClassTransient, fault.Class(err))
	require.Contains(t, fault.Failure(err).GetNext(), "--fetch-timeout")
}

func TestARegistryThatIsAwayIsTransient(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	_, err = fetcher(t).Fetch(t.Context(), &seatrialv1.ChartSource{Oci: "oci://" + closed.Addr().String() + "/charts/web"})
	require.ErrorContains(t, err, closed.Addr().String()+" cannot be reached")
	require.ErrorContains(t, err, "connection refused")
	require.Equal(t, seatrialv1.ClassTransient, fault.Class(err))
}

func TestCredentialsFollowNoRedirect(t *testing.T) {
	t.Parallel()
	storage := chartserver.Registry(t)
	storage.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
	for name, option := range map[string]chartserver.Option{
		"a password": chartserver.WithLogin("ci", "s3cret"), "a token": chartserver.WithTokens("ci", "s3cret"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := chartserver.Registry(t, option)
			s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
			s.Break(chartserver.On("/blobs/", chartserver.Redirect(storage.URL)))
			f := fetcher(t, s, storage)
			f.RegistryAuth = dockerLogin(s.Host, "ci", "s3cret")
			a, err := f.Fetch(t.Context(), at(s, "1.0.0"))
			require.NoError(t, err)
			require.Equal(t, "1.0.0", a.Info.GetVersion())
			require.NotContains(t, a.Info.GetSource(), storage.Host)
		})
	}
	t.Cleanup(func() {
		require.NotEmpty(t, storage.Seen())
		for _, r := range storage.Seen() {
			require.Empty(t, r.Header.Get("Authorization"), r.URL)
		}
	})
}

func TestALinkToAnotherServerIsNotFollowed(t *testing.T) {
	t.Parallel()
	other := chartserver.Registry(t, chartserver.WithLogin("ci", "s3cret"))
	s := chartserver.Registry(t, chartserver.WithLogin("ci", "s3cret"))
	s.Break(afterLogin(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Link", "<"+other.URL+`/v2/charts/web/tags/list?last=a>; rel="next"`)
		_, _ = w.Write([]byte(`{"name": "charts/web", "tags": ["1.0.0"]}`))
	}))
	f := fetcher(t, s, other)
	f.RegistryAuth = dockerLogin(s.Host, "ci", "s3cret")
	_, err := f.Fetch(t.Context(), at(s, "1.x"))
	require.ErrorContains(t, err, "not the same origin")
	require.Empty(t, other.Seen())
}

func TestARedirectThatFailsTellsNoSignature(t *testing.T) {
	t.Parallel()
	storage := chartserver.Registry(t)
	plain := chartserver.Registry(t, chartserver.WithoutTLS())
	s := chartserver.Registry(t)
	s.Push(t, "charts/web", "1.0.0", webChart("1.0.0"), nil)
	for _, row := range []struct {
		name, to, says string
		fault          chartserver.Fault
	}{
		{"nothing there", storage.URL, "does not exist", nil},
		{"no right", storage.URL, "does not let the planner read it", chartserver.Answer(403)},
		{"another type", storage.URL, "mismatch Content-Length", chartserver.Answer(200)},
		{"away", storage.URL, "answered 503", chartserver.Answer(503)},
		{"without TLS", plain.URL, plain.Host + " would be reached by http, without TLS", nil},
		{"no address", "https://user:s1gn4ture@" + storage.Host + "\x7f", "", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			storage.Break(row.fault)
			s.Break(chartserver.On("/blobs/", chartserver.Redirect(row.to)))
			_, err := fetcher(t, s, storage).Fetch(t.Context(), at(s, "1.0.0"))
			require.ErrorContains(t, err, row.says)
			require.NotContains(t, err.Error(), "s1gn4ture")
		})
	}
}

// afterLogin applies a fault to what a client asks that has shown who it is.
func afterLogin(broken chartserver.Fault) chartserver.Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("Authorization") == "" {
			next.ServeHTTP(w, r)
			return
		}
		broken(w, r, next)
	}
}

// clientCertificate makes a CA, and a certificate of it with its key in PEM.
func clientCertificate(t *testing.T) (ca *x509.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "planner"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	ca, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

func TestCheckOCI(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0a", 32)
	for _, good := range []string{"oci://registry.example/web", "oci://registry.example:5000/a/b/web", "oci://registry.example/web@sha256:" + sum, "oci://[::1]:5000/web"} {
		require.NoError(t, CheckOCI(good), good)
	}
	require.True(t, Pinned("oci://registry.example/web@sha256:"+sum))
	require.False(t, Pinned("oci://registry.example/web"))
	for bad, says := range map[string]string{
		"registry.example/web":                           "must begin with oci://",
		"https://registry.example/web":                   "must begin with oci://",
		"oci://registry.example":                         "must be oci://<registry>/<repository>",
		"oci://registry.example/":                        "must be oci://<registry>/<repository>",
		"oci:///web":                                     "must be oci://<registry>/<repository>",
		"oci://registry.example/Web":                     "in lower case",
		"oci://registry.example/web:1.0.0":               "must not hold a tag",
		"oci://registry.example/web?a=b":                 "must be oci://<registry>/<repository>",
		"oci://user:s3cret@registry.example/w":           "must not hold a user or a password",
		"oci://registry.example/web@sha256:00":           "64 hexadecimal digits",
		"oci://registry.example/web@sha512:" + sum + sum: "must have sha256:",
		"oci://registry.example/web@":                    "must have sha256:",
		"oci://registry.example/web@" + sum:              "must have sha256:",
		"oci://r/" + strings.Repeat("a", 1<<10):          "at most 1024 bytes",
	} {
		err := CheckOCI(bad)
		require.ErrorContains(t, err, says, bad)
		require.NotContains(t, err.Error(), "s3cret")
	}
}
