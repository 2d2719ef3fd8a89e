package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/seatrial/seatrial/dev/cluster/internal/cluster"
)

// exitError ends the program without a word: the command that was run has said what there is to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// What the environment of a command says.
const (
	kubeconfigVariable = "KUBECONFIG"
	auditLogVariable   = "SEATRIAL_AUDIT_LOG"
)

func rootCommand() *cobra.Command {
	options := cluster.Options{Progress: os.Stderr}
	root := &cobra.Command{
		Use:   "seatrial-cluster",
		Short: "A real Kubernetes on this machine, gone without a trace when it ends",
		Long: `Seatrial-cluster runs a real Kubernetes on this machine: etcd, the API server, the controllers, the scheduler and
a node with containerd. It needs Linux and root. What it needs besides, it installs by itself on Debian and Ubuntu.

Everything runs in namespaces of its own: several clusters run beside each other, and whichever way
seatrial-cluster ends, no process, mount, interface or rule is left.

There is no registry to pull from. Pods can use the images busybox:1.36 and registry.k8s.io/pause:3.10, which are
made here. There are no addresses of Services and no DNS yet: pods reach each other by their own addresses.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.PersistentFlags().StringVar(&options.Name, "name", "",
		"name of the cluster; two of the same name cannot run at once (default: a unique one)")
	root.PersistentFlags().StringVar(&options.Dir, "dir", "",
		"folder of the cluster's state and logs; it is kept at the end, and used anew by the next cluster\n"+
			"(default: a temporary one, removed at the end)")
	root.CompletionOptions.DisableDefaultCmd = true
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
