package binding

import (
	"encoding/json"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/kittest"
)

// What the libraries do that this package and the event package work around. If one of these fails after an update, the
// workaround may go.

func TestTheSDKMakesBase64OfJSONGivenAsBytes(t *testing.T) {
	t.Parallel()
	e := example()
	require.NoError(t, e.SetData("application/json", []byte(`{}`)))
	text, err := e.MarshalJSON()
	require.NoError(t, err)
	require.Contains(t, string(text), `"data_base64":"e30="`)
}

func TestTheSDKEscapesJSONGivenAsAValue(t *testing.T) {
	t.Parallel()
	e := example()
	require.NoError(t, e.SetData("application/json", json.RawMessage(`{"html":"<b>"}`)))
	require.NotContains(t, string(e.Data()), "<b>")
}

func TestTheSDKTakesAnExtensionThatHidesTheData(t *testing.T) {
	t.Parallel()
	e := example()
	e.SetExtension("data", "x")
	require.NoError(t, e.Validate())
	text, err := e.MarshalJSON()
	require.NoError(t, err)
	var back event.Event
	require.NoError(t, json.Unmarshal(text, &back))
	require.NotEqual(t, e.Data(), back.Data())
}

func TestNATSMakesASpaceOfANewlineInAHeader(t *testing.T) {
	t.Parallel()
	nc := kittest.Connect(t, kittest.NATS(t).URL).NC
	sub, err := nc.SubscribeSync("x")
	require.NoError(t, err)
	msg := nats.NewMsg("x")
	msg.Header.Set("ce-team", "a\nb")
	require.NoError(t, nc.PublishMsg(msg))
	got, err := sub.NextMsgWithContext(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a b", got.Header.Get("ce-team"))
}
