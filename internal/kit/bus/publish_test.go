package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/kittest"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

func TestOutcomeIsStoredOnceAsJSONOnItsSubject(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	o := &seatrialv1.Outcome{Id: "local/shop.eu/web/1/deployed", Kind: seatrialv1.KindDeployed, Release: "local/shop/my.web", Number: 1}
	require.NoError(t, c.PublishOutcome(t.Context(), o))
	require.NoError(t, c.PublishOutcome(t.Context(), o))

	stored := messages(t, c, subject.StreamOutcomes, subject.AllOutcomes)
	require.Len(t, stored, 1)
	require.Equal(t, "seatrial.outcome.deployed.local.shop.my_web", stored[0].Subject)
	require.Equal(t, wire.JSON, stored[0].Header.Get(wire.HeaderContentType))
	require.Equal(t, o.GetId(), stored[0].Header.Get("Nats-Msg-Id"))
	require.Equal(t, `{"id":"local/shop.eu/web/1/deployed","kind":"deployed","release":"local/shop/my.web","number":1}`, string(stored[0].Data))
}

func TestOutcomeOfAnInvalidReleaseIsRefused(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	require.ErrorIs(t, c.PublishOutcome(t.Context(), &seatrialv1.Outcome{Kind: "deployed", Release: "local/*/>"}), subject.ErrInvalid)
}

func TestPublishOutlastsARestartAndStoresOnce(t *testing.T) {
	t.Parallel()
	s := kittest.Provisioned(t, layout())
	c := kittest.Connect(t, s.URL)
	release := newRelease()
	// Without a pause between the server's end and the publishing, some are lost on their way, some wait in the client.
	published := make(chan error, 1)
	go func() {
		var errs []error
		for i := range 200 {
			errs = append(errs, c.PublishOutcomeBytes(t.Context(), "tested", release, fmt.Sprint(i), []byte("{}")))
		}
		published <- errors.Join(errs...)
	}()
	eventually(t, func() bool { return c.NC.Stats().OutMsgs > 50 }, "some are published")
	s.Restart(t)
	require.NoError(t, receive(t, published, "the end of publishing"))
	require.Len(t, messages(t, c, subject.StreamOutcomes, subject.AllOutcomes), 200)
}

func TestPublishEndsWithItsContextAndSaysWhatWasWrong(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.NATS(t).URL) // no stream takes it
	stop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Publish(ctx, nats.NewMsg("seatrial.event.x"), "1") }()
	eventually(t, func() bool { return c.NC.Stats().OutMsgs > 2 }, "it is tried more than once")
	cancel(stop)
	err := receive(t, ended, "error")
	require.ErrorIs(t, err, stop)
	require.ErrorContains(t, err, "seatrial.event.x")
	require.ErrorContains(t, err, "no response from stream")
}

func TestPublishReturnsWhenTheConnectionIsClosedForGood(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.NATS(t).URL)
	ended := make(chan error, 1)
	go func() { ended <- c.Publish(t.Context(), nats.NewMsg("seatrial.event.x"), "1") }()
	eventually(t, func() bool { return c.NC.Stats().OutMsgs > 1 }, "it is tried")
	c.NC.Close()
	err := receive(t, ended, "error")
	require.True(t, errors.Is(err, bus.ErrClosed) || errors.Is(err, nats.ErrConnectionClosed), err)
}

func TestTooLargeIsToldAtOnceWithSizeAndLimit(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	const limit = 1 << 20
	release := newRelease()

	err := c.PublishOutcome(t.Context(), &seatrialv1.Outcome{Id: "1", Kind: "tested", Release: release.String(), Message: strings.Repeat("x", limit)})
	require.ErrorIs(t, err, bus.ErrTooLarge)
	require.ErrorContains(t, err, "the limit is 1048576")
	require.Regexp(t, `too large: 1048\d\d\d bytes`, err.Error())

	cmd := deployCommand(release, 1)
	cmd.Traceparent = strings.Repeat("x", limit)
	require.ErrorIs(t, c.PublishCommand(t.Context(), cmd), bus.ErrTooLarge)

	header := nats.Header{"Ce-Big": {strings.Repeat("x", 64<<10)}}
	err = c.PublishEvent(t.Context(), subject.Event("tested", release), "1", header, nil)
	require.ErrorIs(t, err, bus.ErrTooLarge)
	require.ErrorContains(t, err, "bytes of headers, the limit is 65535")

	bucket, err := bus.OpenBucket[*seatrialv1.ReleaseState](t.Context(), c, subject.BucketReleases)
	require.NoError(t, err)
	_, err = bucket.Put(t.Context(), release.Key(), &seatrialv1.ReleaseState{Release: strings.Repeat("x", limit)}, 0)
	require.ErrorIs(t, err, bus.ErrTooLarge)

	require.NoError(t, c.Healthy(), "the connection must have stayed")
}

// Whatever the check lets through must be taken by the server.
func TestTheLargestMessageThatPassesIsStored(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	release := newRelease()
	size := 1 << 20
	for ; ; size-- {
		err := c.PublishOutcomeBytes(t.Context(), "tested", release, "1", make([]byte, size))
		if err == nil {
			break
		}
		require.ErrorIs(t, err, bus.ErrTooLarge)
	}
	require.Greater(t, size, 1<<20-256, "the reserve is small")
}

func TestPublishEventKeepsItsHeader(t *testing.T) {
	t.Parallel()
	c := kittest.Connect(t, kittest.Provisioned(t, layout()).URL)
	release := newRelease()
	header := nats.Header{"ce-type": {"dev.seatrial.tested.v1"}, "ce-id": {"id-1"}}
	require.NoError(t, c.PublishEvent(t.Context(), subject.Event("tested", release), "id-1", header, []byte("data")))
	require.Len(t, header, 2, "the caller's header must stay as it was")

	stored := messages(t, c, subject.StreamEvents, subject.AllEvents)
	require.Len(t, stored, 1)
	require.Equal(t, []string{"dev.seatrial.tested.v1"}, stored[0].Header["ce-type"])
	require.Equal(t, "id-1", stored[0].Header.Get("Nats-Msg-Id"))
	require.Equal(t, "data", string(stored[0].Data))
}
