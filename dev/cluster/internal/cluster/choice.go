package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/seatrial/seatrial/dev/cluster/internal/host"
	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

// Node is a choice of who runs the pods.
type Node string

// The choices.
const (
	AnyNode    Node = "any"  // a real one where it can run, or else a played one
	RealNode   Node = "real" // containerd and the kubelet
	PlayedNode Node = "kwok" // nobody: KWOK plays that they run
)

// Set chooses by name; String and Type are for flags too.
func (n *Node) Set(name string) error {
	switch chosen := Node(name); chosen {
	case AnyNode, RealNode, PlayedNode:
		*n = chosen
		return nil
	}
	return fmt.Errorf("%q is no node: it is %s, %s or %s", name, AnyNode, RealNode, PlayedNode)
}

func (n *Node) String() string { return string(*n) }

// Type is what the help calls the value.
func (n *Node) Type() string { return "any|real|kwok" }

// ErrNotRoot says that this user cannot give pods what they need.
var ErrNotRoot = errors.New("a real node needs root: use sudo, or set KUBECONFIG to use a cluster of your own")

// The executables that are built beside this one.
const (
	coreDNS = "seatrial-coredns"
	kwok    = "seatrial-kwok"
)

// programs are those of the node that was chosen.
type programs struct {
	host.Programs // of a real node

	played    bool
	companion string // CoreDNS, or KWOK that plays the node
}

// find finds the programs of the node, and tells why it is a played one if nobody asked for that.
func (n Node) find(ctx context.Context, log string, told *progress) (programs, error) {
	if n != PlayedNode {
		found, err := findReal(ctx, log, told)
		if err == nil {
			return found, nil
		}
		if n == RealNode || !errors.Is(err, ErrNotRoot) && !errors.Is(err, host.ErrIncapable) {
			return programs{}, err
		}
		told.note("%v", err)
		told.of(PlayedNode.steps())
	}
	companion, err := host.Beside(kwok)
	return programs{Programs: host.Programs{SearchPath: os.Getenv("PATH")}, played: true, companion: companion}, err
}

func findReal(ctx context.Context, log string, told *progress) (programs, error) {
	if !root() {
		return programs{}, ErrNotRoot
	}
	companion, err := host.Beside(coreDNS)
	if err != nil {
		return programs{}, err
	}
	found, err := host.Find(ctx, log, func(packages []string) {
		told.note("installing %s with apt-get", strings.Join(packages, ", "))
	})
	return programs{Programs: found, companion: companion}, err
}

// steps is how many there are, the first process's included.
func (n Node) steps() int {
	if n == PlayedNode {
		return 3 + node.PlayedSteps
	}
	return 4 + node.Steps
}
