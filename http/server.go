package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/doctor"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/http/admin"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/request"
)

// Defaults of the waits. A write may wait for both its parts.
const (
	DefaultPrepareTimeout = 2 * time.Second
	DefaultCommitTimeout  = 2 * time.Second
	DefaultRequestTimeout = 10 * time.Second
)

// Options configures a Server. Store, Cluster, Access and Health must be set; the zero value of
// everything else works.
type Options struct {
	Store   api.Store
	Cluster api.Cluster
	Access  api.Access
	// Leases judge callers again while their requests last; nil: the server has leases of its own.
	Leases *api.Leases
	Logger hclog.Logger

	// Membership serves /gossip and what /admin has of the cluster, which are not
	// there without it.
	Membership api.Membership
	// Relay takes requests to the leader when this node is not it: reads that only
	// the leader can answer, and writes with RelayWrites. Otherwise, or when it is nil,
	// the client is redirected.
	Relay       leader.Relay
	RelayWrites bool

	// Users serves /users, which is not there without it.
	Users api.Users
	// Subscriptions serves /subscriptions, which is not there without it.
	Subscriptions api.Subscriptions
	// Projections serves /projections and /projection, which are not there without it.
	Projections api.Projections
	// Operations serves what /admin has for this node alone.
	Operations api.Operations
	// Scavenges serves /admin/scavenge, which is not there without it.
	Scavenges api.Scavenges
	// Backups serves /admin/backup/sessions, which is not there without it.
	Backups admin.BackupSessions
	// Redactions serves /admin/redact, which is not there without it.
	Redactions admin.Redactions
	// BackupRuns serves the rest of /admin/backup, which is not there without it.
	BackupRuns admin.Backups
	// Activity has changes recorded. Nil: nothing is.
	Activity api.Activity
	// Doctor examines the node for /admin/doctor, which is not there without it.
	Doctor func(context.Context) []doctor.Line
	// Statistics serves /stats, /metrics and /histogram.
	Statistics api.Statistics
	// Settings are the options of the node, for /info/options.
	Settings func() []config.Value
	// Health serves /health/live.
	Health Health
	// Startup serves /health/ready and /health/startup. Nil: the node has started.
	Startup Startup
	// Subsystems names the parts of the node that run. Nil: none.
	Subsystems func() []string
	// ProjectionsMode says which projections the node runs: None (also the empty text), System or
	// All.
	ProjectionsMode string

	// WebDir holds a web interface that is served below /web. Nil: there is none.
	WebDir fs.FS

	// UIDir holds the files of our own web interface while it is worked on. Nil: those
	// that are built in.
	UIDir fs.FS

	// WebTitle and WebTone are what the web interface shows on top; an empty tone is None.
	WebTitle string
	WebTone  string

	// Version is the product's own version, shown next to the compatible one.
	Version string

	// AdvertiseHost and AdvertisePort take the place of host and port of the
	// request in addresses that clients are given.
	AdvertiseHost string
	AdvertisePort int

	// HostNames are the names by which clients call this node, in addition to those of loopback and
	// the address of the connection. *.example.com stands for all names below that one, * for every
	// name. In insecure mode a name that is not known is refused.
	HostNames []string

	// PrepareTimeout and CommitTimeout together bound the wait for a write,
	// RequestTimeout that for a read, a long poll's own time not counted.
	PrepareTimeout time.Duration
	CommitTimeout  time.Duration
	RequestTimeout time.Duration

	// MaxEventBytes bounds data plus metadata of one event; at most, and by
	// default, event.MaxEventBytes.
	MaxEventBytes int
	// MaxAppendBytes bounds data plus metadata of all events of one request, where
	// the operator wants less than the store can take; 0: no bound of its own.
	MaxAppendBytes int64

	// Shares bounds what callers hold. Default: one of this interface's own.
	Shares *api.Shares
	// Memory is what requests of all interfaces share. Nil: they have no bound.
	Memory *api.Memory

	RefusedLogins *api.RefusedLogins // logs wrong credentials; nil: they are not logged

	DisableHTTPCaching bool // every 200 says that it must not be kept
	// no redirects to the web interface, nothing below /admin, no /sys/subsystems
	DisableAdminUI bool
	DisableGossip  bool // no /gossip
	DisableStats   bool // no /stats and no /metrics
	DisableAtomPub bool // no /streams
	LogRequests    bool // one line for every request

	// ReferenceStatusCodes makes the server answer with EventStoreDB's status codes where ours
	// differ.
	ReferenceStatusCodes bool
	Insecure             bool // no authentication and no rights, as /info tells it

	// /gossip is open to callers without credentials when either is true.
	OverrideAnonymousEndpointAccessForGossip bool
	AllowAnonymousEndpointAccess             bool
}

// EnsureDefaults sets the fields that are zero to their defaults.
func (o *Options) EnsureDefaults() {
	if o.Leases == nil {
		o.Leases = api.NewLeases(o.Access)
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.PrepareTimeout <= 0 {
		o.PrepareTimeout = DefaultPrepareTimeout
	}
	if o.CommitTimeout <= 0 {
		o.CommitTimeout = DefaultCommitTimeout
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = DefaultRequestTimeout
	}
	if o.Shares == nil {
		o.Shares = api.NewShares(api.SharesOptions{Insecure: o.Insecure})
	}
	if o.MaxEventBytes <= 0 || o.MaxEventBytes > event.MaxEventBytes {
		o.MaxEventBytes = event.MaxEventBytes
	}
}

// Validate returns an error if the options are not valid.
func (o *Options) Validate() error {
	switch {
	case o.Store == nil || o.Cluster == nil || o.Access == nil || o.Health == nil:
		return errors.New("http: store, cluster, access and health must be set")
	case o.AdvertiseHost != "" && !address.IsAuthority(o.AdvertiseHost):
		return fmt.Errorf("http: advertised host %q is not a host", o.AdvertiseHost)
	case o.AdvertisePort < 0 || o.AdvertisePort > 65535:
		return fmt.Errorf("http: advertised port %d is not a port", o.AdvertisePort)
	}
	return nil
}

// openings is the one place where the options about callers without credentials
// are read. That about streams is part of Access, which judges streams.
func (o *Options) openings() request.Opening {
	var open request.Opening
	if o.AllowAnonymousEndpointAccess {
		open |= request.OpenEndpoints
	}
	if o.OverrideAnonymousEndpointAccessForGossip {
		open |= request.OpenGossip
	}
	return open
}

// Server answers requests. It starts no goroutine of its own: those of the http.Server run it, and
// Drain ends their waits.
type Server struct {
	node    request.Node
	opts    Options
	way     leader.Way
	table   []row        // everything that is served
	routes  router       // of the table
	handler http.Handler // which route is, and what stands before it

	drain   context.CancelFunc // of node.draining: long polls end, and the node is no longer ready
	drained atomic.Bool
}

// New returns a server. The options must be valid.
func New(o Options) *Server {
	o.EnsureDefaults()
	s := &Server{
		node: request.Node{
			Access: o.Access, Leases: o.Leases, Cluster: o.Cluster, Store: o.Store, Shares: o.Shares, Memory: o.Memory, Activity: o.Activity, Log: o.Logger,
			Address: address.New(o.HostNames, o.AdvertiseHost, o.AdvertisePort), Fields: request.EveryAnswer, Open: o.openings(),
			RequestTimeout: o.RequestTimeout, WriteTimeout: o.PrepareTimeout + o.CommitTimeout,
			DisableCaching: o.DisableHTTPCaching, Insecure: o.Insecure, ReferenceStatusCodes: o.ReferenceStatusCodes,
		},
		way:  leader.Way{Relayer: o.Relay, RelayWrites: o.RelayWrites, Members: o.Membership},
		opts: o,
	}
	if o.Insecure {
		s.node.Fields = request.InsecureAnswer
	}
	s.node.Draining, s.drain = context.WithCancel(context.Background())
	s.table = s.rows()
	s.routes = newRouter(s.table)
	s.handler = http.HandlerFunc(s.route)
	if o.LogRequests {
		s.handler = &requestLog{log: o.Logger.Named(accessLogger), next: s.handler}
	}
	return s
}

// Handler returns what a server serves, for texts in status lines one of internal/http1.
func (s *Server) Handler() http.Handler { return s.handler }

// Drain prepares for the end: /health/live answers 503 from now on, and long
// polls come back at once with what they have. Other requests are served as
// before. It does not wait and may be called more than once.
func (s *Server) Drain() {
	s.drained.Store(true)
	s.drain()
}

// route finds the resource of the path and lets it answer.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	found, rt := s.routes.match(r.URL)
	if found == nil {
		s.serve(w, r, nil, rt)
		return
	}
	s.serve(w, r, &found.Resource, rt)
}
