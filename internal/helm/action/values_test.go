package action

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// printed renders what the values are.
const printed = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {values: {{ omit .Values \"global\" | toJson | quote }}}\n"

func (w *world) valuesDeployed() string {
	w.Helper()
	return w.configMap("x").Data["values"]
}

func TestValuesComeFromTheRequestAndOverThemFromTheCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	core := w.client.Clientset.CoreV1()
	_, err := core.ConfigMaps(w.namespace).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "more"}, Data: map[string]string{"values.yaml": "a: {two: 2}\nb: [3]\n", "plain": "x=1,y\n"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.Secrets(w.namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"other.yaml": "a: {three: true}\n"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	chart := pack(t, "1.0.0", files{"templates/x.yaml": printed, "values.yaml": "a: {zero: 0, one: 0}\nd: default\n"})
	w.done(w.deploy(chart, withValues(t, map[string]any{"a": map[string]any{"one": 1, "two": 1}, "b": []any{1}}), func(cmd *pb.Command) {
		cmd.GetDeploy().ValuesFrom = []*pb.ValuesFrom{
			{Kind: "ConfigMap", Name: "more"},
			{Kind: "Secret", Name: "secret", Key: "other.yaml"},
			{Kind: "ConfigMap", Name: "more", Key: "plain", TargetPath: `c.deep\.er`},
			{Kind: "Secret", Name: "nobody", Optional: true},
			{Kind: "ConfigMap", Name: "more", Key: "nothing", Optional: true},
		}
	}))
	require.JSONEq(t, `{"a":{"zero":0,"one":1,"two":2,"three":true},"b":[3],"c":{"deep.er":"x=1,y\n"},"d":"default"}`, w.valuesDeployed())
}

func TestTheLastReleasesValuesAreReusedAsHelmDoes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		values  map[string]any
		options *pb.UpgradeOptions
		want    string
	}{
		{name: "given values replace the last", values: map[string]any{"b": "new"}, want: `{"b":"new","d":"two","e":"two"}`},
		{name: "no values mean the last ones", want: `{"a":"old","d":"two","e":"two"}`},
		{name: "reset", options: &pb.UpgradeOptions{ResetValues: true}, want: `{"d":"two","e":"two"}`},
		{
			name: "reuse keeps the old chart's defaults too", options: &pb.UpgradeOptions{ReuseValues: true},
			values: map[string]any{"b": "new"}, want: `{"a":"old","b":"new","d":"one"}`,
		},
		{
			name: "reset then reuse", options: &pb.UpgradeOptions{ResetThenReuseValues: true},
			values: map[string]any{"b": "new"}, want: `{"a":"old","b":"new","d":"two","e":"two"}`,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			one := pack(t, "1.0.0", files{"templates/x.yaml": printed, "values.yaml": "d: one\n"})
			two := pack(t, "2.0.0", files{"templates/x.yaml": printed, "values.yaml": "d: two\ne: two\n"})
			w.done(w.deploy(one, withValues(t, map[string]any{"a": "old"})))
			w.done(w.deploy(two, func(cmd *pb.Command) {
				if row.values != nil {
					withValues(t, row.values)(cmd)
				}
				cmd.GetDeploy().Upgrade = row.options
			}))
			require.JSONEq(t, row.want, w.valuesDeployed())
		})
	}
}
