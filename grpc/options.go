package grpcapi

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/stats"
)

const (
	DefaultStatsPeriod    = 30 * time.Second
	DefaultMaxHeaderBytes = 256 << 10
)

// Options configures a Server. Store, Cluster and Access must be set; the zero value of everything
// else works.
type Options struct {
	// Membership serves gossip. Operations acts on this node, with Membership, Scavenges and
	// Subscriptions, which must be set then.
	api.Node

	Stats *stats.Registry // may be nil

	// Version is the release of EventStoreDB that has this interface: three numbers.
	Version string

	// IdleTimeout is after how long without a call a connection is closed. PingAfter and
	// PingTimeout are when a client that is silent is pinged, and when it counts as gone without an
	// answer. 0: no connection is closed, or no client pinged.
	IdleTimeout            time.Duration
	PingAfter, PingTimeout time.Duration
	// MaxHeaderBytes bounds the metadata of a call.
	MaxHeaderBytes int

	// StatsPeriod is the time from one message with statistics to the next where the client
	// names none.
	StatsPeriod time.Duration

	ticks <-chan time.Time // when to look for stalled calls; nil: a clock says
}

func (o *Options) ensureDefaults() {
	o.Node.EnsureDefaults()
	if o.MaxHeaderBytes <= 0 {
		o.MaxHeaderBytes = DefaultMaxHeaderBytes
	}
	if o.PingAfter <= 0 {
		o.PingAfter, o.PingTimeout = math.MaxInt64, time.Minute
	}
	if o.StatsPeriod <= 0 {
		o.StatsPeriod = DefaultStatsPeriod
	}
}

// Validate returns an error if the options are not valid.
func (o *Options) Validate() error {
	if err := o.Node.Validate(); err != nil {
		return fmt.Errorf("grpc: %w", err)
	}
	if o.Operations != nil && (o.Membership == nil || o.Scavenges == nil || o.Subscriptions == nil) {
		return errors.New("grpc: operations need membership, scavenges and subscriptions")
	}
	return nil
}
