package replication

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/annalsdb/annals/event"
)

// heardFor is how long it counts what another node said of itself. Nodes ask
// each other every second, and wait up to two for those that do not answer.
const heardFor = 5 * peerPace

// Progress says what this node is doing to take its part in the cluster, in a few words, and how
// many bytes of the log it has of how many; zeros where that cannot be said. doing is empty once
// the node has taken its part. It does not wait.
func (c *Cluster) Progress() (doing string, done, total int64) {
	state := c.State()
	switch state {
	case event.StateInitializing:
		return "starting", 0, 0
	case event.StateDiscoverLeader:
		return c.Standing.explain("looking for the other nodes"), 0, 0
	case event.StateShuttingDown, event.StateShutdown:
		return "shutting down", 0, 0
	}
	hindered := cmp.Or(c.pull.waiting.get(), c.join.waiting.get())
	own := c.self.end()
	done, total = own, own
	if wanted, ok := c.lead.wanted(); ok && wanted > own {
		// What there is of a file becomes part of the log when it is whole.
		done, total = min(own+c.pull.partly.Load(), wanted), wanted
	}
	switch {
	case c.join.removed.Load():
		return c.Standing.Removed().Error(), 0, 0
	case state == event.StateLeader, state == event.StateResigningLeader:
		return "", own, own
	case state == event.StatePreLeader && c.lead.few.Load() && c.incarnations.apart.Load() > 0:
		doing = "waiting for enough nodes to form the cluster, and admitting none while others follow another history of it"
	case state == event.StatePreLeader && c.lead.few.Load():
		doing = "waiting for enough nodes to form the cluster"
	case state == event.StatePreLeader:
		doing = "taking the lead"
	case state == event.StateUnknown, state == event.StateReadOnlyLeaderless:
		doing = "waiting for a leader"
		if e := c.Standing.NoLeader(); e != nil {
			doing += ": " + e.Error()
			done, total = 0, 0
		}
		doing = c.Standing.explain(doing)
	case hindered != nil:
		return hindered.Error(), 0, 0
	case c.pull.active.Load(), c.self.replica.Load() == nil && done < total:
		doing = "fetching the log from other nodes"
	case c.CaughtUp():
		return "", done, total
	case state == event.StatePreReplica, state == event.StatePreReadOnlyReplica:
		doing = "joining the cluster"
	default:
		doing = "catching up"
	}
	return doing, done, total
}

// CaughtUp reports whether this node has what the cluster has. A leader does once it may
// acknowledge writes. Any other node does if its log, applied and readable, reaches where the
// leader's ended when the leader was heard last, or half a second to a few seconds before that:
// both logs grow meanwhile, and events written in that time may be on their way. It does not if no
// leader is known, if the leader has not been heard for five seconds, or if this node must not
// serve its data.
func (c *Cluster) CaughtUp() bool {
	if l, _ := c.Leadership(); l.Leading {
		return true
	}
	if c.self.replica.Load() == nil || c.join.removed.Load() || c.incarnations.diverged.get() != nil {
		return false
	}
	p, ok := c.peers.heard(c.lead.leader())
	return ok && c.self.end() >= min(p.status.Tail.End, p.before.end)
}

// LeaderEnd asks the leader how far its log reaches that is applied: whatever was
// acknowledged before the call lies below that, for a majority confirms that it leads. Without a
// leader it is event.ErrNotReady.
func (c *Cluster) LeaderEnd(ctx context.Context) (int64, error) {
	if l, _ := c.Leadership(); l.Leading {
		if err := c.Writes.Confirm(ctx); err != nil {
			return 0, err
		}
		return c.self.end(), nil
	}
	if !c.Started() {
		return 0, event.ErrNotReady
	}
	m, ok := c.peers.member(c.lead.leader())
	if !ok {
		return 0, event.ErrNotReady
	}
	var s Status
	if err := c.caller.call(ctx, m.ReplicationAddress, http.MethodGet, "/status?"+queryConfirmed, nil, &s); err != nil {
		return 0, fmt.Errorf("ask the leader for the end of its log: %w", err)
	}
	return s.Tail.End, nil
}
