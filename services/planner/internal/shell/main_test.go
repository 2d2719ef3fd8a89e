package shell

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// nats.go leaves it behind when an object is put on a connection that is closed, which is how a planner dies here.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
}
