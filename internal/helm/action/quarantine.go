package action

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/seatrial/seatrial/internal/kit/fault"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// The Secret that holds the key under which values are digested: without it nobody can guess values from a quarantine
// key, which leaves the cluster.
const (
	quarantineSecret = "seatrial-quarantine"
	quarantineData   = "key"
)

// checkQuarantine names the inputs of a deploy in the result, and refuses them when they are in quarantine.
func (op *operation) checkQuarantine(ctx context.Context, deploy *seatrialv1.DeployCommand, chartDigest string, loaded *helmchart.Chart, values map[string]any) error {
	secret, err := op.quarantine.key(ctx, op.client.Clientset, op.Namespace)
	if err != nil {
		return err
	}
	name, err := inputs(secret, deploy, chartDigest, loaded, values)
	if err != nil {
		return err
	}
	op.result.Mutation.QuarantineKey = name
	if !deploy.GetForce() && slices.Contains(op.Command.GetQuarantined(), name) {
		return fault.New(seatrialv1.ClassRejected, "change the chart, its values or the options, forgive them, or deploy with force",
			"this chart with these values and options is in quarantine")
	}
	return nil
}

// inputs names all that decides the result of a deploy: the chart, the merged values, which only the holder of the
// secret can compare, and the options.
func inputs(secret []byte, deploy *seatrialv1.DeployCommand, chartDigest string, loaded *helmchart.Chart, values map[string]any) (string, error) {
	merged, err := chartutil.CoalesceValues(loaded, values)
	if err != nil {
		return "", fault.New(seatrialv1.ClassFailed, "", "merge the values: %w", err)
	}
	data, err := json.Marshal(merged)
	if err != nil {
		return "", fault.New(seatrialv1.ClassFailed, "", "encode the values: %w", err)
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(data)
	upgrade, err := wire.MarshalJSON(deploy.GetUpgrade())
	if err != nil {
		return "", err
	}
	test, err := wire.MarshalJSON(deploy.GetTest())
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%x\n%s\n%s", chartDigest, mac.Sum(nil), upgrade, test))
	return strings.ToLower(base32Label.EncodeToString(sum[:])), nil // as a label can hold it
}

// quarantine has the secret, once it was read.
type quarantine struct {
	mu     sync.Mutex
	secret []byte
}

// key returns the secret. It is made by the first that needs it, of all executors of the cluster.
func (q *quarantine) key(ctx context.Context, client kubernetes.Interface, namespace string) ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.secret != nil {
		return q.secret, nil
	}
	secret, err := readOrMake(ctx, client, namespace)
	if err == nil && len(secret.Data[quarantineData]) == 0 {
		err = fmt.Errorf("it has no %q", quarantineData)
	}
	if err != nil {
		// It says nothing about the command, so whatever it is, it is to be tried again.
		return nil, fault.New(seatrialv1.ClassTransient, "let the executor read and create this Secret",
			"the quarantine's Secret %s/%s: %w", namespace, quarantineSecret, err)
	}
	q.secret = secret.Data[quarantineData]
	return q.secret, nil
}

func readOrMake(ctx context.Context, client kubernetes.Interface, namespace string) (*corev1.Secret, error) {
	secrets := client.CoreV1().Secrets(namespace)
	secret, err := secrets.Get(ctx, quarantineSecret, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return secret, err
	}
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: quarantineSecret},
		Immutable:  new(true),
		Data:       map[string][]byte{quarantineData: []byte(rand.Text())},
	}
	made, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) { // an executor outside the cluster has no namespace of its own there yet
		_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			made, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
		}
	}
	if apierrors.IsAlreadyExists(err) {
		return secrets.Get(ctx, quarantineSecret, metav1.GetOptions{})
	}
	return made, err
}
