package node

import "fmt"

// The names under which the executable plays the components of Kubernetes.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
)

// containerd is the program that comes from the machine.
const containerd = "containerd"

// Where programs listen, inside.
const (
	etcdURL          = "http://127.0.0.1:2379"
	containerdSocket = "/run/containerd/containerd.sock"
)

// The flags of the components. What they serve on the loopback address is reached from inside only.

func etcdFlags() []string {
	return []string{
		"--name=seatrial",
		"--data-dir=" + inside(etcdFolder),
		"--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=http://127.0.0.1:2380",
		"--unsafe-no-fsync", // nothing outlives the cluster
		"--log-level=warn",
	}
}

func apiServerFlags(config Config) []string {
	return []string{
		"--advertise-address=" + config.Inside.Addr().String(),
		"--bind-address=0.0.0.0",
		fmt.Sprintf("--secure-port=%d", Port),
		"--etcd-servers=" + etcdURL,
		"--client-ca-file=" + inConfig(authorityFile),
		"--tls-cert-file=" + inConfig(servingPair+".crt"),
		"--tls-private-key-file=" + inConfig(servingPair+".key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-client-certificate=" + inConfig(kubeletClientPair+".crt"),
		"--kubelet-client-key=" + inConfig(kubeletClientPair+".key"),
		"--kubelet-preferred-address-types=InternalIP", // the node's name does not resolve
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + inConfig(tokenKeyFile),
		"--service-account-signing-key-file=" + inConfig(tokenKeyFile),
		"--service-cluster-ip-range=" + serviceNetwork,
		"--audit-policy-file=" + inConfig("audit-policy.yaml"),
		"--audit-log-path=" + inside(auditLogFile),
		"--audit-log-maxsize=10240", // in MB: a reader must never lose a line to a rotation
	}
}

func controllerManagerFlags() []string {
	return []string{
		"--kubeconfig=" + inside(kubeconfigOf(ControllerManager)),
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
		"--use-service-account-credentials",
		"--service-account-private-key-file=" + inConfig(tokenKeyFile),
		"--root-ca-file=" + inConfig(authorityFile),
		"--flex-volume-plugin-dir=" + volumePlugins,
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}
}

func schedulerFlags() []string {
	return []string{
		"--kubeconfig=" + inside(kubeconfigOf(Scheduler)),
		"--bind-address=127.0.0.1",
		"--leader-elect=false",
	}
}

func kubeletFlags(config Config) []string {
	return []string{
		"--config=" + inConfig("kubelet.yaml"),
		"--kubeconfig=" + inside(kubeconfigOf(Kubelet)),
		"--hostname-override=" + NodeName,
		"--node-ip=" + config.Inside.Addr().String(),
	}
}
