package action

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// TestNoSecretsValueLeaves: values that come in by every way are printed by a hook, stand in an error of the API server,
// or in the value that a template refuses; none of them is in what comes out, or in a line that is logged.
func TestNoSecretsValueLeaves(t *testing.T) {
	t.Parallel()
	canary := func(name string) string { return "canary-" + name + "-5ecre7" }
	secret := func(name, value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {password: %s}\n", name, value)
	}
	prints := func(value string) string { return hook("web-prints", "post-install", "echo it is "+value+"; exit 1") }
	for _, row := range []struct {
		name, canary string
		files        files
		valuesFrom   string
	}{
		{
			name: "rendered, in a hook's log", canary: canary("rendered"),
			files: files{"templates/secret.yaml": secret("s", canary("rendered")), "templates/hook.yaml": prints(canary("rendered"))},
		},
		{
			name: "rendered, in base64", canary: base64.StdEncoding.EncodeToString([]byte(canary("base64"))),
			files: files{
				"templates/secret.yaml": secret("s", canary("base64")),
				"templates/hook.yaml":   prints(base64.StdEncoding.EncodeToString([]byte(canary("base64")))),
			},
		},
		{
			name: "of valuesFrom, in a hook's log", canary: canary("values"), valuesFrom: "db: {password: " + canary("values") + "}",
			files: files{"templates/hook.yaml": strings.Replace(prints("PW"), "PW", "{{ .Values.db.password }}", 1)},
		},
		{
			name: "of valuesFrom, in an error of the API server", canary: canary("refused"), valuesFrom: "name: " + canary("refused") + "_",
			files: files{"templates/bad.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Values.name }}}\n"},
		},
		{
			name: "of valuesFrom, in a template's own error", canary: canary("template"), valuesFrom: "name: " + canary("template"),
			files: files{"templates/bad.yaml": `{{ fail (printf "no %s" .Values.name) }}`},
		},
		{
			name: "looked up, in a template's own error", canary: canary("lookup"),
			files: files{"templates/bad.yaml": `{{ $s := lookup "v1" "Secret" .Release.Namespace "there" }}{{ fail (printf "no %s" (index $s.data "password" | b64dec)) }}`},
		},
		{
			name: "seen by a pod only, in its log", canary: canary("lookup"),
			files: files{"templates/hook.yaml": hook("web-prints", "post-install", "echo it is $PASSWORD; exit 1",
				"env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: there, key: password}}}]")},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var logged bytes.Buffer
			w.runner.Log = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
			for name, data := range map[string]map[string]string{
				"there": {"password": canary("lookup")}, "web-values": {"values.yaml": row.valuesFrom},
			} {
				_, err := w.client.Clientset.CoreV1().Secrets(w.namespace).Create(t.Context(),
					&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			var cmd *pb.Command
			r := w.deploy(pack(t, "1.0.0", row.files), func(c *pb.Command) {
				cmd = c
				c.GetDeploy().ValuesFrom = []*pb.ValuesFrom{{Kind: "Secret", Name: "web-values"}}
			})
			results := []*Result{r, w.runner.Recover(t.Context(), w.again(cmd))}
			require.NotNil(t, r.Failure)
			for _, r := range results {
				out, err := wire.MarshalJSON(r.Failure)
				require.NoError(t, err)
				require.NotContains(t, string(out), row.canary)
			}
			require.Contains(t, fmt.Sprint(r.Failure), "[redacted]", "what is missing was there")
			require.NotContains(t, logged.String(), row.canary)
		})
	}
}
