// Package node runs a whole cluster inside namespaces of its own: as their first process, which starts etcd, the
// control plane, containerd and the kubelet, and takes all of them with it when it dies.
package node

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// Program is the name under which the executable plays the first process in the namespaces.
const Program = "seatrial-node"

// NodeName is the name of the one node.
const NodeName = "seatrial"

// Context is the name of the one context in a kubeconfig.
const Context = "seatrial"

// What is in the folder of a cluster's state.
const (
	kubeconfigFile = "kubeconfig"
	auditLogFile   = "audit.log"
	imagesFile     = "images.tar"
	debianFile     = "images-debian.tar"
	configFolder   = "config"
	logsFolder     = "logs"
	etcdFolder     = "etcd"
	libFolder      = "lib"      // /var/lib inside
	podLogsFolder  = "pod-logs" // /var/log inside
)

// The companion is the executable that is built beside this one, CoreDNS or KWOK. The first process inherits it as a
// file: its path may be hidden inside.
const (
	companionFile = 3
	companionPath = "/proc/self/fd/3"
)

// home is the folder of the state, as the processes inside see it: their paths are the same in every cluster, and
// short enough for sockets.
const home = "/run/seatrial"

// volumePlugins is a folder that stays empty; the one that Kubernetes would make itself is in this machine's /usr.
const volumePlugins = "/var/lib/kubelet/volume-plugins"

// inside is the path that a file of the state has for the processes inside, inConfig that of a file in configFolder.
func inside(path ...string) string   { return filepath.Join(append([]string{home}, path...)...) }
func inConfig(path ...string) string { return inside(append([]string{configFolder}, path...)...) }

// The networks inside. No cluster's pods see another's, so that all can have the same.
const (
	podNetwork     = "10.244.0.0/16"
	serviceNetwork = "10.96.0.0/16"
	serviceAddress = "10.96.0.1" // the first one, the API server's
)

// Config is what the first process has to know; it comes on its standard input.
type Config struct {
	State     string // the folder of the state, outside
	Played    bool   // KWOK plays the node; what follows Addresses is then empty
	Addresses Addresses
	Inside    netip.Prefix // the cluster's end of the link; none: the network is this machine's own

	Cgroup     string // the cgroup below which pods run
	Containerd string
	Ctr        string
	Plugins    string // the folder of the CNI plugins
}

// Addresses are where the programs listen.
type Addresses struct {
	APIServer netip.AddrPort // for everyone

	// For the cluster's own programs.
	Etcd, EtcdPeers, KWOK netip.AddrPort
}

// AddressesAt are the usual ones, in a network of the cluster's own.
func AddressesAt(inside netip.Addr) Addresses {
	loopback := netip.MustParseAddr("127.0.0.1")
	return Addresses{
		APIServer: netip.AddrPortFrom(inside, 6443),
		Etcd:      netip.AddrPortFrom(loopback, 2379),
		EtcdPeers: netip.AddrPortFrom(loopback, 2380),
		KWOK:      netip.AddrPortFrom(inside, 10247),
	}
}

// Kubeconfig is the administrator's, in the folder of the state.
func Kubeconfig(state string) string { return filepath.Join(state, kubeconfigFile) }

// AuditLog is the API server's, in the folder of the state.
func AuditLog(state string) string { return filepath.Join(state, auditLogFile) }

// Images is where the archive of the images belongs before the first process starts.
func Images(state string) string { return filepath.Join(state, imagesFile) }

// DebianImages is where those belong that are made of Debian's packages, if there are any.
func DebianImages(state string) string { return filepath.Join(state, debianFile) }

// Log is where a program says what it does, in the folder of the state.
func Log(state, program string) string { return filepath.Join(state, logsFolder, program+".log") }

// Reset makes the folders in that of the state, and removes what an earlier cluster wrote there.
func Reset(state string) error {
	for _, leftover := range []string{etcdFolder, libFolder, podLogsFolder, logsFolder, auditLogFile, debianFile} {
		if err := os.RemoveAll(filepath.Join(state, leftover)); err != nil {
			return fmt.Errorf("remove what an earlier cluster left: %w", err)
		}
	}
	for _, folder := range []string{configFolder, etcdFolder, libFolder, podLogsFolder, logsFolder} {
		if err := os.MkdirAll(filepath.Join(state, folder), 0o700); err != nil {
			return fmt.Errorf("make the folders of the state: %w", err)
		}
	}
	return nil
}
