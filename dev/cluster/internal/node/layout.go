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

// Port is the API server's, on the inside address of the link.
const Port = 6443

// What is in the folder of a cluster's state.
const (
	kubeconfigFile = "kubeconfig"
	auditLogFile   = "audit.log"
	imagesFile     = "images.tar"
	configFolder   = "config"
	logsFolder     = "logs"
	etcdFolder     = "etcd"
	libFolder      = "lib"      // /var/lib inside
	podLogsFolder  = "pod-logs" // /var/log inside
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
	podGateway     = "10.244.0.1" // the first one, the node's
	serviceNetwork = "10.96.0.0/16"
	serviceAddress = "10.96.0.1" // the first one, the API server's
)

// Config is what the first process has to know; it comes on its standard input.
type Config struct {
	State      string       // the folder of the state, outside
	Cgroup     string       // the cgroup below which pods run
	Inside     netip.Prefix // the cluster's end of the link
	Containerd string
	Ctr        string
	Plugins    string // the folder of the CNI plugins
}

// Kubeconfig is the administrator's, in the folder of the state.
func Kubeconfig(state string) string { return filepath.Join(state, kubeconfigFile) }

// AuditLog is the API server's, in the folder of the state.
func AuditLog(state string) string { return filepath.Join(state, auditLogFile) }

// Images is where the archive of the images belongs before the first process starts.
func Images(state string) string { return filepath.Join(state, imagesFile) }

// Log is where a program says what it does, in the folder of the state.
func Log(state, program string) string { return filepath.Join(state, logsFolder, program+".log") }

// Reset makes the folders in that of the state, and removes what an earlier cluster wrote there.
func Reset(state string) error {
	for _, leftover := range []string{etcdFolder, libFolder, podLogsFolder, logsFolder, auditLogFile} {
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
