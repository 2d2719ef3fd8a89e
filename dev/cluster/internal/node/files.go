package node

import (
	"bytes"
	"embed"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/seatrial/seatrial/dev/cluster/internal/pki"
)

//go:embed files/*
var templates embed.FS

// played says how KWOK plays nodes and pods; it has templates of its own, for KWOK.
//
//go:embed kwok.yaml
var played []byte

// playedLog is what `kubectl logs` shows of every pod that is played: a line as containerd would write it.
func playedLog() []byte {
	return []byte(time.Now().UTC().Format(time.RFC3339Nano) + " stdout F KWOK plays the node: nothing of this pod was run\n")
}

// Prepare writes all files that the cluster reads into the folder of its state: keys, certificates, and what
// configures its programs.
func Prepare(config Config) error {
	files, err := render(config)
	if err != nil {
		return err
	}
	certificates, err := credentials(config.Addresses.APIServer)
	if err != nil {
		return err
	}
	for _, set := range []map[string][]byte{files, certificates} {
		for name, content := range set {
			if err := os.WriteFile(filepath.Join(config.State, name), content, 0o600); err != nil {
				return fmt.Errorf("write the files of the cluster: %w", err)
			}
		}
	}
	return nil
}

// render fills in the templates.
func render(config Config) (map[string][]byte, error) {
	entries, err := templates.ReadDir("files")
	if err != nil {
		return nil, fmt.Errorf("list the templates: %w", err)
	}
	parsed, err := template.New("").Option("missingkey=error").ParseFS(templates, "files/*")
	if err != nil {
		return nil, fmt.Errorf("parse the templates: %w", err)
	}
	values := struct {
		Config

		Folder, NodeName, PodNetwork, VolumePlugins string
	}{config, inConfig(), NodeName, podNetwork, volumePlugins}
	files := map[string][]byte{}
	for _, entry := range entries {
		var out bytes.Buffer
		if err := parsed.ExecuteTemplate(&out, entry.Name(), values); err != nil {
			return nil, fmt.Errorf("render %s: %w", entry.Name(), err)
		}
		files[filepath.Join(configFolder, entry.Name())] = out.Bytes()
	}
	files[filepath.Join(configFolder, "kwok.yaml")] = played
	files[filepath.Join(configFolder, "played.log")] = playedLog()
	return files, nil
}

// The names of keys and certificates; a pair has two files, with the extensions .crt and .key.
const (
	authorityFile     = "ca.crt"
	tokenKeyFile      = "service-account.key"
	servingPair       = "apiserver"
	kubeletClientPair = "apiserver-kubelet-client"
)

// credentials makes every key, certificate and kubeconfig.
func credentials(at netip.AddrPort) (map[string][]byte, error) {
	authority, err := pki.NewAuthority()
	if err != nil {
		return nil, err
	}
	tokenKey, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	serving, err := authority.Server(APIServer,
		[]netip.Addr{at.Addr(), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(serviceAddress)},
		[]string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		})
	if err != nil {
		return nil, err
	}
	kubeletClient, err := authority.Client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	add := func(name string, content []byte) { files[filepath.Join(configFolder, name)] = content }
	add(authorityFile, authority.Certificate)
	add(tokenKeyFile, tokenKey)
	add(servingPair+".crt", serving.Certificate)
	add(servingPair+".key", serving.Key)
	add(kubeletClientPair+".crt", kubeletClient.Certificate)
	add(kubeletClientPair+".key", kubeletClient.Key)

	server := "https://" + at.String()
	for _, identity := range []struct {
		file, user string
		groups     []string
	}{
		{kubeconfigFile, "seatrial-admin", []string{"system:masters"}},
		{kubeconfigOf(ControllerManager), "system:kube-controller-manager", nil},
		{kubeconfigOf(Scheduler), "system:kube-scheduler", nil},
		{kubeconfigOf(Kubelet), "system:node:" + NodeName, []string{"system:nodes"}},
		{kubeconfigOf(KubeProxy), "system:kube-proxy", nil},
		// Kubernetes has no roles for these two.
		{kubeconfigOf(CoreDNS), "seatrial-coredns", []string{"system:masters"}},
		{kubeconfigOf(KWOK), "seatrial-kwok", []string{"system:masters"}},
	} {
		pair, err := authority.Client(identity.user, identity.groups...)
		if err != nil {
			return nil, err
		}
		files[identity.file], err = kubeconfig(server, authority.Certificate, identity.user, pair)
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// kubeconfigOf is a component's own kubeconfig.
func kubeconfigOf(program string) string { return filepath.Join(configFolder, program+".kubeconfig") }

func kubeconfig(server string, authority []byte, user string, pair pki.Pair) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[Context] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key,
	}
	config.Contexts[Context] = &clientcmdapi.Context{Cluster: Context, AuthInfo: user}
	config.CurrentContext = Context
	encoded, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode the kubeconfig of %s: %w", user, err)
	}
	return encoded, nil
}
