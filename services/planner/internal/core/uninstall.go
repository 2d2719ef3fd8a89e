package core

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	pb "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// startUninstall removes what is there, be it known here or not: somebody may have deployed it by hand.
func (d *decision) startUninstall() {
	a := d.state.Active
	a.Requested = proto.CloneOf(d.state.Running)
	d.enter(pb.PhaseUninstalling)
	d.command()
}

// takeAway removes a first install, because of the failure of the input.
func (d *decision) takeAway() {
	a := d.state.Active
	a.Failure = d.failure
	a.FailedRevision = d.state.Running.GetHelmRevision()
	if !d.giveWay() {
		d.enter(pb.PhaseUninstalling)
		d.command()
	}
}

// uninstallOptions returns how the active request uninstalls: what a deploy has asked for holds for its removal as well.
func uninstallOptions(a *pb.Active) *pb.UninstallOptions {
	if asked := a.GetRequest().GetUninstall(); asked != nil {
		return asked
	}
	u := a.GetRequest().GetUpgrade()
	options := &pb.UninstallOptions{Timeout: u.GetTimeout(), DisableHooks: u.GetDisableHooks()}
	if u != nil {
		options.Wait = u.Wait
	}
	return options
}

// uninstalled is the end of every uninstall, also of what was not there.
func (d *decision) uninstalled() {
	a, m := d.state.Active, d.outcome.GetMutation()
	a.Open = nil
	if was := d.outcome.GetRequested(); was != nil && a.Failure == nil { // the record knows best
		if !same(a.Requested, was) {
			a.Requested = nil
		}
		a.Requested = copied(a.Requested)
		proto.Merge(a.Requested, was)
	}
	d.gone()
	what := fmt.Sprintf("%s (revision %d) is uninstalled", title(a.Requested), m.GetFromRevision())
	switch {
	case a.Failure != nil:
		d.settle(pb.ResultUninstalled, "uninstalled: "+also(a.Failure.Reason, what), a.Failure)
	case m.GetFromRevision() == 0 && !m.GetRecovered():
		d.settle(pb.ResultUninstalled, fmt.Sprintf("nothing was there: %s is uninstalled", d.state.Release), nil)
	case uninstallOptions(a).GetKeepHistory():
		d.settle(pb.ResultUninstalled, what+"; its history is kept", nil)
	default:
		d.settle(pb.ResultUninstalled, what, nil)
	}
}
