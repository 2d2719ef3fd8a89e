package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/seatrial/seatrial/dev/cluster/internal/link"
)

// Main is the first process in the namespaces. It reads a Config from in, writes Events to out, and runs until in
// ends, which says that the process outside is dead. It returns the exit code.
func Main(in io.Reader, out io.Writer) int {
	told := &events{out: out}
	err := run(in, told)
	var failure *ProgramError
	if !errors.As(err, &failure) {
		failure = &ProgramError{Message: err.Error()}
	}
	told.send(Event{Failure: failure})
	return 1
}

// run returns why the cluster ended.
func run(in io.Reader, told *events) error {
	decoder := json.NewDecoder(in)
	var config Config
	if err := decoder.Decode(&config); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	unix.CloseOnExec(companionFile)
	if err := arrangeMounts(config); err != nil {
		return err
	}
	if config.Inside.IsValid() {
		if err := link.Join(config.Inside, netip.MustParsePrefix(serviceNetwork)); err != nil {
			return err
		}
	}
	programs := &supervisor{died: make(chan *ProgramError, 1)}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		_, _ = decoder.Token() // nothing comes but the end
		cancel(errors.New("the process outside ended"))
	}()
	go func() { cancel(<-programs.died) }()

	if err := start(ctx, config, programs, told); err != nil && ctx.Err() == nil {
		return err
	}
	if ctx.Err() == nil {
		told.send(Event{Up: true})
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// start starts the programs in the order in which they need each other: the control plane, beside it containerd and
// its images, then the kubelet, and what leads to Services.
func start(ctx context.Context, config Config, programs *supervisor, told *events) error {
	if config.Played {
		if err := startControlPlane(ctx, config, programs, told); err != nil {
			return err
		}
		return startPlayed(ctx, config, programs, told)
	}
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return startControlPlane(both, config, programs, told) })
	group.Go(func() error { return startContainerd(both, config, programs, told) })
	if err := group.Wait(); err != nil {
		return err
	}
	told.step("starting kubelet")
	if err := programs.component(Kubelet, kubeletFlags(config)); err != nil {
		return err
	}
	return startServices(ctx, programs, told)
}

// startServices starts what lets pods reach Services by their addresses and their names.
func startServices(ctx context.Context, programs *supervisor, told *events) error {
	told.step("starting kube-proxy and CoreDNS")
	if err := programs.component(KubeProxy, kubeProxyFlags()); err != nil {
		return err
	}
	if err := programs.companion(CoreDNS, coreDNSFlags()); err != nil {
		return err
	}
	if err := wait(ctx, CoreDNS, func(ctx context.Context) error { return get(ctx, coreDNSReadyURL) }); err != nil {
		return err
	}
	// The Service that every cluster has.
	return wait(ctx, KubeProxy, func(ctx context.Context) error { return dial(ctx, "tcp", serviceAddress+":443") })
}

func startControlPlane(ctx context.Context, config Config, programs *supervisor, told *events) error {
	told.step("starting etcd")
	if err := programs.component(Etcd, etcdFlags(config.Addresses)); err != nil {
		return err
	}
	// Else the API server would run into its first connection's back-off.
	if err := wait(ctx, Etcd, func(ctx context.Context) error { return get(ctx, "http://"+config.Addresses.Etcd.String()+"/health") }); err != nil {
		return err
	}
	told.step("starting kube-apiserver")
	if err := programs.component(APIServer, apiServerFlags(config)); err != nil {
		return err
	}
	client, err := newClient()
	if err != nil {
		return err
	}
	if err := wait(ctx, APIServer, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	told.step("starting kube-controller-manager and kube-scheduler")
	if err := programs.component(ControllerManager, controllerManagerFlags()); err != nil {
		return err
	}
	return programs.component(Scheduler, schedulerFlags())
}

func startContainerd(ctx context.Context, config Config, programs *supervisor, told *events) error {
	told.step("starting containerd")
	cmd := exec.Command(config.Containerd, "--config", inConfig("containerd.toml"))
	if err := programs.start(containerd, cmd); err != nil {
		return err
	}
	if err := wait(ctx, containerd, func(ctx context.Context) error { return dial(ctx, "unix", containerdSocket) }); err != nil {
		return err
	}
	told.step("importing the images")
	for _, file := range []string{inside(imagesFile), inside(debianFile)} {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		output, err := exec.CommandContext(ctx, config.Ctr, "--namespace=k8s.io", "images", "import", file).CombinedOutput()
		if err != nil {
			return &ProgramError{Program: containerd, Message: fmt.Sprintf("import the images: ctr: %v: %s", err, output)}
		}
	}
	return nil
}

// startPlayed starts KWOK, and makes the node that it plays.
func startPlayed(ctx context.Context, config Config, programs *supervisor, told *events) error {
	told.step("starting KWOK")
	if err := programs.companion(KWOK, kwokFlags(config)); err != nil {
		return err
	}
	client, err := newClient()
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: NodeName,
		Labels: map[string]string{
			corev1.LabelHostname: NodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		},
	}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the node: %w", err)
	}
	return nil
}

// get asks for a page that says whether a program is ready.
func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

func newClient() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", inside(kubeconfigFile))
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1 // how often it is asked is ours to say
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return client, nil
}

// dial asks whether someone listens. A first packet can get lost while the rules are being made.
func dial(ctx context.Context, network, address string) error {
	connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return connection.Close()
}
