// Package event makes a CloudEvent of an outcome. The same outcome always makes the same event, byte for byte.
package event

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/seatrial/seatrial/internal/kit/subject"
	"github.com/seatrial/seatrial/internal/kit/wire"
	"github.com/seatrial/seatrial/services/notifier/internal/attribute"

	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// MaxSize is how many bytes an event has at most, in either mode: what every CloudEvents intermediary must forward.
const MaxSize = 64 << 10

// ErrInvalid is returned for an outcome that lacks what every event has.
var ErrInvalid = errors.New("invalid outcome")

// kinds is what the kinds of outcomes look like: one that is new to this version makes an event like any other.
var kinds = regexp.MustCompile(`^[a-z]{1,32}$`)

// The blocks of an outcome that the attributes of an event can describe.
const (
	describesRequested = "requested"
	describesRunning   = "running"
)

// Make returns the event of an outcome. The outcome is not changed. The errors are about the outcome, and come again
// with it.
func Make(o *seatrialv1.Outcome, options attribute.Options) (cloudevents.Event, error) {
	e, err := envelope(o)
	if err != nil {
		return cloudevents.Event{}, err
	}
	described, chart := describe(o)
	mapping := attribute.Map(chart.GetAnnotations(), options)
	data := &seatrialv1.EventData{
		Outcome:    o,
		Described:  described,
		Attributes: mapping.Names,
		LeftOut:    mapping.LeftOut,
	}
	setOwn(&e, data, chart)
	for name, value := range mapping.Attributes {
		e.SetExtension(name, value)
	}
	e.SetDataContentType(wire.JSON)
	// Given to SetData as bytes it would become base64, and given as a value it would be escaped as if it stood in HTML.
	e.DataEncoded, err = encode(e, data)
	return e, err
}

// envelope returns an event with what every event has.
func envelope(o *seatrialv1.Outcome) (cloudevents.Event, error) {
	release, err := subject.ParseRelease(o.GetRelease())
	switch {
	case err != nil:
		return cloudevents.Event{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	case !kinds.MatchString(o.GetKind()):
		return cloudevents.Event{}, fmt.Errorf("%w: kind %q", ErrInvalid, o.GetKind())
	case attribute.CheckValue(o.GetId()) != "":
		return cloudevents.Event{}, fmt.Errorf("%w: id %q: %s", ErrInvalid, o.GetId(), attribute.CheckValue(o.GetId()))
	case o.GetTime().CheckValid() != nil:
		return cloudevents.Event{}, fmt.Errorf("%w: time: %w", ErrInvalid, o.GetTime().CheckValid())
	}
	e := cloudevents.New()
	e.SetID(o.GetId())
	e.SetType("dev.seatrial." + o.GetKind() + ".v1")
	e.SetSource("/seatrial/" + release.String())
	e.SetSubject(release.String())
	e.SetTime(o.GetTime().AsTime())
	return e, nil
}

// describe returns the chart that the attributes describe: the requested one until a rollback, then the running one.
// While the outcome does not know it, they describe none: those of the other one would tell something wrong.
func describe(o *seatrialv1.Outcome) (described string, chart *seatrialv1.ChartRevision) {
	described, chart = describesRequested, o.GetRequested()
	if o.GetKind() == seatrialv1.KindRolledBack || o.GetSettlement().GetResult() == seatrialv1.ResultRolledBack {
		described, chart = describesRunning, o.GetRunning()
	}
	if chart == nil {
		return "", nil
	}
	return described, chart
}

// setOwn sets Seatrial's own attributes; chart is the one that they describe. What the outcome does not know has no
// attribute, and what is no legal value is left out with its reason.
func setOwn(e *cloudevents.Event, data *seatrialv1.EventData, chart *seatrialv1.ChartRevision) {
	text := func(name, value string) {
		if value == "" {
			return
		}
		if reason := attribute.CheckValue(value); reason != "" {
			data.LeftOut = append(data.LeftOut, &seatrialv1.LeftOut{Attribute: name, Reason: reason})
			return
		}
		e.SetExtension(name, value)
	}
	number := func(name string, value int32) {
		if value != 0 {
			e.SetExtension(name, value)
		}
	}
	o := data.GetOutcome()
	release, _ := subject.ParseRelease(o.GetRelease()) // envelope has checked it
	text(attribute.Cluster, release.Cluster)
	text(attribute.HelmNamespace, release.Namespace)
	text(attribute.HelmRelease, release.Name)
	text(attribute.Revision, chart.GetVersion())
	number(attribute.HelmRevision, helmRevision(o, data.GetDescribed(), chart))
	number(attribute.Generation, int32(o.GetGeneration()))
	text(attribute.ChartName, chart.GetName())
	text(attribute.ChartAppVersion, chart.GetAppVersion())
	text(attribute.ChartDigest, chart.GetDigest())
	text(attribute.Verdict, verdict(o))
	text(attribute.Result, o.GetSettlement().GetResult())
	text(attribute.CorrelationID, o.GetRequest())
	text(attribute.TraceParent, o.GetTraceparent())
	if o.GetNumber() != 0 {
		text(attribute.CausationID, fmt.Sprintf("%s/%d", o.GetRelease(), o.GetNumber()))
	}
	if failed := failedRevision(o); failed != 0 {
		text(attribute.FailedRevision, o.GetRequested().GetVersion())
		number(attribute.FailedHelmRevision, failed)
	}
}

func verdict(o *seatrialv1.Outcome) string {
	if run := o.GetTestRun(); run != nil {
		return run.GetVerdict()
	}
	return o.GetSettlement().GetVerdict()
}

// failedRevision returns the Helm revision whose failure the outcome tells of, 0 if there is none.
func failedRevision(o *seatrialv1.Outcome) int32 {
	if failed := o.GetMutation().GetFailedRevision(); failed != 0 {
		return failed
	}
	return o.GetSettlement().GetFailedRevision()
}

// helmRevision returns Helm's number of the described chart, 0 where it has none yet. A requested block may not know it;
// what was done with it does.
func helmRevision(o *seatrialv1.Outcome, described string, chart *seatrialv1.ChartRevision) int32 {
	if described != describesRequested {
		return chart.GetHelmRevision()
	}
	var known int32
	switch o.GetKind() {
	case seatrialv1.KindDeployed, seatrialv1.KindDeployFailed:
		known = o.GetMutation().GetHelmRevision()
	case seatrialv1.KindTesting, seatrialv1.KindTested:
		known = cmp.Or(o.GetTestRun().GetHelmRevision(), o.GetRunning().GetHelmRevision())
	case seatrialv1.KindSettled:
		known = failedRevision(o)
		switch o.GetSettlement().GetResult() {
		case seatrialv1.ResultProven, seatrialv1.ResultDeployed, seatrialv1.ResultHeld:
			known = cmp.Or(known, o.GetRunning().GetHelmRevision())
		}
	default:
		known = failedRevision(o)
	}
	return cmp.Or(known, chart.GetHelmRevision())
}
