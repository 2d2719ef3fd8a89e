package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

// publish writes the kubeconfig to where someone wants it, and returns the function that removes it. A file that an
// earlier cluster left there is replaced, a person's own is not.
func publish(kubeconfig, path string) (remove func(), err error) {
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	present, err := clientcmd.LoadFromFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%s is in the way: choose another --kubeconfig: %w", path, err)
	case len(present.Contexts) != 1 || present.Contexts[node.Context] == nil:
		return nil, fmt.Errorf("%s has contexts of other clusters: choose another --kubeconfig", path)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	return func() { _ = os.Remove(path) }, nil // someone may have removed it
}
