package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Objects is the object store that people put charts into.
type Objects interface {
	// Get returns the object of that name, if it has at most limit bytes. The class of its error decides what becomes of
	// the request.
	Get(ctx context.Context, name string, limit int64) ([]byte, error)
}

// Fetcher fetches charts from where requests say. Its files are read at each fetch, so that secrets can be replaced while it
// is used.
type Fetcher struct {
	Uploads Objects
	// AllowPath lets a request name a file on this machine, for development.
	AllowPath bool
	// Timeout bounds one fetch.
	Timeout time.Duration

	// RegistryConfig is a Docker config.json with the credentials for registries. Without it RegistryAuth counts, which is
	// the content of one.
	RegistryConfig, RegistryAuth string
	// RegistryCerts is a directory with the certificates for registries: <host:port>/ca.crt, client.cert and client.key.
	RegistryCerts string
	// RepositoryConfig is a repositories.yaml of Helm, with the credentials and certificates for chart repositories.
	RepositoryConfig string
	// PlainHTTP are the registries and repositories that are reached without TLS, each as it stands in requests: host or
	// host:port.
	PlainHTTP []string

	// VerifyAlways has the provenance of every chart verified, not only where the request asks for it. Keyring is the file
	// with the public keys.
	VerifyAlways bool
	Keyring      string
}

// Validate returns what is wrong with the settings themselves. Files are looked at when they are needed.
func (f *Fetcher) Validate() error {
	var errs []error
	if f.VerifyAlways && f.Keyring == "" {
		errs = append(errs, errors.New("--verify-charts always: needs --keyring"))
	}
	if _, err := parseLogins([]byte(f.RegistryAuth)); err != nil {
		errs = append(errs, fmt.Errorf("$DOCKER_AUTH_CONFIG %w", err))
	}
	return errors.Join(errs...)
}

// packaged is an archive as it was found.
type packaged struct {
	// name is how people call it, and from where it lies, exactly.
	name, from string
	// version is that under which it was found, empty where none was looked for.
	version string
	data    []byte
	// provenance is the signed text that belongs to it, nil if there is none or nobody asks for it.
	provenance []byte
}

// Fetch returns the chart that source names, as Load does. Where source pins a digest, it is that chart or an error.
func (f *Fetcher) Fetch(ctx context.Context, source *seatrialv1.ChartSource) (*Archive, error) {
	limited, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	a, err := f.fetch(limited, source)
	if err != nil && ctx.Err() == nil && limited.Err() != nil && fault.Class(err) == seatrialv1.ClassTransient {
		return nil, fault.New(seatrialv1.ClassTransient, "look why it is slow, or let the operator raise --fetch-timeout",
			"%s was not there within %s", nameOf(source), f.Timeout)
	}
	return a, err
}

func (f *Fetcher) fetch(ctx context.Context, source *seatrialv1.ChartSource) (*Archive, error) {
	prove := f.VerifyAlways || source.GetVerify()
	if prove && f.Keyring == "" {
		return nil, refuse("let the operator set --keyring, or leave chart.verify out",
			"%s cannot be verified: the planner has no keyring", nameOf(source))
	}
	p, err := f.read(ctx, source, prove)
	if err != nil {
		return nil, err
	}
	if want := source.GetDigest(); want != "" && want != digestOf(p.data) {
		return nil, refuse("publish the chart again, or correct chart.digest", "%s has the digest %s, the request wants %s", p.name, digestOf(p.data), want)
	}
	var signer string
	if prove {
		if signer, err = f.prove(p); err != nil {
			return nil, err
		}
	}
	a, err := Load(p.data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	if p.version != "" && !sameVersion(p.version, a.Info.GetVersion()) {
		return nil, refuse("publish each version under its own name", "%s is version %s by its Chart.yaml", p.name, a.Info.GetVersion())
	}
	if name := source.GetName(); name != "" && name != a.Info.GetName() {
		return nil, refuse("repair the index of the repository", "%s is a chart named %s by its Chart.yaml", p.name, a.Info.GetName())
	}
	a.Info.Source, a.Info.SignedBy = p.from, signer
	return a, nil
}

// nameOf returns how people call what a source names, before anything is known of it.
func nameOf(source *seatrialv1.ChartSource) string {
	switch {
	case source.GetOci() != "":
		return "chart " + withoutSecrets(source.GetOci())
	case source.GetRepo() != "":
		return fmt.Sprintf("chart %s of %s", source.GetName(), withoutSecrets(source.GetRepo()))
	case source.GetObject() != "":
		return fmt.Sprintf("chart object %q", source.GetObject())
	default:
		return fmt.Sprintf("chart file %q", source.GetPath())
	}
}

// read returns the archive, and its provenance if it is to be proved.
func (f *Fetcher) read(ctx context.Context, source *seatrialv1.ChartSource, prove bool) (*packaged, error) {
	switch {
	case source.GetOci() != "":
		ref, err := parseOCI(source.GetOci())
		if err != nil {
			return nil, refuse("correct chart.oci", "chart.oci %w", err)
		}
		return f.fromRegistry(ctx, ref, source.GetVersion(), prove)
	case source.GetRepo() != "":
		at, err := parseRepo(source.GetRepo())
		if err != nil {
			return nil, refuse("correct chart.repo", "chart.repo %w", err)
		}
		return f.fromRepository(ctx, at, source, prove)
	case source.GetObject() != "":
		return f.fromUploads(ctx, source.GetObject(), nameOf(source), prove)
	case source.GetPath() != "":
		return f.fromFile(source.GetPath(), nameOf(source), prove)
	default:
		return nil, refuse("set chart.oci, chart.repo or chart.object", "the request names no chart")
	}
}

func (f *Fetcher) fromUploads(ctx context.Context, object, name string, prove bool) (*packaged, error) {
	found := &packaged{name: name, from: "seatrial-uploads/" + object}
	var err error
	if found.data, err = f.Uploads.Get(ctx, object, MaxArchive); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if prove {
		if found.provenance, err = f.Uploads.Get(ctx, object+".prov", maxProvenance); err != nil {
			return nil, fmt.Errorf("the provenance of %s: %w", name, err)
		}
	}
	return found, nil
}

func (f *Fetcher) fromFile(path, name string, prove bool) (*packaged, error) {
	found := &packaged{name: name, from: path}
	var err error
	if found.data, err = f.readFile(name, path, MaxArchive); err == nil && prove {
		found.provenance, err = f.readFile("the provenance of "+name, path+".prov", maxProvenance)
	}
	return found, err
}

func (f *Fetcher) readFile(name, path string, limit int64) ([]byte, error) {
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
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, fault.New(seatrialv1.ClassTransient, "", "%s: %w", name, err)
	}
	return data, nil
}
