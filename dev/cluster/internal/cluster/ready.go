package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

const (
	readyPatience = 2 * time.Minute
	readyBeat     = 50 * time.Millisecond
)

// waitReady waits until a pod would run. It asks from this machine, as everyone will.
func (c *Cluster) waitReady(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1
	config.Timeout = 5 * time.Second
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // no proxy knows the way
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	deadline := time.NewTimer(readyPatience)
	defer deadline.Stop()
	tick := time.NewTicker(readyBeat)
	defer tick.Stop()
	for {
		err := ready(ctx, client)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.down:
			return c.err
		case <-deadline.C:
			program := node.Kubelet
			if c.programs.played {
				program = node.KWOK
			}
			return explain(c.state.path, &node.ProgramError{
				Program: program,
				Message: fmt.Sprintf("the cluster did not get ready within %s: %v", readyPatience, err),
			})
		case <-tick.C:
		}
	}
}

// ready tells what is missing still.
func ready(ctx context.Context, client kubernetes.Interface) error {
	found, err := client.CoreV1().Nodes().Get(ctx, node.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := schedulable(found); err != nil {
		return err
	}
	// Pods need it, and it comes a moment after the namespace.
	_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

func schedulable(found *corev1.Node) error {
	for _, condition := range found.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("the node is not ready: %s", condition.Message)
		}
		if len(found.Spec.Taints) > 0 {
			return fmt.Errorf("the node has the taint %s still", found.Spec.Taints[0].Key)
		}
		return nil
	}
	return errors.New("the node has no condition yet")
}
