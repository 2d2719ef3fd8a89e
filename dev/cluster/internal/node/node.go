package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"

	"golang.org/x/sync/errgroup"
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
	if err := arrangeMounts(config.State); err != nil {
		return err
	}
	if err := link.Join(config.Inside); err != nil {
		return err
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
// its images, then the kubelet.
func start(ctx context.Context, config Config, programs *supervisor, told *events) error {
	group, both := errgroup.WithContext(ctx)
	group.Go(func() error { return startControlPlane(both, config, programs, told) })
	group.Go(func() error { return startContainerd(both, config, programs, told) })
	if err := group.Wait(); err != nil {
		return err
	}
	told.step("starting kubelet")
	return programs.component(Kubelet, kubeletFlags(config))
}

func startControlPlane(ctx context.Context, config Config, programs *supervisor, told *events) error {
	told.step("starting etcd")
	if err := programs.component(Etcd, etcdFlags()); err != nil {
		return err
	}
	// Else the API server would run into its first connection's back-off.
	if err := wait(ctx, Etcd, askEtcd); err != nil {
		return err
	}
	told.step("starting kube-apiserver")
	if err := programs.component(APIServer, apiServerFlags(config)); err != nil {
		return err
	}
	askAPIServer, err := apiServerAsker()
	if err != nil {
		return err
	}
	if err := wait(ctx, APIServer, askAPIServer); err != nil {
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
	if err := wait(ctx, containerd, askContainerd); err != nil {
		return err
	}
	told.step("importing the images")
	output, err := exec.CommandContext(ctx, config.Ctr, "--namespace=k8s.io", "images", "import", inside(imagesFile)).CombinedOutput()
	if err != nil {
		return &ProgramError{Program: containerd, Message: fmt.Sprintf("import the images: ctr: %v: %s", err, output)}
	}
	return nil
}

func askEtcd(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, etcdURL+"/health", http.NoBody)
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

func apiServerAsker() (func(context.Context) error, error) {
	config, err := clientcmd.BuildConfigFromFlags("", inside(kubeconfigFile))
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config.QPS = -1 // how often it is asked is ours to say
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the API server: %w", err)
	}
	return func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}, nil
}

func askContainerd(ctx context.Context) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", containerdSocket)
	if err != nil {
		return err
	}
	return connection.Close()
}
