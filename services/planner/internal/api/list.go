package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/seatrial/seatrial/internal/kit/bus"
	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
	"github.com/seatrial/seatrial/services/planner/internal/core"
)

// How much stands in one answer, unless the question says otherwise, and at most.
const (
	listed     = 100
	mostListed = 500
)

// list answers what runs where: in the order of the releases' names, a page at a time. A release stands in one page, also
// when others come and go between two questions.
func (a *API) list(ctx context.Context, name string, q question) (proto.Message, error) {
	cluster, namespace, err := subject.ParseAPIList(name)
	if err != nil {
		return nil, refuse(codeBadRequest, err.Error(), "end the subject at what is to be listed: all, a cluster, or a namespace")
	}
	var body pb.ListRequest
	if err := decode(q, &body); err != nil {
		return nil, err
	}
	limit, err := pageLimit(body.GetLimit(), listed, mostListed)
	if err != nil {
		return nil, err
	}
	from := ""
	if last := body.GetContinue(); last != "" {
		r, err := subject.ParseRelease(last)
		if err != nil {
			return nil, badContinue(last)
		}
		from = r.Key()
	}
	keys, err := a.releases.Keys(ctx, subject.Keys(cluster, namespace))
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return key <= from })
	answer := &pb.ListAnswer{}
	room := a.room()
	for _, key := range keys {
		state, _, err := a.releases.Get(ctx, key)
		if errors.Is(err, bus.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entry := core.List(state)
		if entry == nil {
			continue
		}
		size, err := sizeOf(entry)
		if err != nil {
			return nil, err
		}
		if n := len(answer.Releases); n == limit || n > 0 && size > room {
			answer.Continue = answer.Releases[n-1].GetRelease()
			break
		}
		room -= size
		answer.Releases = append(answer.Releases, entry)
	}
	return answer, nil
}

// pageLimit returns how much is asked for, at most.
func pageLimit(asked int32, usual, most int) (int, error) {
	switch {
	case asked == 0:
		return usual, nil
	case asked < 0 || int(asked) > most:
		return 0, refuse(codeBadRequest, fmt.Sprintf("limit %d: must be a number from 1 to %d", asked, most), "correct the limit, or leave it out",
			&pb.Violation{Field: "limit", Value: fmt.Sprint(asked), Message: fmt.Sprintf("must be a number from 1 to %d", most)})
	}
	return int(asked), nil
}

func badContinue(value string) error {
	return refuse(codeBadRequest, "continue is not what an answer gave", "send the `continue` of the answer before as it is, or none",
		&pb.Violation{Field: "continue", Value: value, Message: "must be the `continue` of an answer"})
}

// room is how many bytes what is listed in one answer may have: an answer is one message.
func (a *API) room() int {
	const rest = 16 << 10 // headers, names and commas
	return int(a.conn.NC.MaxPayload()) - rest
}

// sizeOf returns how many bytes a message has in an answer.
func sizeOf(m proto.Message) (int, error) {
	data, err := wire.MarshalJSON(m)
	return len(data) + 1, err
}
