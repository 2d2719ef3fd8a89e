package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

// Redacted stands where a value was struck out.
const Redacted = "[redacted]"

// minSecret is the length in bytes below which a value is not struck out: shorter ones are everywhere in any text.
const minSecret = 6

// Redactor strikes the values of Secrets out of text. It is safe for concurrent use.
type Redactor struct {
	mu    sync.RWMutex
	known map[string]bool
}

// NewRedactor returns a Redactor that knows no value yet.
func NewRedactor() *Redactor { return &Redactor{known: map[string]bool{}} }

// Add makes a Secret's value known: from now on it is struck out as it is, in base64, and as it looks inside a quoted
// string. The same goes for each line of a value of several lines, and for each scalar of one that is a YAML or JSON
// object, because such values are seldom printed whole.
func (r *Redactor) Add(value []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(string(value))
	for line := range strings.Lines(string(value)) {
		r.add(line)
	}
	var object map[string]any
	if yaml.Unmarshal(value, &object) == nil {
		r.addScalars(object)
	}
}

// AddSecret makes every value of a Secret known. Helm's own records are left out: what is secret in them is in the
// manifests that they hold.
func (r *Redactor) AddSecret(secret *corev1.Secret) {
	if secret.Type == helmRecord {
		return
	}
	for _, value := range secret.Data {
		r.Add(value)
	}
	for _, value := range secret.StringData {
		r.Add([]byte(value))
	}
}

// helmRecord is the type of the Secrets in which Helm keeps its releases.
const helmRecord corev1.SecretType = "helm.sh/release.v1"

// AddManifest makes the values of every Secret in a stream of YAML documents known. What cannot be parsed is skipped:
// the API server will not take it either.
func (r *Redactor) AddManifest(manifest string) {
	for _, document := range documents(manifest) {
		if !strings.Contains(document, "Secret") {
			continue
		}
		var object struct {
			Kind       string         `json:"kind"`
			Data       map[string]any `json:"data"`
			StringData map[string]any `json:"stringData"`
			Items      []any          `json:"items"`
		}
		if yaml.Unmarshal([]byte(document), &object) != nil {
			continue
		}
		switch object.Kind {
		case "Secret":
			for _, value := range object.Data {
				text := scalar(value)
				if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil {
					r.Add(plain)
				}
				r.Add([]byte(text))
			}
			for _, value := range object.StringData {
				r.Add([]byte(scalar(value)))
			}
		case "List", "SecretList":
			for _, item := range object.Items {
				if data, err := yaml.Marshal(item); err == nil {
					r.AddManifest(string(data))
				}
			}
		}
	}
}

// AddPod makes the values of the Secrets known that the containers of a pod can see. One that does not exist is skipped.
func (r *Redactor) AddPod(ctx context.Context, client kubernetes.Interface, namespace string, pod corev1.PodSpec) error {
	for _, name := range secretsOf(pod) {
		secret, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the Secret %s/%s, whose values must be struck out: %w", namespace, name, err)
		}
		r.AddSecret(secret)
	}
	return nil
}

// Redact returns text without the known values.
func (r *Redactor) Redact(text string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	// Values may overlap, so their places are joined first: otherwise striking out one would save a part of another.
	type span struct{ start, end int }
	var found []span
	for value := range r.known {
		for at := 0; ; {
			i := strings.Index(text[at:], value)
			if i < 0 {
				break
			}
			found = append(found, span{at + i, at + i + len(value)})
			at += i + 1
		}
	}
	if len(found) == 0 {
		return text
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var out strings.Builder
	at := 0
	for i := 0; i < len(found); {
		start, end := found[i].start, found[i].end
		for i++; i < len(found) && found[i].start <= end; i++ {
			end = max(end, found[i].end)
		}
		out.WriteString(text[at:start] + Redacted)
		at = end
	}
	return out.String() + text[at:]
}

func (r *Redactor) addScalars(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			r.addScalars(v)
		}
	case []any:
		for _, v := range value {
			r.addScalars(v)
		}
	default:
		r.add(scalar(value))
	}
}

// scalar returns a value of YAML as it is written; an object or a list is none.
func scalar(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	default:
		return ""
	}
}

// add makes one text known in all the forms in which it may be printed.
func (r *Redactor) add(value string) {
	// A file's last newline is part of the value, but seldom of what is printed.
	for _, form := range []string{value, strings.TrimSpace(value)} {
		if len(strings.TrimSpace(form)) < minSecret {
			continue
		}
		r.known[form] = true
		r.known[base64.StdEncoding.EncodeToString([]byte(form))] = true
		r.known[base64.RawURLEncoding.EncodeToString([]byte(form))] = true
		quoted := strconv.Quote(form)
		r.known[quoted[1:len(quoted)-1]] = true
		r.known[quoteJSON(form)] = true
	}
}

// quoteJSON returns text as it stands inside a JSON string, with < > & as they are.
func quoteJSON(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return text
	}
	quoted := strings.TrimSuffix(out.String(), "\n")
	return quoted[1 : len(quoted)-1]
}

// secretsOf returns the names of the Secrets that a pod's containers can see.
func secretsOf(pod corev1.PodSpec) []string {
	var names []string
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			names = append(names, volume.Secret.SecretName)
		}
		if volume.Projected != nil {
			for _, source := range volume.Projected.Sources {
				if source.Secret != nil {
					names = append(names, source.Secret.Name)
				}
			}
		}
	}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, from := range container.EnvFrom {
			if from.SecretRef != nil {
				names = append(names, from.SecretRef.Name)
			}
		}
		for _, env := range container.Env {
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
				names = append(names, env.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
