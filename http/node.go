package httpapi

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/http1"
)

// node is what the requests to one node share.
type node struct {
	access   Access
	leases   *api.Leases
	cluster  Cluster
	store    payloads
	shares   *api.Shares
	memory   *api.Memory
	activity Activity // nil: nothing is recorded
	log      hclog.Logger

	address *names
	fields  *http1.Fields // what every answer carries
	open    opening

	requestTimeout time.Duration // bounds a read, writeTimeout a write
	writeTimeout   time.Duration
	draining       context.Context // ends when the node prepares for its end

	disableCaching       bool
	insecure             bool
	referenceStatusCodes bool
}

// payloads are the records of the log.
type payloads interface {
	// ReadPayload reads data and metadata of a record that a page left bare;
	// event.ErrEventNotFound when they are gone.
	ReadPayload(ctx context.Context, r *event.Record) error
	// LogEnd returns the position where the next record will lie.
	LogEnd() int64
}

func (n *node) knowsLeader() bool {
	_, other := n.cluster.Redirect()
	return other || n.cluster.Role() == roleLeader
}
