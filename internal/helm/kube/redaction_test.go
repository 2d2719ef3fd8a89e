package kube

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestSecretsAreStruckOutHoweverTheyArePrinted(t *testing.T) {
	t.Parallel()
	encoded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, row := range []struct{ name, secret, text, want string }{
		{"as it is", "hunter2", "password hunter2!", "password [redacted]!"},
		{"twice", "hunter2", "hunter2hunter2", "[redacted]"},
		{"in base64", "hunter2", encoded("hunter2"), "[redacted]"},
		{"in base64, for a URL", "????>>>>?", base64.RawURLEncoding.EncodeToString([]byte("????>>>>?")), "[redacted]"},
		{"without the file's last newline", "hunter2\n", "hunter2 " + encoded("hunter2"), "[redacted] [redacted]"},
		{"quoted by Go", "hunter\t\"2", `Invalid value: "hunter\t\"2"`, `Invalid value: "[redacted]"`},
		{"quoted by JSON", "hunter<\u001b>2", `{"a":"hunter<\u001b>2"}`, `{"a":"[redacted]"}`},
		{"a line of several", "first-line\nx\nsecond-line\n", "it says second-line", "it says [redacted]"},
		{"a value of several in YAML", "db: {user: admin1, port: 654321, list: [secret1]}", "admin1 654321 secret1", "[redacted] [redacted] [redacted]"},
		{"a value of several in JSON", `{"auths":{"r":{"password":"hunter2"}}}`, "hunter2", "[redacted]"},
		{"too short to be told from a word", "admin", "admin", "admin"},
		{"white space is none", "        ", "a        b", "a        b"},
		{"nothing in it", "hunter2", "hunter 2", "hunter 2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := NewRedactor()
			r.Add([]byte(row.secret))
			require.Equal(t, row.want, r.Redact(row.text))
		})
	}
}

func TestSecretsThatOverlapLeaveNothing(t *testing.T) {
	t.Parallel()
	r := NewRedactor()
	r.Add([]byte("abcdefgh"))
	r.Add([]byte("efghijkl"))
	r.Add([]byte("cdefghij"))
	require.Equal(t, "<[redacted]>", r.Redact("<abcdefghijkl>"))
}

func TestSecretsOfAManifestAreKnown(t *testing.T) {
	t.Parallel()
	r := NewRedactor()
	r.AddManifest(`---
# Source: web/templates/secret.yaml
apiVersion: v1
kind: Secret
data:
  a: ` + base64.StdEncoding.EncodeToString([]byte("in-data")) + `
stringData:
  b: in-string-data
  c: 1234567
---
apiVersion: v1
kind: ConfigMap
data: {d: no-secret}
---
kind: List
items:
  - kind: Secret
    stringData: {e: in-a-list}
---
not: [yaml
`)
	require.Equal(t, "[redacted] [redacted] [redacted] no-secret [redacted]", r.Redact("in-data in-string-data 1234567 no-secret in-a-list"))
}

func TestHelmsOwnRecordsAreNoSecrets(t *testing.T) {
	t.Parallel()
	r := NewRedactor()
	r.AddSecret(&corev1.Secret{Type: "helm.sh/release.v1", Data: map[string][]byte{"release": []byte("some-record")}})
	require.Equal(t, "some-record", r.Redact("some-record"))
}

func TestSecretsThatAPodCanSeeAreKnown(t *testing.T) {
	t.Parallel()
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, StringData: map[string]string{"key": "value-of-" + name}}
	}
	client := fake.NewClientset(secret("env"), secret("from"), secret("volume"), secret("projected"), secret("unseen"))
	name := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	r := NewRedactor()
	require.NoError(t, r.AddPod(t.Context(), client, "shop", corev1.PodSpec{
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: name("projected")}}},
			}}},
		},
		InitContainers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name("from")}}}}},
		Containers: []corev1.Container{{Env: []corev1.EnvVar{
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name("env")}}},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name("missing")}}},
		}}},
	}))
	require.Equal(t, "[redacted] [redacted] [redacted] [redacted] value-of-unseen",
		r.Redact("value-of-env value-of-from value-of-volume value-of-projected value-of-unseen"))
}

func FuzzNoSecretIsLeft(f *testing.F) {
	f.Add("hunter2", "abcabcabc", "it is hunter2, or abcabcabcabc")
	f.Add("aaaaaaa", "aaaaaaaa", "aaaaaaaaaaaaaaaaaaaa")
	f.Add("line one\nline two\n", "{a: 1234567}", "line two 1234567")
	f.Fuzz(func(t *testing.T, one, two, text string) {
		r := NewRedactor()
		r.Add([]byte(one))
		r.Add([]byte(two))
		redacted := r.Redact(text + one + text + two)
		for _, secret := range []string{one, two} {
			if len(strings.TrimSpace(secret)) >= minSecret && !strings.Contains(Redacted, strings.TrimSpace(secret)) && !strings.Contains(secret, Redacted) {
				require.NotContains(t, strings.ReplaceAll(redacted, Redacted, "\x00"), strings.TrimSpace(secret))
			}
		}
	})
}
