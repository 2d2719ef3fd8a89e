// Package kube reaches a Kubernetes cluster: with one cache of what kinds of objects there are, and with a gate in front
// of everything that changes something.
package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
)

// Actor is on whose behalf requests are made: it stands in their User-Agent, and so in the API server's audit log.
type Actor struct {
	// Service is executor or tester, Version its build.
	Service string
	Version string
	// Number and Fence are the command's and the lease's.
	Number uint32
	Fence  uint64
	// Gate is checked before every request that changes something; without one, all of these are refused.
	Gate Gate
	// RequestTimeout bounds each request that changes something.
	RequestTimeout time.Duration
}

func (a Actor) userAgent() string {
	return fmt.Sprintf("seatrial-%s/%s command/%d fence/%d", a.Service, a.Version, a.Number, a.Fence)
}

// Client reaches one cluster, on behalf of one actor or, as Connect returns it, of nobody: then it only reads. All
// clients made of one share its connections and its knowledge of the cluster's kinds.
type Client struct {
	// Config makes other clients of the same actor. Its transport holds credentials and gate.
	Config *rest.Config
	// Clientset is the typed client.
	Clientset kubernetes.Interface

	kinds *kinds
}

// LogTo has what Kubernetes' libraries log of themselves go to log, for the whole process: call it before anything else,
// and once.
func LogTo(log *slog.Logger) { klog.SetSlogLogger(log) }

// Connect returns a client for the cluster that the kubeconfig file names, or, where that is empty, for the one that the
// process runs in. It sends no request.
func Connect(kubeconfig string) (*Client, error) {
	config, err := load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("configure the client of Kubernetes: %w", err)
	}
	client, err := connect(config)
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes at %s: %w", config.Host, err)
	}
	return client, nil
}

func load(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = fmt.Errorf("%w: outside of a cluster, set --kubeconfig (KUBECONFIG is not read)", err)
		}
		return config, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		err = fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	return config, err
}

func connect(config *rest.Config) (*Client, error) {
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "" // each actor's own
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	base := &rest.Config{
		Host: host.String(),
		// Certificates, proxy and credentials are in here.
		Transport: transport,
		// The API server's priority and fairness does it.
		QPS:       -1,
		UserAgent: "seatrial",
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(base)
	if err != nil {
		return nil, err
	}
	cache := memory.NewMemCacheClient(discoverer)
	client := &Client{Config: base, kinds: &kinds{
		discovery: cache,
		mapper:    &mapper{restmapper.NewDeferredDiscoveryRESTMapper(cache)},
	}}
	return client.Wrap(Actor{}.wrap)
}

// As returns a client that acts on behalf of a.
func (c *Client) As(a Actor) *Client {
	config := *c.Config
	config.UserAgent = a.userAgent()
	config.WrapTransport = a.wrap
	client, err := c.with(&config)
	if err != nil {
		panic(fmt.Sprintf("a configuration that made a client before makes none now: %v", err))
	}
	return client
}

func (a Actor) wrap(next http.RoundTripper) http.RoundTripper {
	return &gated{next: next, gate: a.Gate, timeout: a.RequestTimeout}
}

// Wrap returns a client of the same actor whose requests go through one more transport, outside of the gate.
func (c *Client) Wrap(wrap func(http.RoundTripper) http.RoundTripper) (*Client, error) {
	config := *c.Config
	config.Wrap(wrap)
	return c.with(&config)
}

func (c *Client) with(config *rest.Config) (*Client, error) {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Client{Config: config, Clientset: clientset, kinds: c.kinds}, nil
}

// RESTClientGetter returns what Helm makes its clients of, for objects in the namespace unless they name another one.
func (c *Client) RESTClientGetter(namespace string) genericclioptions.RESTClientGetter {
	return &getter{kinds: c.kinds, config: c.Config, namespace: namespace}
}

// kinds is what is known of the cluster's kinds of objects, once for the whole process.
type kinds struct {
	discovery discovery.CachedDiscoveryInterface
	mapper    *mapper
}

// mapper asks the API server again for a kind that it does not find: its definition may just have been made.
type mapper struct {
	*restmapper.DeferredDiscoveryRESTMapper
}

// RESTMapping returns how a kind of objects is reached.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.DeferredDiscoveryRESTMapper.RESTMapping(kind, versions...)
	if meta.IsNoMatchError(err) {
		m.Reset()
		return m.DeferredDiscoveryRESTMapper.RESTMapping(kind, versions...)
	}
	return mapping, err
}

// getter implements genericclioptions.RESTClientGetter.
type getter struct {
	*kinds
	config    *rest.Config
	namespace string
}

func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

func (g *getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }

func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(clientcmdapi.Config{}, &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: g.namespace},
	})
}
