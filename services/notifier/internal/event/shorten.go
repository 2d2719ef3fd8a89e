package event

import (
	"fmt"
	"strings"
	"unicode/utf8"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/seatrial/seatrial/internal/kit/wire"
	"github.com/seatrial/seatrial/services/notifier/internal/binding"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// step takes something away from the data of an event, and says what, or returns "" where there was nothing to take.
type step func(*seatrialv1.EventData) (told string)

// steps are in the order in which a reader misses them less than what comes after.
var steps = []step{
	shortenLogs("logs of passed tests", 256, func(t *seatrialv1.TestResult) bool { return t.GetPhase() == seatrialv1.VerdictPassed }),
	shortenLogs("logs", 2<<10, nil),
	dropTests("tests that passed or did not run", 10, func(t *seatrialv1.TestResult) bool {
		switch t.GetPhase() {
		case seatrialv1.VerdictPassed, seatrialv1.PhaseNotRun, seatrialv1.PhaseNotSelected:
			return true
		}
		return false
	}),
	shortenLogs("logs", 256, nil),
	dropTests("tests", 10, nil),
	dropObjects,
	dropAnnotations("the annotations that the attributes do not describe", false),
	dropLeftOut,
	dropNames,
	dropAnnotations("the annotations", true),
	keepTheCore,
}

// encode returns the JSON of data, without as much of it as must be missing for e to stay within MaxSize; the JSON says
// what that is. data itself is not changed.
func encode(e cloudevents.Event, data *seatrialv1.EventData) ([]byte, error) {
	limit, err := room(e)
	if err != nil {
		return nil, err
	}
	encoded, err := wire.MarshalJSON(data)
	if err != nil || len(encoded) <= limit {
		return encoded, err
	}
	data = proto.CloneOf(data)
	for _, take := range steps {
		told := take(data)
		if told == "" {
			continue
		}
		data.Shortened = append(data.Shortened, told)
		if encoded, err = wire.MarshalJSON(data); err != nil || len(encoded) <= limit {
			return encoded, err
		}
	}
	return nil, fmt.Errorf("%w: %d bytes, with a limit of %d for the data", ErrInvalid, len(encoded), limit)
}

// room returns how large the data of an event may be, whatever the mode.
func room(e cloudevents.Event) (int, error) {
	e.DataEncoded = []byte("{}")
	largest := 0
	for _, mode := range []binding.Mode{binding.Binary, binding.Structured} {
		size, err := binding.Size(e, mode)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		largest = max(largest, size-len(e.DataEncoded))
	}
	return MaxSize - largest, nil
}

// shortenLogs keeps the last bytes of each log, or only of those of the tests that are chosen.
func shortenLogs(which string, most int, chosen func(*seatrialv1.TestResult) bool) step {
	return func(data *seatrialv1.EventData) string {
		missing, shortened := 0, 0
		cut := func(logs []*seatrialv1.ContainerLog) {
			for _, log := range logs {
				tail := end(log.GetTail(), most)
				if tail != log.GetTail() {
					missing += len(log.GetTail()) - len(tail)
					shortened++
					log.Tail, log.Truncated = tail, true
				}
			}
		}
		for _, test := range data.GetOutcome().GetTestRun().GetTests() {
			if chosen == nil || chosen(test) {
				cut(test.GetLogs())
			}
		}
		if chosen == nil {
			for _, object := range data.GetOutcome().GetFailure().GetObjects() {
				cut(object.GetLogs())
			}
		}
		if shortened == 0 {
			return ""
		}
		return fmt.Sprintf("%s: %d bytes are missing from %d of them; of each the last %d are here", which, missing, shortened, most)
	}
}

// dropTests keeps some tests at the beginning and at the end, and those between them that may not be dropped.
func dropTests(which string, keep int, may func(*seatrialv1.TestResult) bool) step {
	return func(data *seatrialv1.EventData) string {
		run := data.GetOutcome().GetTestRun()
		all := run.GetTests()
		var kept []*seatrialv1.TestResult
		for i, test := range all {
			if i < keep || i >= len(all)-keep || may != nil && !may(test) {
				kept = append(kept, test)
			}
		}
		if len(kept) == len(all) {
			return ""
		}
		run.Tests = kept
		return fmt.Sprintf("%s: %d of %d are missing, from the middle", which, len(all)-len(kept), len(all))
	}
}

func dropObjects(data *seatrialv1.EventData) string {
	const keep = 5
	failure := data.GetOutcome().GetFailure()
	all := len(failure.GetObjects())
	if all <= keep {
		return ""
	}
	failure.Objects = failure.GetObjects()[:keep]
	return fmt.Sprintf("failure.objects: %d of %d are missing", all-keep, all)
}

// dropAnnotations drops those of the chart that the attributes describe, or those of the other.
func dropAnnotations(which string, described bool) step {
	return func(data *seatrialv1.EventData) string {
		o, dropped := data.GetOutcome(), 0
		for name, chart := range map[string]*seatrialv1.ChartRevision{
			describesRequested: o.GetRequested(),
			describesRunning:   o.GetRunning(),
		} {
			if (name == data.GetDescribed()) == described && len(chart.GetAnnotations()) > 0 {
				dropped += len(chart.GetAnnotations())
				chart.Annotations = nil
			}
		}
		if dropped == 0 {
			return ""
		}
		return fmt.Sprintf("%s: all %d are missing", which, dropped)
	}
}

func dropLeftOut(data *seatrialv1.EventData) string {
	const keep = 20
	all := len(data.GetLeftOut())
	if all <= keep {
		return ""
	}
	data.LeftOut = data.GetLeftOut()[:keep]
	return fmt.Sprintf("leftOut: %d of %d are missing", all-keep, all)
}

func dropNames(data *seatrialv1.EventData) string {
	all := len(data.GetAttributes())
	data.Attributes = nil
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("attributes: all %d are missing", all)
}

// keepTheCore keeps what is always small: what happened, to what, and the beginning of the message.
func keepTheCore(data *seatrialv1.EventData) string {
	const mostText, mostBlock = 256, 512
	o := data.GetOutcome()
	for _, text := range []*string{&o.Id, &o.Request, &o.Service, &o.Instance, &o.Traceparent, &o.Message} {
		*text = start(*text, mostText)
	}
	o.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Message() != nil && proto.Size(value.Message().Interface()) > mostBlock {
			o.ProtoReflect().Clear(field)
		}
		return true
	})
	data.LeftOut = nil
	return "all but the core of the outcome, and leftOut, are missing"
}

// end returns the last bytes of text, without half a character.
func end(text string, most int) string {
	if len(text) <= most {
		return text
	}
	tail := text[len(text)-most:]
	return strings.TrimLeftFunc(tail, func(r rune) bool { return r == utf8.RuneError })
}

// start returns the first bytes of text, without half a character.
func start(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
