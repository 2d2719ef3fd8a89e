// Package cluster starts a Kubernetes cluster in namespaces of its own and ends it without a trace.
//
// What this machine sees of it is one process, one interface and one folder. All else is inside the namespaces and
// goes with their first process, which the kernel kills when this process dies.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"

	"github.com/seatrial/seatrial/dev/cluster/internal/cgroup"
	"github.com/seatrial/seatrial/dev/cluster/internal/claim"
	"github.com/seatrial/seatrial/dev/cluster/internal/link"
	"github.com/seatrial/seatrial/dev/cluster/internal/node"
	"github.com/seatrial/seatrial/dev/cluster/internal/process"
)

// Options choose what a person may choose.
type Options struct {
	Name     string    // of the cluster; empty: a unique one
	Dir      string    // of its state; empty: a temporary one
	Node     Node      // who runs the pods
	Progress io.Writer // gets a line a step
}

// Cluster is a running cluster.
type Cluster struct {
	state     state
	claim     *claim.Claim
	record    claim.Record
	pair      link.Link
	programs  programs
	addresses node.Addresses

	// The first process in the namespaces, which ends when its input does.
	kill  func() error
	input io.Closer
	ended <-chan struct{}

	up   chan struct{} // closed when everything was started
	down chan struct{} // closed when the cluster has failed
	err  error         // why, once down is closed
}

// Start starts a cluster and returns when pods can run in it. Stop ends it. If Start fails, nothing is left but the
// folder with the logs, which the next start removes.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	name, err := nameOr(options.Name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{up: make(chan struct{}), down: make(chan struct{})}
	told := newProgress(options.Progress, options.Node.steps())
	if err := c.start(ctx, name, options, told); err != nil {
		interrupted := ctx.Err() != nil
		if interrupted {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(err, c.end(interrupted))
	}
	if c.programs.played {
		told.note("KWOK plays the node: nothing of a pod is run, and whether it succeeds says nothing about its image")
	} else {
		told.note("the node is real: pods are run, by containerd")
	}
	told.note("ready after %s: KUBECONFIG=%s", told.elapsed(), c.Kubeconfig())
	return c, nil
}

func (c *Cluster) start(ctx context.Context, name string, options Options, told *progress) error {
	told.step("looking at what this machine has")
	if err := c.settle(ctx, name, options, told); err != nil {
		return err
	}
	if !c.programs.played {
		told.step("packing the images")
		if err := packImages(ctx, c.programs.Busybox, c.state.path, told); err != nil {
			return err
		}
		if err := cgroup.Make(c.record.Cgroup); err != nil {
			return err
		}
	}
	told.step("making the namespaces")
	if err := c.enter(ctx, told); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.down:
		return c.err
	case <-c.up:
	}
	told.step("waiting for the node and the service account")
	return c.waitReady(ctx)
}

// settle takes what only one cluster can have, after it removed what dead ones left, and sees to the programs.
func (c *Cluster) settle(ctx context.Context, name string, options Options, told *progress) error {
	registry := claim.Mine()
	unlock, err := registry.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	swept, err := registry.Sweep()
	if err != nil {
		// Its next start tries again; this cluster has names of its own.
		told.note("%v", err)
	}
	if swept > 0 {
		told.note("removed what %d killed or failed clusters left", swept)
	}
	if c.state, err = openState(options.Dir, name); err != nil {
		return err
	}
	c.record = claim.Record{Cgroup: "seatrial-" + name}
	if c.state.temporary {
		c.record.Temporary = c.state.path
	}
	if c.claim, err = registry.Take(name, c.record); err != nil {
		return err
	}
	c.programs, err = options.Node.find(ctx, node.Log(c.state.path, "apt-get"), told)
	return err
}

// enter starts the first process in the namespaces, and links them to this machine.
func (c *Cluster) enter(ctx context.Context, told *progress) error {
	log, err := os.Create(node.Log(c.state.path, node.Program))
	if err != nil {
		return fmt.Errorf("make the log of the first process: %w", err)
	}
	defer log.Close()
	events, output, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the pipe of events: %w", err)
	}
	defer output.Close()

	// Not its path: a running cluster must not mind that the file is built anew.
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{node.Program}}
	cmd.Env = []string{"PATH=" + c.programs.SearchPath} // what else is set here is not meant for etcd or the kubelet
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = output, log
	companion, err := os.Open(c.programs.companion)
	if err != nil {
		return fmt.Errorf("open CoreDNS or KWOK: %w", err)
	}
	defer companion.Close()
	cmd.ExtraFiles = []*os.File{companion}
	cmd.SysProcAttr = namespaces()
	cmd.SysProcAttr.Setsid = true // a terminal's Ctrl-C is for this process to handle
	input, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("make the pipe of the configuration: %w", err)
	}
	if c.ended, err = process.Start(cmd); err != nil {
		return fmt.Errorf("make the namespaces: %w%s", err, advice())
	}
	c.input, c.kill = input, cmd.Process.Kill
	go c.listen(events, told)

	if err := c.connect(ctx, cmd.Process.Pid); err != nil {
		return err
	}
	config := node.Config{
		State:      c.state.path,
		Played:     c.programs.played,
		Addresses:  c.addresses,
		Inside:     c.pair.Inside,
		Cgroup:     c.record.Cgroup,
		Containerd: c.programs.Containerd,
		Ctr:        c.programs.Ctr,
		Plugins:    c.programs.Plugins,
	}
	if err := node.Prepare(config); err != nil {
		return err
	}
	if err := json.NewEncoder(input).Encode(config); err != nil {
		return fmt.Errorf("configure the first process: %w", err)
	}
	return nil
}

// connect chooses the addresses and makes the link, if this user can.
func (c *Cluster) connect(ctx context.Context, pid int) (err error) {
	if !root() {
		c.addresses, err = freeAddresses()
		return err
	}
	unlock, err := claim.Machine.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if c.pair, err = link.Create(pid); err != nil {
		return err
	}
	c.addresses = node.AddressesAt(c.pair.Inside.Addr())
	c.record.Interface = c.pair.Interface
	return c.claim.Update(c.record)
}

// listen hears what the first process tells, until it ends.
func (c *Cluster) listen(events io.ReadCloser, told *progress) {
	defer events.Close()
	defer close(c.down)
	decoder := json.NewDecoder(events)
	for {
		var event node.Event
		if err := decoder.Decode(&event); err != nil {
			event.Failure = &node.ProgramError{Program: node.Program, Message: "the first process of the cluster ended"}
		}
		switch {
		case event.Failure != nil:
			c.err = explain(c.state.path, event.Failure)
			return
		case event.Up:
			close(c.up)
		default:
			told.step(event.Step)
		}
	}
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return node.Kubeconfig(c.state.path) }

// Address is the API server's.
func (c *Cluster) Address() netip.Addr { return c.addresses.APIServer.Addr() }

// AuditLog is the path of the API server's audit log.
func (c *Cluster) AuditLog() string { return node.AuditLog(c.state.path) }

// Down is closed when the cluster has failed; Err then tells why.
func (c *Cluster) Down() <-chan struct{} { return c.down }

// Err tells why the cluster is down.
func (c *Cluster) Err() error { return c.err }

// Stop ends the cluster. It keeps the folder of the state if someone chose it, or if the cluster had failed.
func (c *Cluster) Stop() error {
	select {
	case <-c.down:
		return c.end(false)
	default:
		return c.end(true)
	}
}

// end takes down what was made, as far as it was made. Nothing inside gets a chance to say goodbye: nothing of it
// is needed any more.
func (c *Cluster) end(clean bool) error {
	var failed []error
	if c.ended != nil {
		if err := c.kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			failed = append(failed, fmt.Errorf("kill the first process: %w", err))
		}
		<-c.ended
		c.input.Close()
	}
	if c.record.Interface != "" {
		failed = append(failed, link.Remove(c.record.Interface))
	}
	if c.claim == nil {
		if c.state.path != "" {
			failed = append(failed, c.state.close())
		}
		return errors.Join(failed...)
	}
	failed = append(failed, cgroup.Remove(c.record.Cgroup))
	if !clean {
		return errors.Join(append(failed, c.claim.Abandon())...)
	}
	return errors.Join(append(failed, c.state.close(), c.claim.Release())...)
}
