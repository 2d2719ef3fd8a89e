package action

import (
	"context"
	"fmt"
	"strconv"
	"time"

	helmrelease "helm.sh/helm/v3/pkg/release"
	helmtime "helm.sh/helm/v3/pkg/time"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seatrial/seatrial/internal/helm/release"
	"github.com/seatrial/seatrial/internal/kit/fault"
	seatrialv1 "github.com/seatrial/seatrial/proto/seatrial/v1"
)

// unblock reads the records, and sees to it that none of them is pending; nor half uninstalled, where this is no uninstall.
//
// One that a former command has left is marked as failed: its holder cannot write any more. One that somebody else has
// made, a person with the Helm CLI, may be at work: it is left alone and waited for, until it is older than the operation's
// time-out. If that happens while this command waits, it gives up; an older one that is found is taken for dead, and
// marked as failed.
func (op *operation) unblock(ctx context.Context) error {
	following, stop := context.WithCancel(ctx)
	defer stop()
	var changed <-chan struct{}
	var waitedFor int
	for {
		if err := op.read(); err != nil {
			return err
		}
		last := op.pending()
		if last == nil {
			return nil
		}
		if number, own := begunBy(last); own && number <= op.Command.GetNumber() {
			return op.abandon(last, fmt.Sprintf("command %d was interrupted", number))
		}
		holder, dead := op.holder(ctx, last), begunAt(last).Add(op.timeout)
		left := time.Until(dead.Time)
		switch {
		case left > 0 && waitedFor != last.Version:
			if err := op.blocked(ctx, op.inTheWay(last, holder, "it is waited for until %s", dead.UTC().Format(time.RFC3339))); err != nil {
				return err
			}
			changed, waitedFor = op.client.FollowSecret(following, op.release.Namespace, recordName(last)), last.Version
		case left <= 0 && waitedFor == last.Version:
			return op.inTheWay(last, holder, "it has not ended within the time-out of %s", op.timeout)
		case left <= 0:
			return op.abandon(last, fmt.Sprintf("left %s by %s, taken over by command %d", last.Info.Status, holder, op.Command.GetNumber()))
		}
		select {
		case <-changed:
		case <-time.After(left):
		case <-ctx.Done():
			return fault.New(seatrialv1.ClassInterrupted, "", "%w", context.Cause(ctx))
		}
	}
}

// inTheWay says that somebody else's operation is in the way.
func (op *operation) inTheWay(rel *helmrelease.Release, holder, format string, args ...any) error {
	return fault.New(seatrialv1.ClassBlocked,
		"let that operation end; if its process is gone, ask again and it is taken over, or mend the release with `helm rollback`",
		"revision %d is %s, begun by %s at %s: %s", rel.Version, rel.Info.Status, holder,
		begunAt(rel).UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}

// blocked tells that the operation waits.
func (op *operation) blocked(ctx context.Context, why error) error {
	if op.Blocked == nil {
		return nil
	}
	if err := op.Blocked(ctx, op.failure(why)); err != nil {
		return fault.New(seatrialv1.ClassInterrupted, "", "the waiting was not announced: %w", err)
	}
	return nil
}

// pending returns the newest record if it is pending, or half uninstalled and not to be uninstalled.
func (op *operation) pending() *helmrelease.Release {
	if len(op.history) == 0 {
		return nil
	}
	last := op.history[len(op.history)-1]
	half := last.Info.Status == helmrelease.StatusUninstalling && op.Command.GetUninstall() == nil
	if half || last.Info.Status.IsPending() {
		return last
	}
	return nil
}

// begunBy returns the number of the command that has begun what a record says to be under way, if it was one.
func begunBy(rel *helmrelease.Release) (number uint32, own bool) {
	if rel.Info.Status == helmrelease.StatusUninstalling {
		n, err := strconv.ParseUint(rel.Labels[labelUninstall], 10, 32)
		return uint32(n), err == nil
	}
	stamp, own := release.StampOf(rel)
	return stamp.Number, own
}

// begunAt returns when that was.
func begunAt(rel *helmrelease.Release) helmtime.Time {
	if rel.Info.Status == helmrelease.StatusUninstalling {
		return rel.Info.Deleted
	}
	return rel.Info.LastDeployed
}

// abandon marks a pending record as failed.
func (op *operation) abandon(rel *helmrelease.Release, why string) error {
	op.log.Warn("a pending record is marked as failed", "revision", rel.Version, "reason", why)
	rel.SetStatus(helmrelease.StatusFailed, why)
	rel.Labels = labelled(rel.Labels, map[string]string{labelClass: seatrialv1.ClassInterrupted})
	if err := op.storage.Update(rel); err != nil {
		return fmt.Errorf("mark revision %d as failed: %w", rel.Version, err)
	}
	return nil
}

// holder says who has made a record, as far as the API server knows.
func (op *operation) holder(ctx context.Context, rel *helmrelease.Release) string {
	secret, err := op.client.Clientset.CoreV1().Secrets(op.release.Namespace).Get(ctx, recordName(rel), metav1.GetOptions{})
	if err != nil || len(secret.ManagedFields) == 0 {
		return "an unknown program"
	}
	return fmt.Sprintf("the program %q", secret.ManagedFields[len(secret.ManagedFields)-1].Manager)
}

// recordName returns the name of the Secret that holds a record.
func recordName(rel *helmrelease.Release) string {
	return fmt.Sprintf("sh.helm.release.v1.%s.v%d", rel.Name, rel.Version)
}
