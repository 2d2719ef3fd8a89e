package node

import "fmt"

// The names under which the executable plays the components of Kubernetes.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	KubeProxy         = "kube-proxy"
)

// The programs that are executables of their own: CoreDNS and KWOK are built beside this one, containerd is the
// machine's.
const (
	CoreDNS    = "coredns"
	KWOK       = "kwok"
	containerd = "containerd"
)

// Where programs of the real node listen, inside.
const (
	containerdSocket = "/run/containerd/containerd.sock"
	coreDNSReadyURL  = "http://127.0.0.1:8181/ready"
)

// The flags of the components. What they serve on the loopback address is reached from inside only.

func etcdFlags(at Addresses) []string {
	return []string{
		"--name=seatrial",
		"--data-dir=" + inside(etcdFolder),
		"--listen-client-urls=http://" + at.Etcd.String(),
		"--advertise-client-urls=http://" + at.Etcd.String(),
		"--listen-peer-urls=http://" + at.EtcdPeers.String(),
		"--initial-advertise-peer-urls=http://" + at.EtcdPeers.String(),
		"--initial-cluster=seatrial=http://" + at.EtcdPeers.String(),
		"--unsafe-no-fsync", // nothing outlives the cluster
		"--log-level=warn",
	}
}

func apiServerFlags(config Config) []string {
	at := config.Addresses
	bind := "0.0.0.0"
	if !config.Inside.IsValid() {
		bind = at.APIServer.Addr().String() // the machine's network is not for others to use
	}
	return []string{
		"--advertise-address=" + at.APIServer.Addr().String(),
		"--bind-address=" + bind,
		fmt.Sprintf("--secure-port=%d", at.APIServer.Port()),
		"--etcd-servers=http://" + at.Etcd.String(),
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
		"--secure-port=0", // nobody asks it anything
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
		"--secure-port=0", // nobody asks it anything
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

func kubeProxyFlags() []string {
	return []string{"--config=" + inConfig("kube-proxy.yaml")}
}

func coreDNSFlags() []string {
	return []string{"-conf", inConfig("Corefile")}
}

func kwokFlags(config Config) []string {
	at := config.Addresses.KWOK
	return []string{
		"--config=" + inConfig("kwok.yaml"),
		"--kubeconfig=" + inside(kubeconfigOf(KWOK)),
		"--manage-all-nodes",
		"--node-ip=" + at.Addr().String(),
		fmt.Sprintf("--node-port=%d", at.Port()),
		"--server-address=" + at.String(),
		"--tls-cert-file=" + inConfig(servingPair+".crt"),
		"--tls-private-key-file=" + inConfig(servingPair+".key"),
		"--cidr=" + podNetwork,
	}
}
