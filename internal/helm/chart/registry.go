package chart

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Helm's own client of registries knows no context, and reads layers of any size into memory. So the library below it is
// used here. The form of a chart in a registry is that of https://helm.sh/docs/topics/registries.
const (
	schemeOCI = "oci://"

	mediaConfig     = "application/vnd.cncf.helm.config.v1+json"
	mediaChart      = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	mediaProvenance = "application/vnd.cncf.helm.chart.provenance.v1.prov"

	// maxManifest is the most bytes that the manifest of a chart may have: the annotations of Chart.yaml stand in it too.
	maxManifest = 1 << 20
	// maxReference bounds the text of a reference or a URL, which travels in commands, outcomes and events.
	maxReference = 1 << 10
)

// CheckOCI returns what is wrong with a reference to a chart in a registry, without quoting it.
func CheckOCI(text string) error {
	_, err := parseOCI(text)
	return err
}

// parseOCI reads oci://<registry>/<repository>, and with @sha256:<hex> behind it, which names a manifest.
func parseOCI(text string) (registry.Reference, error) {
	if len(text) > maxReference {
		return registry.Reference{}, fmt.Errorf("must have at most %d bytes", maxReference)
	}
	rest, ok := strings.CutPrefix(text, schemeOCI)
	if !ok {
		return registry.Reference{}, fmt.Errorf("must begin with %s", schemeOCI)
	}
	host, path, _ := strings.Cut(rest, "/")
	name, pin, pinned := strings.Cut(path, "@")
	ref := registry.Reference{Registry: host, Repository: name, Reference: pin}
	switch {
	case strings.Contains(host, "@"):
		return ref, errors.New("must not hold a user or a password: the operator gives them to the planner in --registry-config")
	case strings.Contains(name, ":"):
		return ref, errors.New("must not hold a tag: write it as version")
	case ref.ValidateRegistry() != nil || ref.ValidateRepository() != nil:
		return ref, errors.New("must be oci://<registry>/<repository>, in lower case, such as oci://registry.example/charts/web")
	case pinned && !strings.HasPrefix(pin, "sha256:") || pinned && ref.ValidateReferenceAsDigest() != nil:
		return ref, errors.New("must have sha256: and 64 hexadecimal digits behind the @")
	}
	return ref, nil
}

// Pinned says whether a reference to a chart in a registry names one manifest.
func Pinned(text string) bool {
	ref, err := parseOCI(text)
	return err == nil && ref.Reference != ""
}

// fromRegistry fetches a chart. Where ref names neither tag nor digest, version chooses one of the tags.
func (f *Fetcher) fromRegistry(ctx context.Context, ref registry.Reference, version string, prove bool) (*packaged, error) {
	login, err := f.login(ref)
	if err != nil {
		return nil, err
	}
	way := &web{
		plain:  f.PlainHTTP,
		secure: func(to *url.URL) (*tls.Config, error) { return f.certs(to.Host).config() },
		trust:  "let the operator put the CA's certificate, and the planner's own where one is asked for, into --registry-certs",
	}
	defer way.close()
	client := &auth.Client{
		Client: way.client(), Cache: auth.NewCache(), ClientID: userAgent,
		Credential: func(_ context.Context, host string) (auth.Credential, error) {
			if host != ref.Host() { // the library asks for no other; that is not left to it
				return auth.EmptyCredential, nil
			}
			return login, nil
		},
	}
	client.SetUserAgent(userAgent)
	repository := &remote.Repository{
		Client: client, PlainHTTP: isPlain(f.PlainHTTP, ref.Host()),
		Reference: registry.Reference{Registry: ref.Registry, Repository: ref.Repository},
	}
	found := &packaged{name: "chart " + schemeOCI + ref.String()}
	if ref.Reference == "" {
		if ref.Reference, found.version, err = tag(ctx, repository, found.name, version); err != nil {
			return nil, err
		}
		found.name = "chart " + schemeOCI + ref.String()
	}
	return found, pull(ctx, repository, ref, found, prove)
}

// tag returns the tag of the version that is wanted, and that version. Tags cannot hold a `+`: Helm writes `_` for it.
func tag(ctx context.Context, repository *remote.Repository, name, version string) (tag, found string, err error) {
	wanted, err := want(version)
	if err != nil {
		return "", "", refuse("correct chart.version", "chart.version %q: %w", version, err)
	}
	if wanted.exact != nil { // without a list: some registries give none, and some have thousands of tags
		return strings.ReplaceAll(version, "+", "_"), version, nil
	}
	best := newest{wanted: wanted}
	err = repository.Tags(ctx, "", func(tags []string) error {
		for _, t := range tags {
			if text := strings.ReplaceAll(t, "_", "+"); best.show(text) {
				tag, found = t, text
			}
		}
		return nil
	})
	if err != nil {
		return "", "", explain(repository.Reference, name, err)
	}
	if found == "" {
		return "", "", best.none(name, version)
	}
	return tag, found, nil
}

// pull fills in found with the archive, and with the provenance if it is to be proved.
func pull(ctx context.Context, repository *remote.Repository, ref registry.Reference, found *packaged, prove bool) error {
	described, body, err := repository.Manifests().FetchReference(ctx, ref.Reference)
	if err != nil {
		return explain(ref, found.name, err)
	}
	defer func() { _ = body.Close() }()
	if described.Size > maxManifest {
		return refuse("check that it is a Helm chart", "%s: the manifest has %d bytes, the limit is %d", found.name, described.Size, maxManifest)
	}
	text, err := content.ReadAll(body, described)
	if err != nil {
		return explain(ref, found.name, err)
	}
	const push = "push a packaged chart there, with `helm push`"
	var manifest ocispec.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil || described.MediaType != ocispec.MediaTypeImageManifest {
		return refuse(push, "%s is no Helm chart: it is %q", found.name, described.MediaType)
	}
	if manifest.Config.MediaType != mediaConfig {
		return refuse(push, "%s is no Helm chart: its configuration is %q", found.name, manifest.Config.MediaType)
	}
	found.from = schemeOCI + ref.String()
	if ref.ValidateReferenceAsDigest() != nil {
		found.from += "@" + described.Digest.String()
	}
	if found.data, err = layer(ctx, repository, manifest, mediaChart, MaxArchive, found.name); err != nil {
		return err
	}
	if found.data == nil {
		return refuse(push, "%s is no Helm chart: it holds no archive", found.name)
	}
	if prove {
		found.provenance, err = layer(ctx, repository, manifest, mediaProvenance, maxProvenance, found.name)
	}
	return err
}

// layer fetches the layer of a media type, nil if there is none. Its digest was checked.
func layer(ctx context.Context, repository *remote.Repository, manifest ocispec.Manifest, mediaType string, limit int64, name string) ([]byte, error) {
	i := slices.IndexFunc(manifest.Layers, func(l ocispec.Descriptor) bool { return l.MediaType == mediaType })
	if i < 0 {
		return nil, nil
	}
	described := manifest.Layers[i]
	if described.Size > limit {
		return nil, refuse("keep large files out of the chart, with .helmignore", "%s has %d bytes, the limit is %d", name, described.Size, limit)
	}
	body, err := repository.Blobs().Fetch(ctx, described)
	if err != nil {
		return nil, explain(repository.Reference, name, err)
	}
	defer func() { _ = body.Close() }()
	data, err := content.ReadAll(body, described)
	if err != nil {
		return nil, explain(repository.Reference, name, err)
	}
	return data, nil
}

// explain classes an error of a registry, and says in words that hold no secret what it means for the chart. What servers
// write into their answers is not repeated.
func explain(ref registry.Reference, name string, err error) error {
	if ours, ok := errors.AsType[*fault.Error](err); ok {
		return fault.New(ours.Class, ours.Next, "%s: %w", name, ours.Err)
	}
	response, _ := errors.AsType[*errcode.ErrorResponse](err)
	code := 0
	if response != nil {
		code = response.StatusCode
	}
	switch {
	case errors.Is(err, errdef.ErrNotFound) || code == http.StatusNotFound || errors.Is(err, errdef.ErrInvalidReference): // too long for a tag
		return refuse("check the name and the version", "%s does not exist", name)
	case code == http.StatusUnauthorized || code == http.StatusForbidden || errors.Is(err, auth.ErrBasicCredentialNotFound):
		return refuse("check the name; if it is right, let the operator give the planner credentials for "+ref.Host()+", in --registry-config",
			"%s: %s does not let the planner read it, or it does not exist", name, ref.Host())
	case code != 0:
		return refuse("check that "+ref.Host()+" is a registry", "%s: %s answered %s", name, ref.Host(), status(code))
	case errors.Is(err, content.ErrMismatchedDigest) || errors.Is(err, content.ErrTrailingData) || errors.Is(err, digest.ErrDigestInvalidFormat):
		return refuse("push the chart again, and find out who changed it", "%s: %s sent something else than the digest says", name, ref.Host())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(seatrialv1.ClassTransient, "look why "+ref.Host()+" breaks off", "%s: %s sent a part of it only", name, ref.Host())
	default:
		return fault.New(seatrialv1.ClassTransient, "look into the answers of "+ref.Host(), "%s: %s", name, clean(err))
	}
}

// certs returns the files for a registry: the layout of containers' certs.d, <directory>/<host:port>/ with ca.crt,
// client.cert and client.key.
func (f *Fetcher) certs(host string) keys {
	if f.RegistryCerts == "" || !filepath.IsLocal(host) {
		return keys{}
	}
	file := func(name string) string {
		path := filepath.Join(f.RegistryCerts, host, name)
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
	return keys{ca: file("ca.crt"), cert: file("client.cert"), key: file("client.key")}
}
