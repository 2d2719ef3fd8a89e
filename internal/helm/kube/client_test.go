package kube_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
)

func TestAKindIsFoundAsSoonAsItIsDefined(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	kind := schema.GroupKind{Group: "buoys.seatrial.dev", Kind: "Buoy"}
	mapper, err := client.As(kube.Actor{}).RESTClientGetter("default").ToRESTMapper()
	require.NoError(t, err)
	_, err = mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	require.NoError(t, err)
	_, err = mapper.RESTMapping(kind, "v1")
	require.True(t, meta.IsNoMatchError(err), err)

	dyn, err := dynamic.NewForConfig(client.Config)
	require.NoError(t, err)
	definitions := dyn.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "buoys." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": kind.Kind, "plural": "buoys"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	_, err = definitions.Create(t.Context(), definition, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, definitions.Delete(context.WithoutCancel(t.Context()), definition.GetName(), metav1.DeleteOptions{}))
	})

	// The API server needs a moment to serve it.
	require.Eventually(t, func() bool {
		mapping, err := mapper.RESTMapping(kind, "v1")
		return err == nil && mapping.Resource.Resource == "buoys"
	}, patience, 20*time.Millisecond)
}
