package node

import (
	"context"

	"github.com/annalsdb/annals/event"
)

// WriteAnywhere does a client's write at a node.
func WriteAnywhere(ctx context.Context, n *Node, w *event.Write) (event.Written, error) {
	return n.store.WriteAnywhere(ctx, w)
}

// LeaderOf is where a node says that clients reach the leader, if that is another one.
func LeaderOf(n *Node) (address string, ok bool) { return n.part().Redirect() }

// LogEnd is where the log of a node ends.
func LogEnd(n *Node) int64 { return n.store.LogEnd() }

// Leads reports whether a node leads.
func Leads(n *Node) bool { return n.part().Leading() }
