package action

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	helmchart "helm.sh/helm/v3/pkg/chart"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestAllExecutorsOfAClusterHaveOneKeyAlsoWhenTheyStartTogether(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client) + "-own" // which nobody has made yet
	t.Cleanup(func() {
		_ = client.Clientset.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), namespace, metav1.DeleteOptions{})
	})
	keys := make([][]byte, 8)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			var q quarantine
			key, err := q.key(t.Context(), client.Clientset, namespace)
			require.NoError(t, err)
			keys[i] = key
		})
	}
	all.Wait()
	for _, key := range keys {
		require.GreaterOrEqual(t, len(key), 16)
		require.Equal(t, keys[0], key)
	}
}

func TestTheNameOfTheInputsChangesWithEachOfThem(t *testing.T) {
	t.Parallel()
	name := func(secret, digest string, defaults, values map[string]any, change func(*pb.DeployCommand)) string {
		deploy := &pb.DeployCommand{Upgrade: &pb.UpgradeOptions{Timeout: "5m"}, Test: &pb.TestOptions{Enabled: proto.Bool(true)}}
		if change != nil {
			change(deploy)
		}
		chart := &helmchart.Chart{Metadata: &helmchart.Metadata{Name: "web"}, Values: defaults}
		name, err := inputs([]byte(secret), deploy, digest, chart, values)
		require.NoError(t, err)
		return name
	}
	type m = map[string]any
	one := name("key", "sha256:1", m{"a": 1.0}, m{"b": m{"c": 2.0, "d": 3.0}}, nil)
	require.Equal(t, one, name("key", "sha256:1", m{"a": 1.0}, m{"b": m{"d": 3.0, "c": 2.0}}, nil))
	require.Equal(t, one, name("key", "sha256:1", m{"a": 1.0}, m{"a": 1.0, "b": m{"d": 3.0, "c": 2.0}}, nil), "it is what is merged that counts")
	require.Regexp(t, `^[0-9a-v]{52}$`, one, "a label can hold it")
	for what, other := range map[string]string{
		"chart":   name("key", "sha256:2", m{"a": 1.0}, m{"b": m{"c": 2.0, "d": 3.0}}, nil),
		"value":   name("key", "sha256:1", m{"a": 1.0}, m{"b": m{"c": 2.0, "d": 4.0}}, nil),
		"default": name("key", "sha256:1", m{"a": 2.0}, m{"b": m{"c": 2.0, "d": 3.0}}, nil),
		"upgrade": name("key", "sha256:1", m{"a": 1.0}, m{"b": m{"c": 2.0, "d": 3.0}}, func(d *pb.DeployCommand) { d.Upgrade.Timeout = "6m" }),
		"test":    name("key", "sha256:1", m{"a": 1.0}, m{"b": m{"c": 2.0, "d": 3.0}}, func(d *pb.DeployCommand) { d.Test.FailFast = true }),
		"secret":  name("other", "sha256:1", m{"a": 1.0}, m{"b": m{"c": 2.0, "d": 3.0}}, nil),
	} {
		require.NotEqual(t, one, other, what)
	}
}
