package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
)

// Peer is another node, as gossip shows it.
type Peer struct {
	Node        event.ID
	Cluster     event.ID // zero for a node without cluster state
	Address     string   // for Call
	ReadOnly    bool
	Alive       bool
	ClusterSize int
	Since       time.Time // since when Alive is what it is; zero if not known
}

// Outcome is how a node's search for a cluster ends.
type Outcome struct {
	Cluster event.ID
	Form    bool // this node creates the cluster, as its only voter; otherwise it joins it
}

// Options of an Engine. Node, ClusterSize, Store, Peers, Changed and Call must be
// given; what else is zero gets a default.
type Options struct {
	Node        event.ID // as Identify returned it
	Cluster     event.ID // that this node has state of; zero for a fresh node
	ClusterSize int      // voters that the cluster is to have, 1 to MaxClusterSize
	ReadOnly    bool     // this node never counts, and joins what others form
	Store       Store
	Logger      hclog.Logger // default: none

	// Peers returns the other nodes that this one sees, also dead ones as long as they are known,
	// and Changed a channel that is closed, or gets a value, when that changes after the call. It
	// may be incomplete, late or wrong: that delays a cluster and never makes two of it.
	Peers   func() []Peer
	Changed func() <-chan struct{}

	// Call brings a request to the Handle of the node at an address. It returns when ctx ends.
	// After an error the other node may have handled the request or may do so yet.
	Call func(ctx context.Context, address string, r Request) (Answer, error)

	// RecordPlace names what an operator removes, with the node stopped, so that
	// it forgets its promise and its id. Log lines name it. Default "raft".
	RecordPlace string

	// a node that cannot take part for so long is done without, if there are others; default 10 s
	GoneAfter time.Duration
}

const (
	// between two calls to a node while something hangs on its answer
	pollInterval   = 100 * time.Millisecond
	askInterval    = time.Second      // between two calls to a node for want of news
	callTimeout    = time.Second      // of one call
	reportInterval = 30 * time.Second // between log lines of a node that waits
)

// EnsureDefaults replaces zero values by defaults.
func (o *Options) EnsureDefaults() {
	o.GoneAfter = cmp.Or(o.GoneAfter, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	o.RecordPlace = cmp.Or(o.RecordPlace, "raft")
}

// Validate reports what cannot work.
func (o *Options) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(o.Node.IsZero(), "Node must be given")
	bad(o.ClusterSize < 1 || o.ClusterSize > MaxClusterSize, "ClusterSize %d: must be 1 to %d", o.ClusterSize, MaxClusterSize)
	bad(o.ReadOnly && o.ClusterSize == 1, "a read-only node needs a ClusterSize above 1")
	bad(o.Store == nil || o.Peers == nil || o.Changed == nil || o.Call == nil, "Store, Peers, Changed and Call must be given")
	bad(o.GoneAfter < 0, "GoneAfter must not be negative")
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bootstrap options: %w", err)
	}
	return nil
}
