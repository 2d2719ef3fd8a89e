package core

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// liftable says how inputs in quarantine can be deployed all the same.
const liftable = "change the chart, its values or the options, forgive them, or deploy with force"

// quarantine keeps the inputs of the active request from being deployed again: by the executor's key, and by the
// planner's own fingerprint where it knows all that decides the result.
func (d *decision) quarantine(reason string) {
	a, m := d.state.Active, d.outcome.GetMutation()
	q := &pb.Quarantined{
		Key:          cmp.Or(m.GetQuarantineKey(), a.QuarantineKey),
		Fingerprint:  fingerprint(a),
		Request:      a.Request.GetId(),
		HelmRevision: cmp.Or(m.GetHelmRevision(), a.Deployed.GetHelmRevision()),
		Reason:       cut(reason, maxNote),
		At:           d.timestamp(),
	}
	if q.Key == "" && q.Fingerprint == "" {
		return
	}
	d.state.Quarantine = slices.DeleteFunc(d.state.Quarantine, func(known *pb.Quarantined) bool {
		return known.GetKey() == q.Key && known.GetFingerprint() == q.Fingerprint
	})
	d.state.Quarantine = append(d.state.Quarantine, q)
}

// lift ends the quarantine of the inputs that the active request has proven.
func (d *decision) lift() {
	a := d.state.Active
	d.state.Quarantine = slices.DeleteFunc(d.state.Quarantine, func(q *pb.Quarantined) bool {
		return matches(q.GetKey(), a.QuarantineKey) || matches(q.GetFingerprint(), fingerprint(a)) ||
			q.GetHelmRevision() != 0 && q.GetHelmRevision() == d.state.Running.GetHelmRevision()
	})
}

// forgive ends the quarantine of the inputs that the request names, or of all.
func (d *decision) forgive() {
	r, s := d.admit(), d.state
	named, before := r.GetForgives(), len(s.Quarantine)
	s.Quarantine = slices.DeleteFunc(s.Quarantine, func(q *pb.Quarantined) bool {
		return named == "" || matches(q.GetKey(), named) || matches(q.GetFingerprint(), named)
	})
	switch lifted := before - len(s.Quarantine); {
	case lifted > 0:
		d.done(r, fmt.Sprintf("forgiven: %d of %d inputs in quarantine", lifted, before))
	case named == "":
		d.done(r, "nothing to forgive: nothing of "+s.Release+" is in quarantine")
	default:
		reason := fmt.Sprintf("%s is no key or fingerprint of inputs in quarantine at %s, where there are %d", named, s.Release, before)
		d.lastWord(r, &pb.Settlement{Result: pb.ResultRejected}, "rejected: "+reason, &pb.Failure{
			Class: pb.ClassRejected, Reason: reason, Next: "name one that seatrial.api.get shows, or none to forgive all",
		})
	}
}

// quarantined returns the entry of the inputs with this key or this fingerprint, nil if there is none.
func (d *decision) quarantined(key, fingerprint string) *pb.Quarantined {
	for _, q := range d.state.Quarantine {
		if matches(q.GetKey(), key) || matches(q.GetFingerprint(), fingerprint) {
			return q
		}
	}
	return nil
}

func matches(a, b string) bool { return a != "" && a == b }

// fingerprint returns the planner's own name for the inputs of the active request, empty where it does not know them
// all.
func fingerprint(a *pb.Active) string {
	values, chart := a.GetRequest().GetFingerprint(), a.GetRequested().GetDigest()
	if values == "" || chart == "" || a.Request.Verb != pb.VerbDeploy {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(chart+"\n"+values)))
}

// failedBefore says when and how the inputs have failed.
func failedBefore(q *pb.Quarantined) string {
	where := "request " + q.Request
	if q.HelmRevision != 0 {
		where = fmt.Sprintf("revision %d, request %s", q.HelmRevision, q.Request)
	}
	return fmt.Sprintf("it failed before (%s): %s", where, q.Reason)
}
