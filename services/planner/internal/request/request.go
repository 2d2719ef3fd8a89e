// Package request reads requests: from the bytes that a person or a pipeline published to a checked seatrialv1.Request
// with every default filled in, or to a list of all that is wrong with it.
package request

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/seatrial/seatrial/internal/kit/subject"
	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// Message is a request as it was sent.
type Message struct {
	Verb    string
	Release subject.Release
	// Header names are read whatever their case.
	Header map[string][]string
	Body   []byte
	// Sequence and Received are the stream's; zero while the request is not stored yet.
	Sequence uint64
	Received time.Time
}

// Verbs are those that requests can have.
var Verbs = []string{
	pb.VerbDeploy, pb.VerbRollback, pb.VerbUninstall, pb.VerbTest, pb.VerbCancel, pb.VerbSuspend, pb.VerbResume, pb.VerbForgive,
}

// Headers that a request may have, besides Content-Type.
const (
	HeaderID          = "Nats-Msg-Id"
	HeaderTraceparent = "traceparent"
)

// Get returns the first value of a header, whatever its case.
func (m Message) Get(header string) string {
	for key, values := range m.Header {
		if strings.EqualFold(key, header) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// Digest returns sha256:<hex> over verb, release and body: two messages with one digest are the same request. Headers
// do not count, so a retry with a trace of its own stays the same request.
func (m Message) Digest() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s\n", m.Verb, m.Release)
	sum.Write(m.Body)
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// sequencePrefix starts the ids of requests that were given none.
const sequencePrefix = "seq-"

// SequenceID returns the id of a request without an id of its own that works: seq-<sequence>.
func SequenceID(sequence uint64) string { return fmt.Sprintf("%s%d", sequencePrefix, sequence) }

// idForm is narrow because an id becomes a key in a bucket and a part of other ids.
var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)

// WellFormed says whether a request can have this id.
func WellFormed(id string) bool { return len(id) <= 128 && idForm.MatchString(id) }

// assignable says whether a person may give this id to a request.
func assignable(id string) bool { return WellFormed(id) && !strings.HasPrefix(id, sequencePrefix) }

// Decode reads and checks a message. With no violations the request is complete. With some, it has what is sure: verb,
// release, sequence, time, trace, and the id under which the refusal is known.
//
// The id is that of the body or the header Nats-Msg-Id; where there is none that can be used it is SequenceID, or empty
// while the message is not stored.
func (r Rules) Decode(m Message) (*pb.Request, []*pb.Violation) {
	c := &check{rules: r, message: m, seen: map[string]bool{}, at: map[string]bool{}}
	req := &pb.Request{Verb: shorten(m.Verb), Release: m.Release.String(), Sequence: m.Sequence}
	if !m.Received.IsZero() {
		req.ReceivedAt = timestamppb.New(m.Received)
	}
	c.request(req)
	if req.Id == "" && m.Sequence > 0 {
		req.Id = SequenceID(m.Sequence)
	}
	req.Traceparent = traceparent(m.Get(HeaderTraceparent), m.Release, req.Id)
	return req, c.list()
}

// Refusal returns the violations as the failure of the request that has them.
func Refusal(req *pb.Request, violations []*pb.Violation) *pb.Failure {
	const shown = 3
	var text []string
	for _, v := range violations[:min(shown, len(violations))] {
		text = append(text, v.GetField()+": "+v.GetMessage())
	}
	if more := len(violations) - shown; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return &pb.Failure{
		Class:      pb.ClassRejected,
		Reason:     fmt.Sprintf("%s request for %s cannot be accepted: %s", req.GetVerb(), req.GetRelease(), strings.Join(text, "; ")),
		Next:       "correct what the violations name and publish it under a new id",
		Violations: violations,
	}
}

var traceForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceparent returns the W3C trace context of a request: the given one if it is well-formed, else one derived from
// release and id, so that a request that is read again after a crash stays in its trace.
func traceparent(given string, r subject.Release, id string) string {
	if traceForm.MatchString(given) && !strings.HasPrefix(given, "ff") &&
		!strings.Contains(given, "-"+strings.Repeat("0", 32)+"-") && !strings.Contains(given, "-"+strings.Repeat("0", 16)+"-") {
		return given
	}
	sum := sha256.Sum256([]byte("trace of " + r.String() + " " + id))
	return fmt.Sprintf("00-%x-%x-01", sum[:16], sum[16:24])
}
