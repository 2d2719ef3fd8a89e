package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/provenance"

	"github.com/seatrial/seatrial/internal/helm/helmtest/chartserver"
	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// newKey makes a key that can sign, in an hour that has passed if it is an expired one.
func newKey(t *testing.T, name string, expired bool) *openpgp.Entity {
	t.Helper()
	config := &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA}
	if expired {
		config.KeyLifetimeSecs, config.Time = 60, func() time.Time { return time.Now().Add(-time.Hour) }
	}
	key, err := openpgp.NewEntity(name, "", name+"@example.org", config)
	require.NoError(t, err)
	return key
}

// sign returns what `helm package --sign` writes into the .prov file of an archive.
func sign(t *testing.T, key *openpgp.Entity, archive []byte) []byte {
	t.Helper()
	path := writeFile(t, filepath.Join(t.TempDir(), "web-1.0.0.tgz"), string(archive))
	signed, err := (&provenance.Signatory{Entity: key}).ClearSign(path)
	require.NoError(t, err)
	return []byte(signed)
}

// keyring writes public keys into a file.
func keyring(t *testing.T, armored bool, keys ...*openpgp.Entity) string {
	t.Helper()
	var ring bytes.Buffer
	for _, key := range keys {
		require.NoError(t, key.Serialize(&ring))
	}
	if armored {
		plain := bytes.Clone(ring.Bytes())
		ring.Reset()
		w, err := armor.Encode(&ring, openpgp.PublicKeyType, nil)
		require.NoError(t, err)
		_, err = w.Write(plain)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	return writeFile(t, filepath.Join(t.TempDir(), "pubring.gpg"), ring.String())
}

func TestTheProvenanceOfAChartIsVerified(t *testing.T) {
	t.Parallel()
	trusted, stranger := newKey(t, "release", false), newKey(t, "stranger", false)
	expired := newKey(t, "expired", true)
	archive := webChart("1.0.0")
	good := sign(t, trusted, archive)
	tampered := bytes.Replace(good, []byte("version: 1.0.0"), []byte("version: 1.0.1"), 1)
	require.NotEqual(t, good, tampered)
	for _, row := range []struct {
		name       string
		provenance []byte
		says       string
	}{
		{"signed by a trusted key", good, ""},
		{"none", nil, "has no provenance"},
		{"signed by a stranger", sign(t, stranger, archive), "the signature of "},
		{"signed for another archive", sign(t, trusted, webChart("1.0.1")), "is that of another archive"},
		{"changed after it was signed", tampered, "the signature of "},
		{"not signed", []byte("files:\n  web-1.0.0.tgz: " + digestOf(archive) + "\n"), "is not signed"},
		{"with more behind it that is not signed", append(sign(t, trusted, webChart("1.0.1")), []byte("\n...\nfiles:\n  a: "+digestOf(archive)+"\n")...), "is that of another archive"},
	} {
		s, oci := chartserver.Registry(t), &seatrialv1.ChartSource{Verify: true, Version: "1.0.0"}
		oci.Oci = "oci://" + s.Host + "/charts/web"
		s.Push(t, "charts/web", "1.0.0", archive, row.provenance)
		repo, shelf := chartserver.Repository(t)
		shelf.Put("/stable/web.tgz", archive)
		indexes(t, shelf, entry("1.0.0", "web.tgz"))
		dir := t.TempDir()
		path := writeFile(t, filepath.Join(dir, "any-name.tgz"), string(archive))
		objects := uploads{data: archive, provenance: row.provenance}
		if row.provenance != nil {
			shelf.Put("/stable/web.tgz.prov", row.provenance)
			writeFile(t, path+".prov", string(row.provenance))
		} else {
			objects.err = fault.New(seatrialv1.ClassRejected, "upload it", "there has no provenance")
		}
		fromRepo := in(repo, "1.0.0")
		fromRepo.Verify = true
		for name, source := range map[string]*seatrialv1.ChartSource{
			"registry": oci, "repository": fromRepo,
			"uploads": {Object: "web.tgz", Verify: true}, "file": {Path: path, Verify: true},
		} {
			t.Run(row.name+", "+name, func(t *testing.T) {
				t.Parallel()
				f := fetcher(t, s)
				f.RepositoryConfig = known(t, repo).RepositoryConfig
				f.Uploads, f.AllowPath = objects, true
				f.Keyring = keyring(t, name == "registry", trusted, expired)
				a, err := f.Fetch(t.Context(), source)
				if row.says == "" {
					require.NoError(t, err)
					require.Regexp(t, `^release <release@example\.org> [0-9A-F]{40}$`, a.Info.GetSignedBy())
					return
				}
				says := row.says
				if row.provenance == nil && name == "file" {
					says = "does not exist"
				}
				require.ErrorContains(t, err, says)
				require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
				require.NotEmpty(t, fault.Failure(err).GetNext())

				source.Verify = false
				a, err = f.Fetch(t.Context(), source)
				require.NoError(t, err, "nobody asks")
				require.Empty(t, a.Info.GetSignedBy())
				f.VerifyAlways = true
				_, err = f.Fetch(t.Context(), source)
				require.ErrorContains(t, err, says, "but the operator")
			})
		}
	}
}

func TestAKeyringThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	archive := webChart("1.0.0")
	expired := newKey(t, "expired", true)
	signed := sign(t, newKey(t, "release", false), archive)
	f := &Fetcher{Timeout: time.Minute, Uploads: uploads{data: archive, provenance: signed}}
	source := &seatrialv1.ChartSource{Object: "web.tgz", Verify: true}

	_, err := f.Fetch(t.Context(), source)
	require.ErrorContains(t, err, "the planner has no keyring")
	require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))
	require.Contains(t, fault.Failure(err).GetNext(), "--keyring")

	for content, says := range map[string]string{"": "holds no public keys", "junk": "holds no public keys", "-----BEGIN PGP PUBLIC KEY BLOCK-----": "holds no public keys"} {
		f.Keyring = writeFile(t, filepath.Join(t.TempDir(), "pubring.gpg"), content)
		_, err = f.Fetch(t.Context(), source)
		require.ErrorContains(t, err, says)
		require.Equal(t, seatrialv1.ClassTransient, fault.Class(err), "the request is not to blame")
	}
	require.NoError(t, os.Remove(f.Keyring))
	_, err = f.Fetch(t.Context(), source)
	require.ErrorContains(t, err, "no such file")

	f.Keyring = keyring(t, false, expired)
	f.Uploads = uploads{data: archive, provenance: sign(t, expired, archive)}
	_, err = f.Fetch(t.Context(), source)
	require.ErrorContains(t, err, "expired")
	require.Equal(t, seatrialv1.ClassRejected, fault.Class(err))

	f.Uploads = uploads{data: archive, provenance: []byte(strings.Repeat("a", maxProvenance+1))}
	_, err = f.Fetch(t.Context(), source)
	require.ErrorContains(t, err, "over the limit")
}
