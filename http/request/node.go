package request

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/internal/http1"
)

// Node is what the requests to one node share.
type Node struct {
	Access   api.Access
	Leases   *api.Leases
	Cluster  api.Cluster
	Store    api.Store
	Shares   *api.Shares
	Memory   *api.Memory
	Activity api.Activity // nil: nothing is recorded
	Log      hclog.Logger

	Address *address.Names
	Fields  *http1.Fields // what every answer carries
	Open    Opening

	RequestTimeout time.Duration // bounds a read, writeTimeout a write
	WriteTimeout   time.Duration
	Draining       context.Context // ends when the node prepares for its end

	DisableCaching       bool
	Insecure             bool
	ReferenceStatusCodes bool
}

// KnowsLeader reports whether this node leads or knows who does.
func (n *Node) KnowsLeader() bool {
	_, other := n.Cluster.Redirect()
	return other || n.Cluster.Role() == RoleLeader
}
