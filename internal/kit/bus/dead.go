package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seatrial/seatrial/internal/kit/subject"
)

// Headers of a dead letter, besides those of the original message. Those of the original that mean something to the
// server have this prefix too: Nats-Msg-Id is Seatrial-Nats-Msg-Id.
const (
	deadPrefix = "Seatrial-"

	HeaderDeadReason   = deadPrefix + "Reason"
	HeaderDeadSubject  = deadPrefix + "Subject"
	HeaderDeadStream   = deadPrefix + "Stream"
	HeaderDeadSequence = deadPrefix + "Sequence"
	// HeaderDeadLeftOut is there when the original would not have fitted beside these headers: how many bytes of data
	// it has. It is still where stream and sequence say, unless it was in the work queue.
	HeaderDeadLeftOut = deadPrefix + "Left-Out"
)

// DeadLetter publishes a message that a service gives up, with the reason, for people to look at.
func (c *Conn) DeadLetter(ctx context.Context, service string, original jetstream.Msg, reason error) error {
	meta, err := original.Metadata()
	if err != nil {
		return fmt.Errorf("dead letter of %s: %w", original.Subject(), err)
	}
	sequence := strconv.FormatUint(meta.Sequence.Stream, 10)
	letter := nats.NewMsg(subject.Dead(service))
	letter.Header.Set(HeaderDeadReason, oneLine(reason.Error()))
	letter.Header.Set(HeaderDeadSubject, original.Subject())
	letter.Header.Set(HeaderDeadStream, meta.Stream)
	letter.Header.Set(HeaderDeadSequence, sequence)
	whole := nats.NewMsg(letter.Subject)
	whole.Data = original.Data()
	for key, values := range original.Headers() {
		if strings.HasPrefix(key, "Nats-") {
			key = deadPrefix + key
		}
		whole.Header[key] = values
	}
	maps.Copy(whole.Header, letter.Header)

	id := service + "/" + meta.Stream + "/" + sequence
	err = c.Publish(ctx, whole, id)
	if errors.Is(err, ErrTooLarge) {
		letter.Header.Set(HeaderDeadLeftOut, strconv.Itoa(len(original.Data())))
		err = c.Publish(ctx, letter, id)
	}
	if err != nil {
		return fmt.Errorf("dead letter of %s: %w", original.Subject(), err)
	}
	return nil
}

// oneLine makes a header's value of a text, shortened to what a person reads.
func oneLine(text string) string {
	const most = 2048
	line := strings.Join(strings.Fields(text), " ")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}
