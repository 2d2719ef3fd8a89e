package api

import (
	"testing"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/kittest"
)

func TestEveryVersionCanBeServed(t *testing.T) {
	t.Parallel()
	conn := kittest.Connect(t, kittest.NATS(t).URL)
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "v1.2.3-4-gabcdef0-dirty": "1.2.3-4-gabcdef0-dirty", "v2.0.0-rc.1": "2.0.0-rc.1",
		"": "0.0.0+build-", "unknown": "0.0.0+build-unknown", "62ad703-dirty": "0.0.0+build-62ad703-dirty",
		"v1.2": "0.0.0+build-v1-2", "1.2.3-01": "0.0.0+build-1-2-3-01",
	} {
		require.Equal(t, want, semver(version), version)
		service, err := micro.AddService(conn.NC, micro.Config{Name: "test", Version: semver(version)})
		require.NoError(t, err, version)
		require.NoError(t, service.Stop())
	}
}
