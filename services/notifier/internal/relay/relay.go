// Package relay publishes the event of each outcome.
package relay

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	"github.com/seatrial/seatrial/services/notifier/internal/attribute"
	"github.com/seatrial/seatrial/services/notifier/internal/binding"
	"github.com/seatrial/seatrial/services/notifier/internal/event"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Relay makes events of outcomes and publishes them.
type Relay struct {
	Conn *bus.Conn
	// Annotations say how a chart's annotations become attributes.
	Annotations attribute.Options
	// Mode is how the events lie in their messages.
	Mode binding.Mode
}

// Handle publishes the event of an outcome; it is a bus.Handler. An outcome comes again until its event is stored, and
// then makes the same event, whose id the stream knows. What is no outcome is given up.
func (r *Relay) Handle(ctx context.Context, msg jetstream.Msg) error {
	kind, release, err := subject.ParseOutcome(msg.Subject())
	if err != nil {
		return bus.Dead(err)
	}
	var o seatrialv1.Outcome
	if err := wire.UnmarshalKnown(msg.Headers(), msg.Data(), &o); err != nil {
		return bus.Dead(err)
	}
	if o.GetKind() != kind || o.GetRelease() != release.String() {
		return bus.Dead(fmt.Errorf("outcome %q says that it is %q of %q, but its subject is %s",
			o.GetId(), o.GetKind(), o.GetRelease(), msg.Subject()))
	}
	e, err := event.Make(&o, r.Annotations)
	if err != nil {
		return bus.Dead(fmt.Errorf("outcome %q: %w", o.GetId(), err))
	}
	header, data, err := binding.Encode(e, r.Mode)
	if err != nil {
		return bus.Dead(fmt.Errorf("outcome %q: %w", o.GetId(), err))
	}
	return r.Conn.PublishEvent(ctx, subject.Event(kind, release), e.ID(), header, data)
}
