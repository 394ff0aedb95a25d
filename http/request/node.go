package request

import (
	"context"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/internal/http1"
)

// Node is what the requests to one node share.
type Node struct {
	Access   Access
	Leases   *api.Leases
	Cluster  Cluster
	Store    payloads
	Shares   *api.Shares
	Memory   *api.Memory
	Activity Activity // nil: nothing is recorded
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

// payloads are the records of the log.
type payloads interface {
	// ReadPayload reads data and metadata of a record that a page left bare;
	// event.ErrEventNotFound when they are gone.
	ReadPayload(ctx context.Context, r *event.Record) error
	// LogEnd returns the position where the next record will lie.
	LogEnd() int64
}

// KnowsLeader reports whether this node leads or knows who does.
func (n *Node) KnowsLeader() bool {
	_, other := n.Cluster.Redirect()
	return other || n.Cluster.Role() == RoleLeader
}

// Activity records who changed what.
type Activity interface {
	// Begin announces a change, and reports whether it may be made: not when the node ends
	// and nothing more is recorded. End follows.
	Begin() bool
	End()
	// Note has an operation recorded. If it was done it waits while too many wait to be
	// written.
	Note(o activity.Operation)
}

// Cluster knows who leads.
type Cluster interface {
	// Role is this node's state in lower case: "leader", "follower" and so on.
	Role() string
	// Redirect returns the base URI of the leader's client address. It is ok only
	// when this node is not the leader and knows who is.
	Redirect() (leader string, ok bool)
	// Confirm returns nil when this node was the leader at some time after the
	// call began and has applied all that was committed before it.
	Confirm(ctx context.Context) error
	// Ready reports whether the node serves requests.
	Ready() bool
	// Serves reports whether the node answers requests for what it has, also without a leader.
	Serves() bool
	// Leaderless says why the node knows of no leader; empty when it knows one, or not why.
	Leaderless() string
	// Unhealthy describes the problem of the node itself; empty when it has none.
	Unhealthy() string
}

// Access knows callers and their rights.
type Access interface {
	// Authenticate names the caller: event.ErrNotAuthorized for wrong credentials,
	// event.ErrNotInitialized when they cannot be checked yet. A request without
	// credentials is an anonymous caller, not an error.
	Authenticate(r *http.Request) (access.Principal, error)
	// Renew returns the caller as it is now, with the errors of Authenticate.
	Renew(ctx context.Context, p access.Principal) (access.Principal, error)
	// CheckStream returns event.ErrNotAuthorized when the caller lacks the right.
	// The rights of a metadata stream are the metadata rights of its original.
	CheckStream(ctx context.Context, p access.Principal, stream string, right access.Right) error
	// MayRead reports whether the caller has the right to read a stream, of which info is what
	// is known. It decides which links are resolved.
	MayRead(ctx context.Context, p *access.Principal, stream string, info *event.StreamInfo) (bool, error)
}
