package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	helmrelease "helm.sh/helm/v3/pkg/release"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/seatrial/seatrial/internal/helm/release"
)

// owner identifies the command whose objects these are.
type owner struct {
	release, namespace string
	revision           int
	number             uint32
}

// labels are those of every object that a run creates, and of the pods of its Jobs. They tell a later run, and an
// uninstall, whose leftovers it finds, and a second holder of the same command what to adopt.
func (o owner) labels() labels.Set {
	return labels.Set{
		release.LabelRelease:   o.release,
		release.LabelNamespace: o.namespace,
		release.LabelRevision:  strconv.Itoa(o.revision),
		release.LabelNumber:    strconv.FormatUint(uint64(o.number), 10),
	}
}

// holds: the object was made for this very command.
func (o owner) holds(object metav1.Object) bool {
	return o.labels().AsSelector().Matches(labels.Set(object.GetLabels()))
}

// knows: the object was made by a run of the same release, this one or another.
func (o owner) knows(object metav1.Object) bool {
	return object.GetLabels()[release.LabelRelease] == o.release && object.GetLabels()[release.LabelNamespace] == o.namespace
}

// placed is a step whose object stands in the cluster.
type placed struct {
	step
	client  dynamic.ResourceInterface
	uid     types.UID
	created time.Time
}

// objects puts the objects of one command into the cluster and takes them away.
type objects struct {
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
	owner   owner
}

// place makes sure that the step's object is there and belongs to this command: it adopts the one that a former holder
// of the command made, removes another run's leftover by its UID and waits until it is gone, and else creates it.
func (o objects) place(ctx context.Context, s step) (placed, error) {
	client, err := o.client(s.object)
	if err != nil {
		return placed{}, err
	}
	found, err := client.Get(ctx, s.object.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return placed{}, fmt.Errorf("look for %s: %w", describe(s.object), err)
	case o.owner.holds(found), s.object.GetKind() == "CustomResourceDefinition": // whose deletion would take all its objects
		return placed{step: s, client: client, uid: found.GetUID(), created: found.GetCreationTimestamp().Time}, nil
	case !o.owner.knows(found) && !deletes(s.hook, helmrelease.HookBeforeHookCreation):
		return placed{}, fmt.Errorf("%s exists and is no leftover of a test run of this release: delete it, or give the hook the delete policy before-hook-creation", describe(s.object))
	default:
		if err := remove(ctx, client, found.GetName(), found.GetUID()); err != nil {
			return placed{}, err
		}
		if err := waitGone(ctx, client, found.GetName(), found.GetUID()); err != nil {
			return placed{}, err
		}
	}
	if ctx.Err() != nil {
		return placed{}, context.Cause(ctx)
	}
	// What is sent may be carried out, so its answer is waited for: a test that is called off in this moment would run on,
	// known to nobody. The client bounds the request.
	created, err := client.Create(context.WithoutCancel(ctx), o.own(s.object), metav1.CreateOptions{})
	if err != nil {
		return placed{}, fmt.Errorf("create %s: %w", describe(s.object), err)
	}
	return placed{step: s, client: client, uid: created.GetUID(), created: time.Now()}, nil
}

func (o objects) client(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := o.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", describe(object), err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return o.dynamic.Resource(mapping.Resource), nil
	}
	return o.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

// own returns the object with the command's labels; those of a Job go to its pods too.
func (o objects) own(object *unstructured.Unstructured) *unstructured.Unstructured {
	mine := object.DeepCopy()
	mine.SetLabels(merge(mine.GetLabels(), o.owner.labels()))
	if mine.GetKind() == "Job" {
		path := []string{"spec", "template", "metadata", "labels"}
		before, _, _ := unstructured.NestedStringMap(mine.Object, path...)
		// The template of a Job that is a map at all takes labels; one that is not is refused by the API server.
		_ = unstructured.SetNestedStringMap(mine.Object, merge(before, o.owner.labels()), path...)
	}
	return mine
}

func merge(before map[string]string, ours labels.Set) map[string]string {
	merged := maps.Clone(before)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, ours)
	return merged
}

// remove deletes exactly this object: another one that got its name meanwhile stays. Test pods often ignore SIGTERM, and
// nobody waits for their answer: they get one second.
func remove(ctx context.Context, client dynamic.ResourceInterface, name string, uid types.UID) error {
	second, background := int64(1), metav1.DeletePropagationBackground
	err := client.Delete(ctx, name, metav1.DeleteOptions{
		Preconditions:      &metav1.Preconditions{UID: &uid},
		GracePeriodSeconds: &second,
		PropagationPolicy:  &background,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", name, err)
	}
	return nil
}

// waitGone returns once no object with this name has this UID.
func waitGone(ctx context.Context, client dynamic.ResourceInterface, name string, uid types.UID) error {
	for {
		found, err := client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && found.GetUID() != uid {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait until %s is gone: %w", name, err)
		}
		changes, err := client.Watch(ctx, metav1.ListOptions{
			FieldSelector:   fields.OneTermEqualSelector("metadata.name", name).String(),
			ResourceVersion: found.GetResourceVersion(),
		})
		if err != nil {
			return fmt.Errorf("wait until %s is gone: %w", name, err)
		}
		for change := range changes.ResultChan() {
			if change.Type == apiwatch.Deleted || change.Type == apiwatch.Error {
				break
			}
		}
		changes.Stop()
	}
}

// deletes: the hook has this delete policy; one with none has before-hook-creation, and no policy deletes a
// CustomResourceDefinition, as in Helm.
func deletes(hook *helmrelease.Hook, policy helmrelease.HookDeletePolicy) bool {
	if hook.Kind == "CustomResourceDefinition" {
		return false
	}
	if len(hook.DeletePolicies) == 0 {
		return policy == helmrelease.HookBeforeHookCreation
	}
	return slices.Contains(hook.DeletePolicies, policy)
}

func describe(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}
