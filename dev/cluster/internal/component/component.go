// Package component holds the programs of a Kubernetes cluster: etcd, the control plane, the kubelet and kube-proxy.
//
// It is the only package that links Kubernetes. One executable plays all of them, as its own name says (argv[0]),
// so that nothing has to be downloaded and every process shares the same pages in memory.
package component

import (
	"context"
	"path/filepath"
	_ "time/tzdata" // CronJobs name time zones, and this machine may have none

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of their clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of their version
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/seatrial/seatrial/dev/cluster/internal/node"
)

// Main plays the component that args[0] names and returns its exit code; ok is false if there is none of that name.
func Main(args []string) (code int, ok bool) {
	var command *cobra.Command
	switch filepath.Base(args[0]) {
	case node.Etcd:
		etcdmain.Main(args)
		return 0, true
	case node.APIServer:
		command = apiserver.NewAPIServerCommand()
	case node.ControllerManager:
		command = controllermanager.NewControllerManagerCommand()
	case node.Scheduler:
		command = scheduler.NewSchedulerCommand()
	case node.Kubelet:
		command = kubelet.NewKubeletCommand(context.Background())
	case node.KubeProxy:
		command = kubeproxy.NewProxyCommand()
	default:
		return 0, false
	}
	command.SetArgs(args[1:])
	return cli.Run(command), true
}
