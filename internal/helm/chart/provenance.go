package chart

import (
	"bytes"
	"encoding/hex"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"sigs.k8s.io/yaml"
)

// maxProvenance is the most bytes that a provenance file may have: it repeats Chart.yaml.
const maxProvenance = 1 << 20

// prove checks the provenance of an archive (https://helm.sh/docs/topics/provenance), as `helm verify` does: it must be signed
// by a key of the keyring, and name the archive's digest. It returns who signed it. Helm's own check knows files only.
func (f *Fetcher) prove(p *packaged) (signer string, err error) {
	if p.provenance == nil {
		return "", refuse("package the chart with `helm package --sign`, and publish the .prov file with it",
			"%s has no provenance, and it must be verified", p.name)
	}
	if len(p.provenance) > maxProvenance {
		return "", refuse("publish the .prov file that `helm package --sign` writes", "the provenance of %s has more than %d bytes", p.name, maxProvenance)
	}
	block, _ := clearsign.Decode(p.provenance)
	if block == nil {
		return "", refuse("publish the .prov file that `helm package --sign` writes", "the provenance of %s is not signed", p.name)
	}
	keyring, err := f.keyring()
	if err != nil {
		return "", err
	}
	by, err := block.VerifySignature(keyring, nil)
	if err != nil {
		return "", refuse("sign the chart with a key that the operator trusts, or let the operator add it to --keyring",
			"the signature of %s does not hold: %w", p.name, err)
	}
	// Chart.yaml, and behind the end of that document the digests.
	_, sums, _ := bytes.Cut(block.Plaintext, []byte("\n...\n"))
	var signed struct {
		Files map[string]string `json:"files"`
	}
	if err := yaml.Unmarshal(sums, &signed); err != nil {
		return "", refuse("publish the .prov file that `helm package --sign` writes", "the provenance of %s cannot be read: %s", p.name, clean(err))
	}
	if digest := digestOf(p.data); !slices.Contains(slices.Collect(maps.Values(signed.Files)), digest) {
		return "", refuse("sign the archive that is published", "the provenance of %s is that of another archive: this one has the digest %s", p.name, digest)
	}
	return keyName(by), nil
}

// keyring reads the operator's keys, in the binary form of GnuPG or armored. The file is read each time.
func (f *Fetcher) keyring() (openpgp.EntityList, error) {
	text, err := os.ReadFile(f.Keyring)
	if err != nil {
		return nil, operator("put the public keys there that charts may be signed with", "--keyring: %w", err)
	}
	read := openpgp.ReadKeyRing
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("-----BEGIN")) {
		read = openpgp.ReadArmoredKeyRing
	}
	keys, err := read(bytes.NewReader(text))
	if err != nil || len(keys) == 0 {
		return nil, operator("write it with `gpg --export`", "--keyring %s holds no public keys", f.Keyring)
	}
	return keys, nil
}

// keyName returns the name in a key, and its fingerprint.
func keyName(key *openpgp.Entity) string {
	fingerprint := strings.ToUpper(hex.EncodeToString(key.PrimaryKey.Fingerprint))
	identity := key.PrimaryIdentity()
	if identity == nil || len(identity.Name) > maxName {
		return fingerprint
	}
	return identity.Name + " " + fingerprint
}
