package chart

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"

	"oras.land/oras-go/v2/registry"
	"sigs.k8s.io/yaml"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Helm's own client of chart repositories knows no context, reads whatever it is sent into memory, and links Kubernetes. The
// form of a repository is that of https://helm.sh/docs/topics/chart_repository.

// CheckRepo returns what is wrong with the URL of a chart repository, without quoting it.
func CheckRepo(text string) error {
	_, err := parseRepo(text)
	return err
}

func parseRepo(text string) (*url.URL, error) {
	if len(text) > maxReference {
		return nil, fmt.Errorf("must have at most %d bytes", maxReference)
	}
	if strings.HasPrefix(text, schemeOCI) {
		return nil, errors.New("is a registry: write it as chart.oci, with the name of the chart behind it")
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return nil, errors.New("must be a URL such as https://charts.example/stable")
	case u.User != nil:
		return nil, errors.New("must not hold a user or a password: the operator gives them to the planner in --repository-config")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("must be a URL without a query or a fragment")
	}
	return u, nil
}

var chartName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// CheckName returns what is wrong with the name of a chart in a repository.
func CheckName(text string) error {
	if len(text) > maxName || !chartName.MatchString(text) {
		return fmt.Errorf("must be the name of a chart in the repository: at most %d letters, digits, dots, - and _", maxName)
	}
	return nil
}

// repositoryEntry is one of a Helm repositories.yaml.
type repositoryEntry struct {
	URL      string `json:"url"`
	Username string `json:"username"`
	Password string `json:"password"`
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	CAFile   string `json:"caFile"`
	// Insecure takes any certificate for the repository's own.
	Insecure bool `json:"insecure_skip_tls_verify"`
	// PassAll gives the credentials to every server that the index or a redirect names.
	PassAll bool `json:"pass_credentials_all"`
}

// repository returns what the operator says about a repository, nothing if nothing. The file is read each time.
func (f *Fetcher) repository(at *url.URL) (repositoryEntry, error) {
	if f.RepositoryConfig == "" {
		return repositoryEntry{}, nil
	}
	text, err := os.ReadFile(f.RepositoryConfig)
	if err != nil {
		return repositoryEntry{}, operator("put a repositories.yaml of Helm there", "--repository-config: %w", err)
	}
	var config struct {
		Repositories []repositoryEntry `json:"repositories"`
	}
	if yaml.Unmarshal(text, &config) != nil { // its text could quote a password
		return repositoryEntry{}, operator("write it as `helm repo add` does", "--repository-config %s is no repositories.yaml of Helm", f.RepositoryConfig)
	}
	for _, entry := range config.Repositories {
		if u, err := url.Parse(entry.URL); err == nil && origin(u) == origin(at) && strings.Trim(u.Path, "/") == strings.Trim(at.Path, "/") {
			return entry, nil
		}
	}
	return repositoryEntry{}, nil
}

// origin returns scheme, host and port of a URL in one form.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}

// way returns the way to a repository, and to the servers that its index names.
func (f *Fetcher) way(at *url.URL, entry repositoryEntry) *web {
	own := func(to *url.URL) bool { return entry.PassAll || origin(to) == origin(at) }
	return &web{
		plain: f.PlainHTTP,
		secure: func(to *url.URL) (*tls.Config, error) {
			if own(to) {
				return keys{ca: entry.CAFile, cert: entry.CertFile, key: entry.KeyFile, insecure: entry.Insecure}.config()
			}
			return keys{ca: entry.CAFile}.config()
		},
		login: func(to *url.URL) (user, password string, ok bool) {
			return entry.Username, entry.Password, entry.Username != "" && own(to)
		},
		trust: "let the operator name the CA as caFile of this repository, and certFile and keyFile where they are asked for, in --repository-config",
	}
}

// fromRepository fetches a chart from a chart repository.
func (f *Fetcher) fromRepository(ctx context.Context, at *url.URL, source *seatrialv1.ChartSource, prove bool) (*packaged, error) {
	entry, err := f.repository(at)
	if err != nil {
		return nil, err
	}
	way := f.way(at, entry)
	defer way.close()
	base := *at
	base.Path = strings.TrimSuffix(base.Path, "/") + "/" // what the index names is relative to it
	name := fmt.Sprintf("chart %s of %s", source.GetName(), at)
	chosen, err := choose(ctx, way, base.JoinPath("index.yaml"), name, source)
	if err != nil {
		return nil, err
	}
	archive, err := base.Parse(chosen.URLs[0])
	if err != nil || len(chosen.URLs[0]) > maxReference {
		return nil, refuse("repair the index of the repository", "%s: the index names no usable URL for version %s", name, chosen.Version)
	}
	found := &packaged{name: fmt.Sprintf("chart %s %s of %s", source.GetName(), chosen.Version, at)}
	if archive.Scheme == strings.TrimSuffix(schemeOCI, "://") {
		found, err = f.fromIndexedRegistry(ctx, archive, found.name, prove)
	} else {
		err = download(ctx, way, archive, found, prove)
	}
	if err != nil {
		return nil, err
	}
	found.version = chosen.Version
	if want := strings.TrimPrefix(chosen.Digest, "sha256:"); want != "" && "sha256:"+want != digestOf(found.data) {
		return nil, refuse("build the index of the repository anew, and find out who changed the archive",
			"%s has the digest %s, the index says sha256:%s", found.name, digestOf(found.data), want)
	}
	return found, nil
}

// choose looks the wanted version up in the index.
func choose(ctx context.Context, way *web, index *url.URL, name string, source *seatrialv1.ChartSource) (*indexed, error) {
	wanted, err := want(source.GetVersion())
	if err != nil {
		return nil, refuse("correct chart.version", "chart.version %q: %w", source.GetVersion(), err)
	}
	body, err := get(ctx, way, index, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	versions, err := findEntries(body, source.GetName(), indexLimits)
	if errors.Is(err, errIndex) {
		return nil, refuse("check that "+index.Host+" has a chart repository there, with an index as `helm repo index` writes it", "%s: %w", name, err)
	}
	if err != nil {
		return nil, broken(index.Host, name, err)
	}
	best := newest{wanted: wanted}
	var chosen *indexed
	for i, v := range versions {
		if len(v.URLs) > 0 && best.show(v.Version) {
			chosen = &versions[i]
		}
	}
	if chosen == nil {
		return nil, best.none(name, source.GetVersion())
	}
	return chosen, nil
}

// fromIndexedRegistry fetches a chart whose repository names a registry as the place where it lies.
func (f *Fetcher) fromIndexedRegistry(ctx context.Context, at *url.URL, name string, prove bool) (*packaged, error) {
	ref, err := registry.ParseReference(at.Host + at.Path)
	if err != nil || at.User != nil || ref.Reference == "" {
		return nil, refuse("repair the index of the repository", "%s: the index names no usable reference in a registry", name)
	}
	return f.fromRegistry(ctx, ref, "", prove)
}

// download fills in found with the archive, and with the provenance beside it if it is to be proved.
func download(ctx context.Context, way *web, archive *url.URL, found *packaged, prove bool) (err error) {
	shown := url.URL{Scheme: archive.Scheme, Host: archive.Host, Path: archive.Path}
	found.from = shown.String()
	if found.data, err = read(ctx, way, archive, found.name, MaxArchive); err != nil || !prove {
		return err
	}
	beside := *archive
	beside.Path, beside.RawPath = beside.Path+".prov", ""
	found.provenance, err = read(ctx, way, &beside, "the provenance of "+found.name, maxProvenance)
	if errors.Is(err, errAbsent) {
		return nil
	}
	return err
}

// read returns what lies at a URL, if it has at most limit bytes.
func read(ctx context.Context, way *web, at *url.URL, name string, limit int64) ([]byte, error) {
	body, err := get(ctx, way, at, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err != nil {
		return nil, broken(at.Host, name, err)
	}
	if int64(len(data)) > limit {
		return nil, refuse("keep large files out of the chart, with .helmignore", "%s has more than %d bytes", name, limit)
	}
	return data, nil
}

// errAbsent is wrapped by the error of what a server does not have.
var errAbsent = errors.New("is not there")

// get asks a server, and classes its answer.
func get(ctx context.Context, way *web, at *url.URL, name string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, refuse("check the URL", "%s: %s", name, clean(err))
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := way.client().Do(req)
	if err != nil {
		return nil, broken(at.Host, name, err)
	}
	file := at.Path[strings.LastIndexByte(at.Path, '/')+1:]
	switch code := resp.StatusCode; code {
	case http.StatusOK:
		return resp.Body, nil
	case http.StatusNotFound, http.StatusGone:
		err = refuse("check the URL and the name", "%s: %s %w on %s", name, file, errAbsent, at.Host)
	case http.StatusUnauthorized, http.StatusForbidden:
		err = refuse("check the URL; if it is right, let the operator give the planner credentials for the repository, in --repository-config",
			"%s: %s does not let the planner read %s", name, at.Host, file)
	default:
		err = refuse("check that "+at.Host+" has a chart repository there", "%s: %s answered %s for %s", name, at.Host, status(code), file)
	}
	_ = resp.Body.Close()
	return nil, err
}

// broken classes the error of an answer that did not come, or not to its end.
func broken(host, name string, err error) error {
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return fault.New(ours.Class, ours.Next, "%s: %w", name, ours.Err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(seatrialv1.ClassTransient, "look why "+host+" breaks off", "%s: %s sent a part of it only", name, host)
	}
	return fault.New(seatrialv1.ClassTransient, "look into the answers of "+host, "%s: %s", name, clean(err))
}
