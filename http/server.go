package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/admin/doctor"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	"github.com/hashicorp/go-hclog"
	"github.com/julienschmidt/httprouter"
)

// Defaults of the waits. A write may wait for both its parts.
const (
	DefaultPrepareTimeout = 2 * time.Second
	DefaultCommitTimeout  = 2 * time.Second
	DefaultRequestTimeout = 10 * time.Second
)

// Options says what a Server serves and how. Store, Waiter, Cluster and Access
// must be set; the zero value of everything else works.
type Options struct {
	Store   Store
	Waiter  Waiter
	Cluster Cluster
	Access  Access
	Logger  hclog.Logger

	// Membership serves /gossip and what /admin has of the cluster, which are not
	// there without it.
	Membership Membership
	// Relay takes requests to the leader when this node is not it: reads that only
	// the leader can answer, and writes with RelayWrites. Otherwise, or when it is nil,
	// the client is redirected.
	Relay       Relay
	RelayWrites bool

	// Users serves /users, which is not there without it.
	Users Users
	// Subscriptions serves /subscriptions, which is not there without it.
	Subscriptions Subscriptions
	// Projections serves /projections and /projection, which are not there without it.
	Projections Projections
	// Operations serves what /admin has for this node alone.
	Operations Operations
	// Scavenges serves /admin/scavenge, which is not there without it.
	Scavenges Scavenges
	// Backups serves /admin/backup/sessions, which is not there without it.
	Backups BackupSessions
	// Redactions serves /admin/redact, which is not there without it.
	Redactions Redactions
	// BackupRuns serves the rest of /admin/backup, which is not there without it.
	BackupRuns Backups
	// Doctor examines the node for /admin/doctor, which is not there without it.
	Doctor func(context.Context) []doctor.Line
	// Statistics serves /stats, /metrics and /histogram.
	Statistics Statistics
	// Settings are the options of the node, for /info/options.
	Settings func() []config.Value
	// Startup serves /health/ready and /health/startup. Nil: the node has started.
	Startup Startup
	// Subsystems names the parts of the node that run. Nil: none.
	Subsystems func() []string
	// ProjectionsMode is what projections the node runs: None, which is also what
	// the empty text means, System or All.
	ProjectionsMode string

	// Version is the product's own version, shown beside the compatible one.
	Version string

	// AdvertiseHost and AdvertisePort take the place of host and port of the
	// request in addresses that clients are given.
	AdvertiseHost string
	AdvertisePort int

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

	DisableHTTPCaching bool // every 200 says that it must not be kept
	DisableAdminUI     bool // no redirects to the web interface, nothing below /admin, no /sys/subsystems
	DisableGossip      bool // no /gossip
	DisableStats       bool // no /stats and no /metrics
	DisableAtomPub     bool // no /streams
	LogRequests        bool // one line for every request
	LogFailedLogins    bool // one line for every request with wrong credentials

	// ReferenceStatusCodes answers with the reference's codes where ours differ.
	ReferenceStatusCodes bool
	Insecure             bool // no authentication and no rights, as /info tells it

	// /gossip is open to callers without credentials when either is true.
	OverrideAnonymousEndpointAccessForGossip bool
	AllowAnonymousEndpointAccess             bool
}

// EnsureDefaults fills in what was left zero.
func (o *Options) EnsureDefaults() {
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
	if o.MaxEventBytes <= 0 || o.MaxEventBytes > event.MaxEventBytes {
		o.MaxEventBytes = event.MaxEventBytes
	}
}

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	switch {
	case o.Store == nil || o.Waiter == nil || o.Cluster == nil || o.Access == nil:
		return errors.New("http: store, waiter, cluster and access must be set")
	case o.AdvertiseHost != "" && !isAuthority(o.AdvertiseHost):
		return fmt.Errorf("http: advertised host %q is no host", o.AdvertiseHost)
	case o.AdvertisePort < 0 || o.AdvertisePort > 65535:
		return fmt.Errorf("http: advertised port %d is no port", o.AdvertisePort)
	}
	return nil
}

// Server answers requests. It starts no goroutine of its own: those of the
// http.Server run it, and Drain ends what they wait for.
type Server struct {
	store   Store
	waiter  Waiter
	cluster Cluster
	access  Access
	log     hclog.Logger
	opts    Options
	open    opening // of opts
	router  *httprouter.Router
	handler http.Handler // the router and what stands before it

	accessLog hclog.Logger
	refused   refusedLogins

	// draining is canceled by Drain: long polls end, and the node is no longer ready.
	draining context.Context
	drain    context.CancelFunc
	drained  atomic.Bool

	latest atomic.Pointer[figures] // for /stats; nil before it is asked for
}

// New returns a server. The options must be valid.
func New(o Options) *Server {
	o.EnsureDefaults()
	s := &Server{
		store:   o.Store,
		waiter:  o.Waiter,
		cluster: o.Cluster,
		access:  o.Access,
		log:     o.Logger,
		opts:    o,
		open:    o.openings(),

		accessLog: o.Logger.Named(accessLogger),
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.router = s.newRouter()
	s.handler = s.router
	if o.LogRequests {
		s.handler = &requestLog{log: s.accessLog, next: s.router}
	}
	return s
}

// Handler returns what an http.Server serves. For texts in status lines its
// listener must come from Listener, and its ConnContext must be ours.
func (s *Server) Handler() http.Handler { return s.handler }

// Drain prepares for the end: /health/live answers 503 from now on, and long
// polls come back at once with what they have. Other requests are served as
// before. It does not wait and may be called more than once.
func (s *Server) Drain() {
	s.drained.Store(true)
	s.drain()
}

// newRouter builds the top level. Below it the table of routes decides: the
// router knows decoded paths only and cannot tell a literal segment from a
// placeholder, so everything under /streams/ is one route to it, everything under
// /users/ another, and so on.
func (s *Server) newRouter() *httprouter.Router {
	r := &httprouter.Router{} // No redirects and no answers of its own.
	for path, res := range s.fixedResources() {
		handle := func(w http.ResponseWriter, req *http.Request, p httprouter.Params) {
			s.serve(w, req, res, route{argument: placeholder(p)})
		}
		for _, method := range routedMethods {
			r.Handle(method, path, handle)
		}
	}
	for _, method := range routedMethods {
		if s.servesStreams() {
			r.Handle(method, streamsPrefix+"*rest", s.serveStreams)
		}
		if s.servesUsers() {
			r.Handle(method, usersPath, s.serveUsers)
			r.Handle(method, usersPrefix+"*rest", s.serveUsers)
		}
		if s.servesSubscriptions() {
			r.Handle(method, subscriptionsPath, s.serveSubscriptions)
			r.Handle(method, subscriptionsPrefix+"*rest", s.serveSubscriptions)
		}
		if s.servesProjections() {
			r.Handle(method, projectionsPath, s.serveProjections)
			r.Handle(method, projectionsPrefix+"*rest", s.serveProjections)
			r.Handle(method, projectionPrefix+"*rest", s.serveProjection)
		}
		if s.servesScavenges() {
			r.Handle(method, scavengePrefix+":id", s.serveScavengeRun)
		}
		if s.servesBackups() {
			r.Handle(method, backupSessionsPath+"/:id", s.serveBackupSession)
			r.Handle(method, backupSessionsPath+"/:id/files/*name", s.serveBackupFile)
		}
	}
	// Whatever else comes here: a method that no route has, or no route at all.
	r.NotFound = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if handle, params, _ := r.Lookup(http.MethodGet, req.URL.Path); handle != nil {
			handle(w, req, params)
			return
		}
		s.serve(w, req, nil, route{})
	})
	return r
}

const streamsPrefix = "/streams/"

// routedMethods are the methods that reach a route without a detour.
var routedMethods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

func (s *Server) servesStreams() bool { return !s.opts.DisableAtomPub }

// servesUsers is false where there is nobody to manage: in insecure mode.
func (s *Server) servesUsers() bool { return s.opts.Users != nil && !s.opts.Insecure }

func (s *Server) serveStreams(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	rt, ok := resolve(r.URL)
	if !ok {
		s.serve(w, r, nil, route{})
		return
	}
	s.serve(w, r, &streamResources[rt.kind], rt)
}

// placeholder returns what stands for the only placeholder of a path.
func placeholder(p httprouter.Params) string {
	if len(p) == 0 {
		return ""
	}
	return p[0].Value
}

// fixedResources are the paths outside /streams/, /users, /subscriptions,
// /projections, /projection/ and /admin/scavenge/.
func (s *Server) fixedResources() map[string]*resource {
	m := map[string]*resource{
		"/ping":           &pingResource,
		"/info":           &infoResource,
		"/health/live":    &healthResource,
		"/health/ready":   &readyResource,
		"/health/startup": &startupResource,
	}
	if s.opts.Settings != nil {
		m["/info/options"] = &optionsResource
	}
	if s.opts.Statistics != nil {
		m["/histogram/:name"] = &histogramResource
		if !s.opts.DisableStats {
			m["/stats"] = &statsResource
			m[statsPrefix+"*path"] = &statsResource
			m["/metrics"] = &metricsResource
		}
	}
	if !s.opts.DisableAdminUI {
		m["/"] = &webResource
		m["/web"] = &webResource
		m["/sys/subsystems"] = &subsystemsResource
		if s.servesProjections() {
			for _, file := range debuggerFiles {
				m[webPrefix+file] = &debuggerResource
			}
		}
		m["/admin/login"] = &loginResource
		if s.opts.Operations != nil {
			m["/admin/shutdown"] = &shutdownResource
			m["/admin/reloadconfig"] = &reloadResource
			m["/admin/mergeindexes"] = &mergeIndexesResource
		}
	}
	if s.servesScavenges() {
		m[scavengePath] = &scavengeResource
	}
	if s.servesBackups() {
		m[backupSessionsPath] = &backupSessionsResource
	}
	if s.opts.Redactions != nil && !s.opts.DisableAdminUI {
		m[redactPath] = &redactResource
	}
	if s.opts.Doctor != nil && !s.opts.DisableAdminUI {
		m[doctorPath] = &doctorResource
	}
	if s.opts.BackupRuns != nil && !s.opts.DisableAdminUI {
		m[backupPath] = &backupResource
		m[backupPath+"/"+segCurrent] = &currentBackupResource
		m[backupPath+"/"+segLast] = &lastBackupResource
		m[backupPath+"/list"] = &backupListResource
	}
	if s.opts.Membership == nil {
		return m
	}
	if !s.opts.DisableGossip {
		m["/gossip"] = &gossipResource
	}
	if !s.opts.DisableAdminUI {
		m["/admin/node/resign"] = &resignResource
		m["/admin/node/priority/:priority"] = &priorityResource
		m["/admin/cluster/members"] = &membersResource
		m["/admin/cluster/members/:node"] = &memberResource
	}
	return m
}

// methodsHeader spells the methods of a path as the CORS header does.
func methodsHeader(ops []operation) []string {
	var b strings.Builder
	for i := range ops {
		b.WriteString(ops[i].method)
		b.WriteString(", ")
	}
	b.WriteString(http.MethodOptions)
	return []string{b.String()}
}
