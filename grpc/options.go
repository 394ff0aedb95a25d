package grpcapi

import (
	"errors"
	"math"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Defaults of the waits, and of sizes in bytes.
const (
	DefaultWriteTimeout = 4 * time.Second
	DefaultReadTimeout  = 10 * time.Second
	DefaultStatsPeriod  = 30 * time.Second

	// MaxAppendBytes bounds data and metadata of all events of one append.
	MaxAppendBytes = 16 << 20

	DefaultMaxHeaderBytes = 256 << 10
)

// Options configures a Server. Store, Cluster and Access must be set; the zero value of everything
// else works.
type Options struct {
	Store   api.Store
	Cluster api.Cluster
	Access  api.Access
	// Leases judge callers again while their calls last; nil: the server has leases of its own.
	Leases *api.Leases
	Logger hclog.Logger
	Stats  *stats.Registry // may be nil

	// Membership serves gossip, which is not there without it.
	Membership api.Membership

	// Version is the release of EventStoreDB that has this interface: three numbers.
	Version string

	// WriteTimeout bounds the wait for a write.
	WriteTimeout time.Duration
	// ReadTimeout bounds one page of a read.
	ReadTimeout time.Duration

	// IdleTimeout is after how long without a call a connection is closed. PingAfter and
	// PingTimeout are when a client that is silent is pinged, and when it counts as gone without an
	// answer. 0: no connection is closed, or no client pinged.
	IdleTimeout            time.Duration
	PingAfter, PingTimeout time.Duration
	// MaxHeaderBytes bounds the metadata of a call.
	MaxHeaderBytes int

	// MaxEventBytes bounds data plus metadata of one event; at most, and by
	// default, event.MaxEventBytes.
	MaxEventBytes int
	// MaxAppendBytes bounds data plus metadata of all events of one append; at most, and by
	// default, the constant MaxAppendBytes.
	MaxAppendBytes int64
	// Memory is what requests of all interfaces share. Nil: they have no bound.
	Memory *api.Memory

	// GossipIsOpen lets callers without credentials see the members of the cluster.
	GossipIsOpen bool
	// StatsAreOpen lets callers without credentials see statistics.
	StatsAreOpen bool
	Insecure     bool // no authentication and no rights

	LogCalls      bool               // one line for every call
	RefusedLogins *api.RefusedLogins // logs wrong credentials; nil: they are not logged

	Projections api.Projections // nil: not served
	Users       api.Users       // nil: not served
	Statistics  api.Statistics  // nil: monitoring is not served
	// StatsPeriod is the time from one message with statistics to the next where the client
	// names none.
	StatsPeriod time.Duration

	// Shares bounds what callers hold. Default: one of this interface's own.
	Shares *api.Shares

	// Operations acts on this node, with Membership, Scavenges and Subscriptions, which must
	// be set then. Nil: not served.
	Operations api.Operations
	Scavenges  api.Scavenges
	Activity   api.Activity // nil: nothing is recorded
	// Subscriptions serves persistent subscriptions, which are not there without it.
	Subscriptions api.Subscriptions

	ticks <-chan time.Time // when to look for stalled calls; nil: a clock says
}

func (o *Options) ensureDefaults() {
	if o.Leases == nil {
		o.Leases = api.NewLeases(o.Access)
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = DefaultWriteTimeout
	}
	if o.ReadTimeout <= 0 {
		o.ReadTimeout = DefaultReadTimeout
	}
	if o.MaxEventBytes <= 0 || o.MaxEventBytes > event.MaxEventBytes {
		o.MaxEventBytes = event.MaxEventBytes
	}
	if o.MaxAppendBytes <= 0 || o.MaxAppendBytes > MaxAppendBytes {
		o.MaxAppendBytes = MaxAppendBytes
	}
	if o.MaxHeaderBytes <= 0 {
		o.MaxHeaderBytes = DefaultMaxHeaderBytes
	}
	if o.PingAfter <= 0 {
		o.PingAfter, o.PingTimeout = math.MaxInt64, time.Minute
	}
	if o.Shares == nil {
		o.Shares = api.NewShares(api.SharesOptions{Insecure: o.Insecure})
	}
	if o.StatsPeriod <= 0 {
		o.StatsPeriod = DefaultStatsPeriod
	}
}

// Validate returns an error if the options are not valid.
func (o *Options) Validate() error {
	if o.Store == nil || o.Cluster == nil || o.Access == nil {
		return errors.New("grpc: store, cluster and access must be set")
	}
	if o.Operations != nil && (o.Membership == nil || o.Scavenges == nil || o.Subscriptions == nil) {
		return errors.New("grpc: operations need membership, scavenges and subscriptions")
	}
	return nil
}
