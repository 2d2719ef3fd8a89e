package kube

import (
	"bytes"
	"io"
	"regexp"
	"strings"

	helmchart "helm.sh/helm/v3/pkg/chart"
	helmkube "helm.sh/helm/v3/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Expect lets Build pass over objects of kinds that the chart itself defines and the API server does not know yet, until
// the returned function is called: so that a release can be checked before its definitions are made.
func (h *Helm) Expect(definitions []helmchart.CRD) (forget func()) {
	h.expected = map[schema.GroupKind]bool{}
	for _, definition := range definitions {
		for _, document := range documents(string(definition.File.Data)) {
			var crd struct {
				Spec struct {
					Group string `json:"group"`
					Names struct {
						Kind string `json:"kind"`
					} `json:"names"`
				} `json:"spec"`
			}
			if yaml.Unmarshal([]byte(document), &crd) == nil && crd.Spec.Names.Kind != "" {
				h.expected[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = true
			}
		}
	}
	return func() { h.expected = nil }
}

// Build reads objects. It never validates them: Helm's validation asks the API server's whole OpenAPI document, for every
// kind, whether the server checks unknown fields by itself. Each one since 1.27 does, and then Helm checks nothing.
func (h *Helm) Build(reader io.Reader, _ bool) (helmkube.ResourceList, error) {
	if len(h.expected) == 0 {
		return h.Client.Build(reader, false)
	}
	data, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	var known bytes.Buffer
	for _, document := range documents(string(data)) {
		if !h.undefined(document) {
			known.WriteString("---\n" + document + "\n")
		}
	}
	return h.Client.Build(&known, false)
}

// undefined says that an object is of an expected kind which the API server does not know yet.
func (h *Helm) undefined(document string) bool {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if yaml.Unmarshal([]byte(document), &object) != nil {
		return false
	}
	kind := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind).GroupKind()
	if !h.expected[kind] {
		return false
	}
	mapper, err := h.getter.ToRESTMapper()
	if err != nil {
		return false
	}
	_, err = mapper.RESTMapping(kind)
	return meta.IsNoMatchError(err)
}

// DeleteRest deletes the objects of the manifest before that the manifest after does not have, except for those that
// Helm is told to keep.
func (h *Helm) DeleteRest(before, after string) error {
	was, err := h.Client.Build(strings.NewReader(before), false)
	if err != nil {
		return err
	}
	is, err := h.Client.Build(strings.NewReader(after), false)
	if err != nil {
		return err
	}
	rest := was.Difference(is)
	if len(rest) == 0 {
		return nil
	}
	// Without a target, all of it is too much.
	_, err = h.Client.Update(rest, nil, false)
	return err
}

var separator = regexp.MustCompile(`(?m)^---.*$`)

// documents splits a stream of YAML documents.
func documents(stream string) []string {
	return separator.Split(stream, -1)
}
