package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seatrial/seatrial/dev/cluster/internal/cluster"
	"github.com/seatrial/seatrial/dev/cluster/internal/image"
)

// exitError ends the program without a word: the command that was run has said what there is to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// What the environment of a command says.
const (
	kubeconfigVariable = "KUBECONFIG"
	auditLogVariable   = "SEATRIAL_AUDIT_LOG"
)

// nodeVariable stands for the flag --node.
const nodeVariable = "SEATRIAL_CLUSTER_NODE"

func rootCommand() *cobra.Command {
	options := cluster.Options{Progress: os.Stderr, Node: cluster.AnyNode}
	root := &cobra.Command{
		Use:   "seatrial-cluster",
		Short: "A real Kubernetes on this machine, gone without a trace when it ends",
		Long: `Seatrial-cluster runs a real Kubernetes on this machine: etcd, the API server, the controllers, the scheduler,
a node with containerd, kube-proxy and CoreDNS. It needs Linux and root. What it needs besides, it installs by itself
on Debian and Ubuntu.

Everything runs in namespaces of its own: several clusters run beside each other, and whichever way
seatrial-cluster ends, no process, mount, interface or rule is left.

There is no registry to pull from. The images that pods can use are made here, of this machine's busybox and Debian's
packages: busybox, alpine (without apk), curlimages/curl, nginx and registry.k8s.io/pause:3.10. These are their
tags:
` + imageTags() + `

Since nothing can be pulled, a pod that asks for a tag "latest" has to say imagePullPolicy: IfNotPresent. Pods reach
Services by name, and nothing outside of the cluster.

Where the real node cannot run, without root or without containerd, KWOK plays one (--node=kwok asks for it, for tests
of scale): the control plane is the same, but nothing of a pod is run. It gets ready; if it may end (restartPolicy
Never or OnFailure) it succeeds. Its annotation seatrial.dev/play says otherwise: "fail" makes it fail, or never get
ready, and "run" keeps it from ending. Every Node that is made is played, as many as a test wants.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.PersistentFlags().StringVar(&options.Name, "name", "",
		"name of the cluster; two of the same name cannot run at once (default: a unique one)")
	root.PersistentFlags().StringVar(&options.Dir, "dir", "",
		"folder of the cluster's state and logs; it is kept at the end, and used anew by the next cluster\n"+
			"(default: a temporary one, removed at the end)")
	root.PersistentFlags().Var(&options.Node, "node",
		"who runs the pods: a real node, KWOK that plays one, or any, which is real where it can be\n"+
			"(environment: SEATRIAL_CLUSTER_NODE)")
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if name := os.Getenv(nodeVariable); name != "" && !cmd.Flags().Changed("node") {
			if err := options.Node.Set(name); err != nil {
				return fmt.Errorf("%s: %w", nodeVariable, err)
			}
		}
		return nil
	}
	root.AddCommand(runCommand(&options), upCommand(&options))
	return root
}

func runCommand(options *cluster.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command with a cluster that lives as long as it does",
		Long: `Run starts a cluster, runs the command when pods can run, and ends the cluster with the command. Its exit code is
the command's. The command gets SIGINT and SIGTERM passed on, and these variables:

  KUBECONFIG           the administrator's kubeconfig
  SEATRIAL_AUDIT_LOG   the API server's audit log: lines of JSON, for every request that changes something

If KUBECONFIG is set already, no cluster is started, and the command runs with it as it is.`,
		Example: "  seatrial-cluster run -- go test ./...",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if path := os.Getenv(kubeconfigVariable); path != "" {
				fmt.Fprintln(cmd.ErrOrStderr(), "using KUBECONFIG="+path)
				return become(args)
			}
			return runInCluster(cmd.Context(), *options, args)
		},
	}
}

func upCommand(options *cluster.Options) *cobra.Command {
	var kubeconfig string
	command := &cobra.Command{
		Use:   "up [flags]",
		Short: "Run a cluster until SIGINT or SIGTERM",
		Long: `Up starts a cluster and runs it in the foreground until SIGINT (Ctrl-C) or SIGTERM. When pods can run it prints
one line on the standard output: ready: kubeconfig=PATH`,
		Example: "  seatrial-cluster up --kubeconfig /tmp/kubeconfig",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runUp(cmd.Context(), *options, kubeconfig)
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "",
		"where to write the administrator's kubeconfig; removed at the end (default: in the folder of the state)")
	return command
}

// imageTags lists the images that pods can use, a line each.
func imageTags() string {
	var lines strings.Builder
	for _, tags := range image.Tags() {
		lines.WriteString("\n  " + strings.Join(tags, " "))
	}
	return lines.String()
}

// become replaces this process by the command.
func become(args []string) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", path, syscall.Exec(path, args, os.Environ()))
}

func runUp(ctx context.Context, options cluster.Options, kubeconfig string) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	path := c.Kubeconfig()
	if kubeconfig != "" {
		remove, err := publish(path, kubeconfig)
		if err != nil {
			return err
		}
		defer remove()
		path = kubeconfig
	}
	fmt.Println("ready: kubeconfig=" + path)
	select {
	case <-ctx.Done():
		return nil
	case <-c.Down():
		return c.Err()
	}
}
