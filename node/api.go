package node

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/node/relay"
)

// served is the node as both interfaces serve it.
func (n *Node) served() api.Node {
	c, part := n.config, n.part()
	served := api.Node{
		Store: n.store, Cluster: part, Access: gate{n.users.logins, n.policy}, Membership: part,
		Users: n.users.manager, Subscriptions: n.groups, Operations: operations{n}, Index: operations{n}, Scavenges: n.scavenge.runs, Statistics: n.metrics,
		Leases: n.leases, Shares: n.shares, Memory: n.memory, Activity: n.activity, RefusedLogins: n.users.refused, LogRequests: c.LogHttpRequests,
		Many:         api.NewManyMetrics(n.opts.Stats),
		Queries:      api.NewQueryMetrics(n.opts.Stats),
		Waits:        api.NewWaitMetrics(n.opts.Stats),
		Now:          n.opts.Now,
		WriteTimeout: c.PrepareTimeout + c.CommitTimeout, MaxAppendBytes: c.AppendLimit(), Insecure: c.Insecure,
	}
	if n.queries != nil {
		served.Projections = n.queries
	}
	if c.AllowAnonymousEndpointAccess {
		served.Open |= api.OpenEndpoints
	}
	if c.OverrideAnonymousEndpointAccessForGossip {
		served.Open |= api.OpenGossip
	}
	return served
}

// newAPI returns the HTTP interface.
func newAPI(n *Node) (*httpapi.Server, error) {
	c, part := n.config, n.part()
	options := httpapi.Options{
		Node: n.served(), Health: part, Startup: part, Redactions: n.redact.service, Backups: n.backups, BackupRuns: n.backupRuns,
		Doctor: (&examination{n: n}).examine, Settings: n.opts.Settings,
		Relay: n.relay, RelayWrites: c.FollowerWrites == config.FollowerWritesForward,
		Version: n.opts.Version, WebTitle: c.WebTitle, WebTone: string(c.WebTone),
		AdvertiseHost: c.AdvertiseHostToClientAs, AdvertisePort: c.AdvertiseNodePortToClientAs, HostNames: hostNames(c),
		DisableHTTPCaching: c.DisableHttpCaching, DisableAtomPub: !c.EnableAtomPubOverHttp,
		DisableAdminUI: c.DisableAdminUi, DisableGossip: c.DisableGossipOnHttp, DisableStats: c.DisableStatsOnHttp,
		ReferenceStatusCodes: c.ReferenceStatusCodes,
	}
	options.Store, options.Logger = sabotagedStore(n.store), n.logger.Named("http")
	if n.queries != nil {
		options.ProjectionsMode = string(c.RunProjections)
		options.Subsystems = func() []string { return []string{httpapi.SubsystemProjections} }
	}
	if n.web != nil {
		options.WebDir = n.web.FS()
	}
	if n.opts.UIDir != "" {
		options.UIDir = os.DirFS(n.opts.UIDir)
	}
	if err := options.Validate(); err != nil {
		return nil, err
	}
	return httpapi.New(options), nil
}

// hostNames are the names by which a node is called, as far as its configuration and its
// machine tell.
func hostNames(c *config.Config) []string {
	names := append(slices.Clone(c.HostNames), c.AdvertiseHostToClientAs, c.NodeHostAdvertiseAs, c.ReplicationHostAdvertiseAs)
	if c.Given("ClusterDns") {
		names = append(names, c.ClusterDns)
	}
	if name, err := os.Hostname(); err == nil { // Else the machine has none.
		names = append(names, name)
	}
	return names
}

// openWebDir opens the folder of a web interface, out of which no file is served; nil when none is
// named.
func openWebDir(dir string) (*os.Root, error) {
	if dir == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("option WebDir: %w", err)
	}
	if _, err := root.Stat("index.html"); err != nil {
		return nil, errors.Join(fmt.Errorf("option WebDir: index.html of %s: %w", dir, errors.Unwrap(err)), root.Close())
	}
	return root, nil
}

// serve answers clients.
func (n *Node) serve() {
	var security *certs.Store
	if n.https() {
		security = n.security.Store
	}
	n.http.PingAfter, n.http.PingTimeout = n.config.KeepAliveInterval, n.config.KeepAliveTimeout
	n.http.Calls = n.rpc.Serve
	n.http.Serve(n.rpc.Handler(n.handler()), security)
}

// serveNodes answers the requests that other nodes pass on.
func (n *Node) serveNodes() {
	if port := n.cluster.Port(); port != nil {
		n.relayed = relay.Serve(port, n.handler(), n.logger.Named("relayed"))
	}
}

// handler is the HTTP interface with its work counted.
func (n *Node) handler() http.Handler { return n.metrics.counted(n.api.Handler()) }

// gate is authentication and authorisation in one.
type gate struct {
	*access.Authenticator
	*access.Policy
}

var _ api.Access = gate{}
