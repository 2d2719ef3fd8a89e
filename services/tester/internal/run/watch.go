package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watcher follows the Pods and Jobs of one command: what it saw last of each, also after it was deleted.
type watcher struct {
	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
	jobs map[types.UID]*batchv1.Job
	gone map[types.UID]bool
	// changed is closed, and replaced, at each change.
	changed chan struct{}
}

func newWatcher() *watcher {
	return &watcher{
		pods:    map[types.UID]*corev1.Pod{},
		jobs:    map[types.UID]*batchv1.Job{},
		gone:    map[types.UID]bool{},
		changed: make(chan struct{}),
	}
}

// watch starts before anything is created, so that no end is missed; it stops with ctx. The selector is that of the
// command's objects.
func watch(ctx context.Context, client kubernetes.Interface, namespaces []string, selector string) (*watcher, error) {
	w := newWatcher()
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    w.see,
		UpdateFunc: func(_, object any) { w.see(object) },
		DeleteFunc: w.miss,
	}
	for _, namespace := range namespaces {
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
		var seen []cache.InformerSynced
		for _, informer := range []cache.SharedIndexInformer{
			factory.Core().V1().Pods().Informer(), factory.Batch().V1().Jobs().Informer(),
		} {
			registration, err := informer.AddEventHandler(handler)
			if err != nil {
				return nil, fmt.Errorf("watch namespace %s: %w", namespace, err)
			}
			seen = append(seen, registration.HasSynced)
		}
		factory.Start(ctx.Done())
		// What is there already has been seen when this returns: the next holder of a command judges by it.
		if !cache.WaitForCacheSync(ctx.Done(), seen...) {
			return nil, fmt.Errorf("watch namespace %s: %w", namespace, context.Cause(ctx))
		}
	}
	return w, nil
}

func (w *watcher) see(object any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Pod:
		// An end stays as it was seen first: what comes after it is the deletion.
		if before := w.pods[o.UID]; before == nil || !ended(before) {
			w.pods[o.UID] = o
		}
	case *batchv1.Job:
		w.jobs[o.UID] = o
	}
	w.wake()
}

func (w *watcher) miss(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	w.see(object)
	w.mu.Lock()
	defer w.mu.Unlock()
	if o, ok := object.(metav1.Object); ok {
		w.gone[o.GetUID()] = true
	}
	w.wake()
}

// wake needs w.mu.
func (w *watcher) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// sight returns what is known of the Pod or Job with this UID, and a channel that is closed when more is known.
func (w *watcher) sight(uid types.UID) (sighting, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := sighting{pod: w.pods[uid], job: w.jobs[uid], gone: w.gone[uid]}
	for _, pod := range w.pods {
		if owner := metav1.GetControllerOf(pod); pod.UID == uid || owner != nil && owner.UID == uid {
			s.pods = append(s.pods, pod)
		}
	}
	slices.SortFunc(s.pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return s, w.changed
}
