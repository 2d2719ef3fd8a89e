package action

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/seatrial/seatrial/internal/helm/release"
)

// place is where objects of one kind are.
type place struct {
	kind      schema.GroupVersionKind
	namespace string
}

// places returns where test runs of the release may have left something: where its records have test hooks, and where the
// tests of forgotten records would be. A CustomResourceDefinition is not among them: it would take all its objects along.
func (op *operation) places() map[place]bool {
	all := map[place]bool{
		{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, op.release.Namespace}:                 true,
		{schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, op.release.Namespace}: true,
	}
	for _, rel := range op.history {
		for _, hook := range release.TestHooks(rel) {
			var object metav1.PartialObjectMetadata
			if yaml.Unmarshal([]byte(hook.Manifest), &object) != nil || object.Kind == "CustomResourceDefinition" {
				continue
			}
			namespace := object.Namespace
			if namespace == "" {
				namespace = op.release.Namespace
			}
			all[place{schema.FromAPIVersionAndKind(object.APIVersion, object.Kind), namespace}] = true
		}
	}
	return all
}

// deleteLeftovers deletes what test runs have left, of which Helm knows nothing, and waits until it is gone. The tester's
// labels tell it, so that nobody else's object is taken for one, and it is deleted by its UID.
func (op *operation) deleteLeftovers(ctx context.Context) error {
	mapper, err := op.client.RESTClientGetter(op.release.Namespace).ToRESTMapper()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(op.client.Config)
	if err != nil {
		return err
	}
	selector := labels.Set{release.LabelRelease: op.release.Name, release.LabelNamespace: op.release.Namespace}.String()
	var deleted strings.Builder
	// Jobs go before Pods, or they would make new ones.
	byKind := func(a, b place) int { return strings.Compare(a.kind.Kind+a.namespace, b.kind.Kind+b.namespace) }
	for _, where := range slices.SortedFunc(maps.Keys(op.places()), byKind) {
		mapping, err := mapper.RESTMapping(where.kind.GroupKind(), where.kind.Version)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return err
		}
		var objects dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			objects = client.Resource(mapping.Resource).Namespace(where.namespace)
		}
		found, err := objects.List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return fmt.Errorf("look for leftovers of test hooks: %w", err)
		}
		for _, object := range found.Items {
			if err := deleteLeftover(ctx, objects, &object); err != nil {
				return err
			}
			if err := describeTo(&deleted, &object); err != nil {
				return err
			}
		}
	}
	if deleted.Len() == 0 || !waits(op.upgrade) {
		return nil
	}
	resources, err := op.helm.Build(strings.NewReader(deleted.String()), false)
	if err != nil {
		return err
	}
	return op.helm.WaitForDelete(resources, op.timeout)
}

func deleteLeftover(ctx context.Context, objects dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	// A test that ignores SIGTERM is not waited for.
	uid, background, second := object.GetUID(), metav1.DeletePropagationBackground, int64(1)
	err := objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background, GracePeriodSeconds: &second,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s, left by a test: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// describeTo writes which object it is, as a YAML document.
func describeTo(w *strings.Builder, object *unstructured.Unstructured) error {
	text, err := json.Marshal(metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: object.GetAPIVersion(), Kind: object.GetKind()},
		ObjectMeta: metav1.ObjectMeta{Name: object.GetName(), Namespace: object.GetNamespace()},
	})
	w.WriteString("---\n" + string(text) + "\n")
	return err
}
