package api

import (
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
)

// Defaults of the waits, and of sizes in bytes.
const (
	DefaultWriteTimeout = 4 * time.Second
	DefaultReadTimeout  = 10 * time.Second

	// MaxAppendBytes bounds data and metadata of all events of one append.
	MaxAppendBytes = 16 << 20
)

// Node is a node as its interfaces serve it. Store, Cluster and Access must be set; the zero value
// of everything else works.
type Node struct {
	Store   Store
	Cluster Cluster
	Access  Access

	// What is nil is not served.
	Membership    Membership
	Users         Users
	Subscriptions Subscriptions
	Projections   Projections
	Operations    Operations
	Index         Index
	Scavenges     Scavenges
	Statistics    Statistics

	Logger        hclog.Logger
	Leases        *Leases        // judge callers again while requests last; default: new ones
	Shares        *Shares        // bounds what callers hold; default: a new one
	Memory        *Memory        // what requests of all interfaces share; nil: they have no bound
	Activity      Activity       // nil: nothing is recorded
	RefusedLogins *RefusedLogins // logs wrong credentials; nil: they are not logged
	Many          *ManyMetrics   // counts writes to several streams; nil: they are not counted
	Queries       *QueryMetrics  // counts queries; nil: they are not counted
	Waits         *WaitMetrics   // counts waits for positions; nil: they are not counted
	LogRequests   bool           // one line for every request

	Now func() time.Time // the clock by which events are written, default time.Now

	WriteTimeout time.Duration // bounds the wait for a write
	ReadTimeout  time.Duration // bounds a read, or one page of it, but not how long a poll waits

	// MaxEventBytes bounds data plus metadata of one event; at most, and by default,
	// event.MaxEventBytes.
	MaxEventBytes int
	// MaxAppendBytes bounds data plus metadata of all events of one append; at most, and by
	// default, the constant MaxAppendBytes.
	MaxAppendBytes int64

	Open     Opening // what callers without credentials may do
	Insecure bool    // no authentication and no rights
}

// EnsureDefaults sets the fields that are zero to their defaults.
func (n *Node) EnsureDefaults() {
	if n.Leases == nil {
		n.Leases = NewLeases(n.Access)
	}
	if n.Now == nil {
		n.Now = time.Now
	}
	if n.Logger == nil {
		n.Logger = hclog.NewNullLogger()
	}
	if n.Shares == nil {
		n.Shares = NewShares(SharesOptions{Insecure: n.Insecure})
	}
	if n.WriteTimeout <= 0 {
		n.WriteTimeout = DefaultWriteTimeout
	}
	if n.ReadTimeout <= 0 {
		n.ReadTimeout = DefaultReadTimeout
	}
	if n.MaxEventBytes <= 0 || n.MaxEventBytes > event.MaxEventBytes {
		n.MaxEventBytes = event.MaxEventBytes
	}
	if n.MaxAppendBytes <= 0 || n.MaxAppendBytes > MaxAppendBytes {
		n.MaxAppendBytes = MaxAppendBytes
	}
}

// Validate returns an error if the node is not valid.
func (n *Node) Validate() error {
	if n.Store == nil || n.Cluster == nil || n.Access == nil {
		return errors.New("store, cluster and access must be set")
	}
	return nil
}
