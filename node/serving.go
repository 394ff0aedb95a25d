package node

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
)

// cluster tells the HTTP interface who leads. While the cluster is being opened
// nobody does.
type cluster struct{ n *Node }

func (c cluster) Role() string { return strings.ToLower(string(c.n.State())) }

func (c cluster) Redirect() (string, bool) {
	if r := c.n.cluster.Load(); r != nil {
		return r.Redirect()
	}
	return "", false
}

func (c cluster) Confirm(ctx context.Context) error {
	if r := c.n.cluster.Load(); r != nil {
		return r.Confirm(ctx)
	}
	return event.ErrNotReady
}

func (c cluster) Ready() bool { return c.serves() && c.n.store.log.Load().Unhealthy() == nil }

// serves reports whether this node has all that requests need, but for what is damaged.
func (c cluster) serves() bool {
	log, err := c.n.store.Log()
	cluster := c.n.cluster.Load()
	if err != nil || cluster == nil {
		return false
	}
	doubt, diverged := cluster.Healthy()
	return doubt == nil && diverged == nil && cluster.Ready() && c.n.users.ready() == nil && log.Failed() == nil && c.n.load.done()
}

// Unhealthy says what is wrong with this node's disk, data or clock, nothing when all is well.
func (c cluster) Unhealthy() string {
	cluster := c.n.cluster.Load()
	if cluster == nil {
		return ""
	}
	doubt, diverged := cluster.Healthy()
	var damaged error
	if log, err := c.n.store.Log(); err == nil {
		damaged = log.Unhealthy()
	}
	if err := cmp.Or(cluster.Hangs(), diverged, doubt, cluster.Clock.Wrong(), damaged); err != nil {
		return err.Error()
	}
	return ""
}

// membership is the cluster as an operator sees it.
type membership struct{ n *Node }

// View is the cluster's, with the address at which clients reach this node. While
// the cluster is being opened this node knows itself only.
func (m membership) View() event.ClusterView {
	host, port := m.n.clientEndpoint()
	c := m.n.cluster.Load()
	if c == nil {
		return event.ClusterView{ServerHost: host, ServerPort: port, Members: []event.Member{{
			Time: time.Now(), State: event.StateInitializing, Alive: true, ReadOnly: m.n.config.ReadOnlyReplica, Priority: m.n.config.NodePriority,
			Version: m.n.opts.Version, HTTPHost: host, HTTPPort: port, LastCommit: -1, Writer: -1, Chaser: -1, EpochPosition: -1,
		}}}
	}
	view := c.View()
	view.ServerHost, view.ServerPort = host, port
	return view
}

func (m membership) State() event.NodeState { return m.n.State() }

func (m membership) SetPriority(priority int) error {
	if r := m.n.cluster.Load(); r != nil {
		return r.SetPriority(priority)
	}
	return event.ErrNotReady
}

// Resign hands leadership over. What runs by it is stopped before, and goes on if
// this node leads still.
func (m membership) Resign(ctx context.Context) error {
	c := m.n.cluster.Load()
	if c == nil {
		return event.ErrNotReady
	}
	again := m.n.leading.rest(m.n.running)
	defer again()
	return c.Resign(ctx)
}

func (m membership) AddMember(ctx context.Context, node string) error {
	if r := m.n.cluster.Load(); r != nil {
		return r.AddMember(ctx, node)
	}
	return event.ErrNotReady
}

func (m membership) RemoveMember(ctx context.Context, node string) error {
	if r := m.n.cluster.Load(); r != nil {
		return r.RemoveMember(ctx, node)
	}
	return event.ErrNotReady
}

// relayWhenThere relays requests as soon as there are other nodes to relay to.
type relayWhenThere struct{ n *Node }

func (r relayWhenThere) Relay(w http.ResponseWriter, request *http.Request) bool {
	relay := r.n.relay.Load()
	return relay != nil && relay.Relay(w, request)
}

var (
	_ httpapi.Cluster    = cluster{}
	_ httpapi.Membership = membership{}
	_ httpapi.Relay      = relayWhenThere{}
)
