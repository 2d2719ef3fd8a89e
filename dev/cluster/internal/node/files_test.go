package node

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/tools/clientcmd"
	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

var testConfig = Config{
	State:     "/somewhere",
	Cgroup:    "seatrial-test",
	Addresses: AddressesAt(netip.MustParseAddr("10.231.0.2")),
	Inside:    netip.MustParsePrefix("10.231.0.2/30"),
	Plugins:   "/usr/lib/cni",
}

// A kubelet takes a misspelt setting for none, with no more than a line in its log.
func TestRender(t *testing.T) {
	t.Parallel()
	files, err := render(testConfig)
	require.NoError(t, err)
	read := func(name string) []byte {
		content := files[filepath.Join(configFolder, name)]
		require.NotEmpty(t, content, name)
		return content
	}

	var kubelet kubeletv1beta1.KubeletConfiguration
	require.NoError(t, yaml.UnmarshalStrict(read("kubelet.yaml"), &kubelet))
	require.Equal(t, "/seatrial-test", kubelet.CgroupRoot)
	require.Equal(t, "unix://"+containerdSocket, kubelet.ContainerRuntimeEndpoint)
	require.Equal(t, home+"/config/ca.crt", kubelet.Authentication.X509.ClientCAFile)

	require.Equal(t, []string{"10.231.0.2"}, kubelet.ClusterDNS)

	var proxy kubeproxyv1alpha1.KubeProxyConfiguration
	require.NoError(t, yaml.UnmarshalStrict(read("kube-proxy.yaml"), &proxy))
	require.Equal(t, podNetwork, proxy.ClusterCIDR)
	require.Contains(t, string(read("Corefile")), "bind 10.231.0.2\n")

	var policy auditv1.Policy
	require.NoError(t, yaml.UnmarshalStrict(read("audit-policy.yaml"), &policy))
	require.Equal(t, auditv1.LevelMetadata, policy.Rules[len(policy.Rules)-1].Level)

	var network map[string]any
	require.NoError(t, json.Unmarshal(read("pods.conflist"), &network))
	require.Contains(t, string(read("pods.conflist")), podNetwork)

	require.Contains(t, string(read("containerd.toml")), `bin_dir = "/usr/lib/cni"`)
	require.Contains(t, string(read("containerd.toml")), `address = "`+containerdSocket+`"`)
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	files, err := credentials(testConfig.Addresses.APIServer)
	require.NoError(t, err)

	config, err := clientcmd.RESTConfigFromKubeConfig(files[kubeconfigFile])
	require.NoError(t, err)
	require.Equal(t, "https://10.231.0.2:6443", config.Host)
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(config.CAData))

	serving := parse(t, files[filepath.Join(configFolder, servingPair+".crt")])
	for _, name := range []string{"10.231.0.2", "127.0.0.1", serviceAddress, "kubernetes.default.svc"} {
		_, err := serving.Verify(x509.VerifyOptions{Roots: authorities, DNSName: name})
		require.NoError(t, err)
	}

	admin := parse(t, config.CertData)
	_, err = admin.Verify(x509.VerifyOptions{Roots: authorities, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
	require.Equal(t, []string{"system:masters"}, admin.Subject.Organization)

	kubelet, err := clientcmd.RESTConfigFromKubeConfig(files[kubeconfigOf(Kubelet)])
	require.NoError(t, err)
	require.Equal(t, "system:node:"+NodeName, parse(t, kubelet.CertData).Subject.CommonName)
}

func parse(t *testing.T, encoded []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(encoded)
	require.NotNil(t, block)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return certificate
}
