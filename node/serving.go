package node

import (
	"cmp"
	"context"
	"strings"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/replication"
)

// part is this node's part in its cluster, as clients and operators see it.
type part struct {
	*replication.Cluster
	n *Node
}

func (n *Node) part() part { return part{n.cluster, n} }

var (
	_ api.Cluster     = part{}
	_ api.Membership  = part{}
	_ httpapi.Startup = part{}
)

func (p part) Role() string { return strings.ToLower(string(p.State())) }

func (p part) Leading() bool {
	l, _ := p.Leadership()
	return l.Leading
}

func (p part) Ready() bool {
	log, err := p.n.store.Log()
	return err == nil && p.serves() && log.Health.Unhealthy() == nil
}

// serves reports whether this node has all that requests need, but for what is damaged.
func (p part) serves() bool {
	log, err := p.n.store.Log()
	unsure, diverged := p.Healthy()
	return err == nil && unsure == nil && diverged == nil && p.Cluster.Ready() && p.n.users.ready() == nil && log.Failed() == nil && p.n.load.done()
}

// Serves reports whether this node serves reads, be there a leader or not.
func (p part) Serves() bool {
	log, err := p.n.store.Log()
	unsure, diverged := p.Healthy()
	return err == nil && unsure == nil && diverged == nil && p.Standing.Serves() && p.n.users.ready() == nil && log.Failed() == nil && log.Health.Unhealthy() == nil && p.n.load.done()
}

// Leaderless says which nodes are missing for a leader, and what keeps them away.
func (p part) Leaderless() string {
	why := p.Standing.Distrust()
	e := p.Standing.NoLeader()
	switch {
	case e == nil:
		return why
	case why == "":
		return e.Error()
	}
	return e.Error() + "; " + why
}

// Unhealthy describes a problem of this node's disk, data or clock; empty when there is none.
func (p part) Unhealthy() string {
	if !p.Started() {
		return ""
	}
	unsure, diverged := p.Healthy()
	var damaged error
	if log, err := p.n.store.Log(); err == nil {
		damaged = log.Health.Unhealthy()
	}
	if err := cmp.Or(p.Hangs(), p.Standing.Removed(), diverged, unsure, p.Clock.Wrong(), damaged, p.full(), p.n.groups.Trouble()); err != nil {
		return err.Error()
	}
	return ""
}

func (p part) Confirm(ctx context.Context) error { return p.Writes.Confirm(ctx) }

// Resign hands leadership over. Services that run on the leader are stopped first. They resume if
// this node still leads.
func (p part) Resign(ctx context.Context) error {
	if !p.Started() {
		return event.ErrNotReady
	}
	defer p.n.leading.rest(p.n.running)()
	return p.Cluster.Resign(ctx)
}
