package helmtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"
)

// Option changes the chart that Web makes.
type Option func(*web)

// web is a chart in the making.
type web struct {
	metadata metadata
	values   map[string]any
	files    map[string]string
	ready    string
}

type metadata struct {
	APIVersion  string            `json:"apiVersion"`
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	AppVersion  string            `json:"appVersion,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Web returns the packaged chart `web`: a Deployment, named like the release, that serves a page from a ConfigMap. It has
// one test, <release>-smoke, which passes. Its objects start and end quickly, and it needs no Service and no DNS.
func Web(version string, options ...Option) []byte {
	w := &web{
		metadata: metadata{APIVersion: "v2", Name: "web", Version: version, AppVersion: "1.36"},
		values:   map[string]any{"replicas": 1, "page": "welcome"},
		files:    map[string]string{"templates/page.yaml": page},
		ready:    "true",
	}
	WithTest("smoke", "echo the page is there")(w)
	for _, option := range options {
		option(w)
	}
	w.files["Chart.yaml"] = marshal(w.metadata)
	w.files["values.yaml"] = marshal(w.values)
	w.files["templates/deployment.yaml"] = strings.ReplaceAll(deployment, "READY", w.ready)
	return Pack(w.metadata.Name, w.files)
}

// WithAnnotations adds annotations to Chart.yaml.
func WithAnnotations(annotations map[string]string) Option {
	return func(w *web) {
		if w.metadata.Annotations == nil {
			w.metadata.Annotations = map[string]string{}
		}
		maps.Copy(w.metadata.Annotations, annotations)
	}
}

// WithAppVersion sets appVersion of Chart.yaml.
func WithAppVersion(version string) Option {
	return func(w *web) { w.metadata.AppVersion = version }
}

// WithValues sets default values: `page` is the text that is served, `replicas` how many pods there are.
func WithValues(values map[string]any) Option {
	return func(w *web) { maps.Copy(w.values, values) }
}

// WithFile adds a file, or replaces one, by its path in the chart.
func WithFile(path, content string) Option {
	return func(w *web) { w.files[path] = content }
}

// WithSecret adds a Secret <release>-<name> with one entry.
func WithSecret(name, key, value string) Option {
	return WithFile("templates/"+name+"-secret.yaml", fmt.Sprintf(secret, name, inline(map[string]string{key: value})))
}

// NeverReady lets the Deployment's pods run without getting ready.
func NeverReady() Option {
	return func(w *web) { w.ready = "false" }
}

// WithoutTests takes all tests and fixtures out.
func WithoutTests() Option {
	return func(w *web) {
		maps.DeleteFunc(w.files, func(path, _ string) bool { return strings.HasPrefix(path, tests) })
	}
}

// WithTest adds a test <release>-<name>, or replaces the one of that name: a Pod that runs a shell script, in which
// template expressions work.
func WithTest(name, script string, options ...HookOption) Option {
	return withHook(name, testPod, script, options)
}

// WithTestJob is WithTest for a Job.
func WithTestJob(name, script string, options ...HookOption) Option {
	return withHook(name, testJob, script, options)
}

// WithFixture adds a ConfigMap <release>-<name> that is marked as a test.
func WithFixture(name string, options ...HookOption) Option {
	return withHook(name, fixture, "", options)
}

// HookOption changes a test or a fixture.
type HookOption func(*hook)

type hook struct {
	annotations map[string]string
	image       string
}

// Weight sets the hook's weight.
func Weight(weight int) HookOption {
	return func(h *hook) { h.annotations["helm.sh/hook-weight"] = fmt.Sprint(weight) }
}

// DeletePolicy sets the hook's delete policies, for example hook-succeeded.
func DeletePolicy(policies ...string) HookOption {
	return func(h *hook) { h.annotations["helm.sh/hook-delete-policy"] = strings.Join(policies, ",") }
}

// Image sets the image of a test, for example one that cannot be pulled.
func Image(image string) HookOption {
	return func(h *hook) { h.image = image }
}

func withHook(name, template, script string, options []HookOption) Option {
	h := &hook{annotations: map[string]string{"helm.sh/hook": "test"}, image: busybox}
	for _, option := range options {
		option(h)
	}
	content := strings.NewReplacer(
		"NAME", name,
		"ANNOTATIONS", inline(h.annotations),
		"IMAGE", inline(h.image),
		"SCRIPT", inline(endsAtOnce+script),
	).Replace(template)
	return WithFile(tests+name+".yaml", content)
}

func marshal(value any) string {
	data, err := yaml.Marshal(value)
	must(err)
	return string(data)
}

// inline returns a value as YAML of one line.
func inline(value any) string {
	data, err := json.Marshal(value)
	must(err)
	return string(data)
}
