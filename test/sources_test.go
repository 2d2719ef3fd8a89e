package test

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/dev/system"
	"github.com/seatrial/seatrial/internal/helm/helmtest"
	"github.com/seatrial/seatrial/internal/helm/helmtest/chartserver"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestADeployFromARegistryTakesTheNewestOfARange(t *testing.T) {
	const user, password = "ci", "r3gistry-passw0rd"
	registry := chartserver.Registry(t, chartserver.WithTokens(user, password))
	newest := helmtest.Web("1.10.0")
	registry.Push(t, "charts/web", "1.9.0", helmtest.Web("1.9.0"), nil)
	manifest := registry.Push(t, "charts/web", "1.10.0", newest, nil)
	registry.Push(t, "charts/web", "2.0.0", helmtest.Web("2.0.0"), nil)

	dir := t.TempDir()
	login := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	write := func(content string, path ...string) string {
		file := filepath.Join(append([]string{dir}, path...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		return file
	}
	write(string(registry.CA), "certs.d", registry.Host, "ca.crt")
	w := start(t, func(c *system.Config) {
		c.Planner.Charts.RegistryCerts = filepath.Join(dir, "certs.d")
		c.Planner.Charts.RegistryConfig = write(fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, registry.Host, login), "config.json")
	})
	r := w.release()
	source := map[string]any{"oci": "oci://" + registry.Host + "/charts/web", "version": "1.x"}

	settled := w.settled(w.ask(seatrialv1.VerbDeploy, r, map[string]any{"chart": source}))

	require.Equal(t, seatrialv1.ResultProven, settled.GetSettlement().GetResult(), settled.GetMessage())
	for _, chart := range []*seatrialv1.ChartRevision{settled.GetRequested(), settled.GetRunning()} {
		require.Equal(t, "1.10.0", chart.GetVersion())
		require.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256(newest)), chart.GetDigest())
		require.Equal(t, "oci://"+registry.Host+"/charts/web:1.10.0@"+manifest, chart.GetSource())
	}

	source["version"] = "3.x"
	settled = w.settled(w.ask(seatrialv1.VerbDeploy, r, map[string]any{"chart": source}))
	require.Equal(t, seatrialv1.ResultRejected, settled.GetSettlement().GetResult(), settled.GetMessage())
	require.Contains(t, settled.GetFailure().GetReason(), `has no version "3.x" among the 3 that there are`)
	require.Equal(t, "1.10.0", settled.GetRunning().GetVersion(), "what ran before still runs")
	w.neverTold(password)
	w.neverTold(login)
}
