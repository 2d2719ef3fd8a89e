package release_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"helm.sh/helm/v3/pkg/action"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/kube"
	"github.com/seatrial/seatrial/internal/helm/release"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// recorder remembers the requests that go through it.
type recorder struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen []string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, request.Method+" "+request.URL.Path)
	return r.next.RoundTrip(request)
}

func TestReadGetsOneSecretAndFindsWhatHelmWrote(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	helmtest.Deploy(t, client, namespace, "shop", helmtest.Web("1.0.0", helmtest.WithAnnotations(map[string]string{"commit_sha": "abc"})))
	helmtest.Deploy(t, client, namespace, "shop", helmtest.Web("1.1.0", helmtest.WithoutTests()))
	seen := &recorder{}
	reader, err := client.As(kube.Actor{}).Wrap(func(next http.RoundTripper) http.RoundTripper {
		seen.next = next
		return seen
	})
	require.NoError(t, err)

	got, err := release.Read(t.Context(), reader.Clientset, namespace, "shop", 1)

	require.NoError(t, err)
	require.Equal(t, []string{"GET /api/v1/namespaces/" + namespace + "/secrets/sh.helm.release.v1.shop.v1"}, seen.seen)
	want, err := helmtest.Storage(client, namespace).Get("shop", 1)
	require.NoError(t, err)
	require.Equal(t, "superseded", got.Labels["status"])
	want.Labels = got.Labels // Helm leaves its own out
	require.Equal(t, want, got)
	require.True(t, proto.Equal(&seatrialv1.ChartRevision{
		Name: "web", Version: "1.0.0", AppVersion: "1.36", Annotations: map[string]string{"commit_sha": "abc"},
		HelmRevision: 1, ManifestDigest: release.ManifestDigest(want),
	}, release.Info(got)), release.Info(got))
	require.Equal(t, 1, release.CountTests(got))

	secret, err := client.Clientset.CoreV1().Secrets(namespace).Get(t.Context(), "sh.helm.release.v1.shop.v1", metav1.GetOptions{})
	require.NoError(t, err)
	size, err := release.EncodedSize(got)
	require.NoError(t, err)
	require.Equal(t, len(secret.Data["release"]), size)
}

func TestReadTellsWhatIsNotThereFromWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	_, err := release.Read(t.Context(), client.Clientset, namespace, "shop", 1)
	require.ErrorIs(t, err, release.ErrNotFound)
	require.ErrorContains(t, err, "revision 1 of release "+namespace+"/shop")

	encoded := func(plain string) string {
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		_, err := io.WriteString(zip, plain)
		require.NoError(t, errors.Join(err, zip.Close()))
		return base64.StdEncoding.EncodeToString(packed.Bytes())
	}
	for name, data := range map[string]string{
		"nothing":       "",
		"no base64":     "&&&",
		"no gzip":       base64.StdEncoding.EncodeToString([]byte("plain")),
		"cut off":       encoded(strings.Repeat("long ", 1000))[:24],
		"no JSON":       encoded("plain"),
		"no release":    encoded("{}"),
		"no release, 2": encoded("null"),
	} {
		_, err := client.Clientset.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.shop.v2"},
			Data:       map[string][]byte{"release": []byte(data)},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = release.Read(t.Context(), client.Clientset, namespace, "shop", 2)
		require.ErrorIs(t, err, release.ErrCorrupt, name)
		require.ErrorContains(t, err, "Secret sh.helm.release.v1.shop.v2", name)
		require.NoError(t, client.Clientset.CoreV1().Secrets(namespace).Delete(t.Context(), "sh.helm.release.v1.shop.v2", metav1.DeleteOptions{}))
	}
}

// closed is a gate that lets nothing pass.
type closed struct{}

var errLost = errors.New("the lease is lost")

func (closed) Check() error { return errLost }

// stamping returns a configuration of Helm whose records are stamped.
func stamping(t *testing.T, client *kube.Client, namespace string, gate kube.Gate, stamp release.Stamp) *action.Configuration {
	t.Helper()
	config := helmtest.Configuration(t, client, namespace)
	config.Releases = storage.Init(release.NewDriver(config.Releases.Driver, gate, stamp))
	return config
}

func TestAStampCountsForTheRecordThatItWasMadeFor(t *testing.T) {
	t.Parallel()
	client := helmtest.Connect(t)
	namespace := helmtest.Namespace(t, client)
	read := func(revision int) *helmrelease.Release {
		rel, err := release.Read(t.Context(), client.Clientset, namespace, "shop", revision)
		require.NoError(t, err)
		return rel
	}
	own := func(number uint32, fence uint64) *action.Configuration {
		return stamping(t, client, namespace, helmtest.Open{}, release.Stamp{Number: number, Fence: fence})
	}

	helmtest.DeployWith(t, own(7, 42), namespace, "shop", helmtest.Web("1.0.0"))
	stamp, ok := release.StampOf(read(1))
	require.True(t, ok)
	require.Equal(t, release.Stamp{Number: 7, Fence: 42, Revision: 1}, stamp)

	helmtest.Deploy(t, client, namespace, "shop", helmtest.Web("1.1.0"))
	require.Contains(t, read(2).Labels, release.LabelNumber, "Helm passes labels on to an upgrade")
	_, ok = release.StampOf(read(2))
	require.False(t, ok, "but it was somebody else's")

	rollback := action.NewRollback(helmtest.Configuration(t, client, namespace))
	rollback.Version = 1
	require.NoError(t, rollback.Run("shop"))
	require.Equal(t, "7", read(3).Labels[release.LabelNumber], "Helm copies the labels of a rollback's target")
	_, ok = release.StampOf(read(3))
	require.False(t, ok, "but it was somebody else's")

	rollback = action.NewRollback(own(9, 44))
	rollback.Version = 1
	require.NoError(t, rollback.Run("shop"))
	stamp, ok = release.StampOf(read(4))
	require.True(t, ok)
	require.Equal(t, release.Stamp{Number: 9, Fence: 44, Revision: 4}, stamp)
	stamp, ok = release.StampOf(read(1))
	require.True(t, ok)
	require.Equal(t, uint32(7), stamp.Number, "the target keeps its own")

	// Superseded by revision 5, the record of 4 was written again, and keeps what it had.
	helmtest.DeployWith(t, own(10, 45), namespace, "shop", helmtest.Web("1.2.0"))
	require.Equal(t, helmrelease.StatusSuperseded, read(4).Info.Status)
	stamp, ok = release.StampOf(read(4))
	require.True(t, ok)
	require.Equal(t, uint32(9), stamp.Number)
}

func TestAStampThatIsNotWholeIsNone(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name                    string
		number, fence, revision string
		whole                   bool
	}{
		{"whole", "7", "42", "3", true},
		{"of another revision", "7", "42", "2", false},
		{"no number", "", "42", "3", false},
		{"no fence", "7", "", "3", false},
		{"no revision", "7", "42", "", false},
		{"a number that is none", "seven", "42", "3", false},
		{"a number that is too large", "4294967296", "42", "3", false},
		{"a negative fence", "7", "-42", "3", false},
	} {
		rel := &helmrelease.Release{Version: 3, Labels: map[string]string{
			release.LabelNumber: row.number, release.LabelFence: row.fence, release.LabelRevision: row.revision,
		}}
		stamp, ok := release.StampOf(rel)
		require.Equal(t, row.whole, ok, row.name)
		if row.whole {
			require.Equal(t, release.Stamp{Number: 7, Fence: 42, Revision: 3}, stamp)
		}
	}
	_, ok := release.StampOf(&helmrelease.Release{Version: 3})
	require.False(t, ok)
}

func TestNothingIsWrittenOnceTheGateIsClosed(t *testing.T) {
	t.Parallel()
	inner := driver.NewMemory()
	record := func(version int) *helmrelease.Release {
		return &helmrelease.Release{Name: "shop", Version: version, Info: &helmrelease.Info{Status: helmrelease.StatusDeployed}}
	}
	require.NoError(t, storage.Init(inner).Create(record(1)))
	for name, gate := range map[string]kube.Gate{"closed": closed{}, "none": nil} {
		records := storage.Init(release.NewDriver(inner, gate, release.Stamp{Number: 7}))
		require.ErrorIs(t, records.Create(record(2)), kube.ErrGateClosed, name)
		changed := record(1)
		changed.Info.Status = helmrelease.StatusFailed
		require.ErrorIs(t, records.Update(changed), kube.ErrGateClosed, name)
		_, err := records.Delete("shop", 1)
		require.ErrorIs(t, err, kube.ErrGateClosed, name)

		history, err := records.History("shop")
		require.NoError(t, err, "reading goes on")
		require.Len(t, history, 1)
		require.Equal(t, helmrelease.StatusDeployed, history[0].Info.Status)
	}
}

func TestStampingLeavesOtherRecordsLabelsAlone(t *testing.T) {
	t.Parallel()
	shared := map[string]string{"team": "shop"}
	records := storage.Init(release.NewDriver(driver.NewMemory(), helmtest.Open{}, release.Stamp{Number: 7, Fence: 42}))
	made := &helmrelease.Release{Name: "shop", Version: 2, Labels: shared, Info: &helmrelease.Info{}}
	require.NoError(t, records.Create(made))
	require.Equal(t, map[string]string{"team": "shop"}, shared)
	require.Equal(t, map[string]string{
		"team": "shop", release.LabelNumber: "7", release.LabelFence: "42", release.LabelRevision: "2",
	}, made.Labels)
}
