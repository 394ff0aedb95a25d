package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync/atomic"

	"github.com/annalsdb/annals/admin/doctor"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/http/admin"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/request"
)

// Options configures a Server. Store, Cluster, Access and Health must be set; the zero value of
// everything else works.
type Options struct {
	// Membership serves /gossip and what /admin has of the cluster, Users /users, Subscriptions
	// /subscriptions, Projections /projections and /projection, Operations what /admin has for this
	// node alone, Scavenges /admin/scavenge, and Statistics /stats, /metrics and /histogram.
	api.Node

	// Relay takes requests to the leader when this node is not it: reads that only the leader can
	// answer, and what changes users, groups or projections with RelayWrites. Otherwise, or when it
	// is nil, the client is redirected. With RelayWrites the store gets the writes to streams.
	Relay       leader.Relay
	RelayWrites bool

	// Backups serves /admin/backup/sessions, which is not there without it.
	Backups admin.BackupSessions
	// Redactions serves /admin/redact, which is not there without it.
	Redactions admin.Redactions
	// BackupRuns serves the rest of /admin/backup, which is not there without it.
	BackupRuns admin.Backups
	// Doctor examines the node for /admin/doctor, which is not there without it.
	Doctor func(context.Context) []doctor.Line
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

	DisableHTTPCaching bool // every 200 says that it must not be kept
	// no redirects to the web interface, nothing below /admin, no /sys/subsystems
	DisableAdminUI bool
	DisableGossip  bool // no /gossip
	DisableStats   bool // no /stats and no /metrics
	DisableAtomPub bool // no /streams

	// ReferenceStatusCodes makes the server answer with EventStoreDB's status codes where ours
	// differ.
	ReferenceStatusCodes bool
}

// Validate returns an error if the options are not valid.
func (o *Options) Validate() error {
	if err := o.Node.Validate(); err != nil {
		return fmt.Errorf("http: %w", err)
	}
	switch {
	case o.Health == nil:
		return errors.New("http: health must be set")
	case o.AdvertiseHost != "" && !address.IsAuthority(o.AdvertiseHost):
		return fmt.Errorf("http: advertised host %q is not a host", o.AdvertiseHost)
	case o.AdvertisePort < 0 || o.AdvertisePort > 65535:
		return fmt.Errorf("http: advertised port %d is not a port", o.AdvertisePort)
	}
	return nil
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
	s := &Server{way: leader.Way{Relayer: o.Relay, RelayWrites: o.RelayWrites}, opts: o}
	s.node = request.Node{
		Node: &s.opts.Node, Address: address.New(o.HostNames, o.AdvertiseHost, o.AdvertisePort), Fields: request.EveryAnswer,
		DisableCaching: o.DisableHTTPCaching, ReferenceStatusCodes: o.ReferenceStatusCodes,
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
