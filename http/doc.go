// Package httpapi is the HTTP interface of the database: streams as Atom feeds,
// appends, deletes, stream metadata, the whole log, persistent subscriptions, projections,
// and the small endpoints by which clients and balancers look at a node.
//
// The package translates. A request becomes one call of an interface declared in
// service.go, a result or an error becomes an answer; no decision about data is
// made here. Its parts, in the order a request meets them:
//
//	http1         connections: requests of the plain form are read and answered there, others
//	              by net/http; texts in status lines
//	server.go     options
//	table.go      the table of routes: path, methods, media types, rights, handlers
//	path.go       the escaped path to a row of the table, decoded exactly once
//	routes.go     what a row is made of
//	permission.go what an operation asks of its caller
//	hosts.go      what the node may be called; foreign.go which requests are those of other
//	              sites' pages, which count where no one is asked who they are
//	dispatch.go   the order of checks, and the exchange: a request, its answer and the
//	              server's services, of which every handler is a function
//	requestlog.go the log of requests
//	activity.go   which requests are recorded as changes
//	linger.go     the rest of a body that the server did not read
//	media.go      media types; accept.go their negotiation
//	control.go    the headers that steer an operation
//	stream.go, all.go, single.go, metadata.go, append.go, delete.go, nodeinfo.go
//	              the operations, with caching.go; body_*.go read what is written
//	relay.go      where a write is done: here, or at the leader
//	onnode.go     which node answers, where the client says so
//	gossip.go, members.go
//	              the cluster as clients and operators see it
//	statistics.go, nodeinfo.go, operations.go, health.go
//	              this node as operators and their tools see it and steer it
//	backups.go    backups that this node makes of itself; backup_sessions.go what
//	              holds its files for those that others make
//	scavenge.go   scavenges of this node, with scavenge_query.go for what they are
//	              asked for with, and scavenge_estimate.go for what one would do
//	users.go      users and their passwords, with users_body.go
//	subscriptions.go
//	              groups of competing consumers and what they are handed; with
//	              subscriptions_body.go, _info.go and _result.go
//	projections.go
//	              projections and what is done to them; projections_info.go the answers
//	              about them, webdir.go the files that their debugger loads
//	page.go       how a page is sent, which package atom writes as a feed, and one
//	              that is too large to be held whole
//	document.go   what else a stream is answered with
//	uri.go        addresses as the client knows them
//	outline.go    documents that exist as JSON and as XML
//	problem.go    the one table from errors to status, text and headers
//
// In insecure mode a request that calls the node by a name that is not its own is 421. One that
// names the node which is to answer it goes there before anything else is looked at. It is checked
// in this order, and the first check that fails answers:
//
//  1. credentials: wrong ones are 401 on every path, known or not, with any
//     method; 503 while they cannot be checked. Probes of health and OPTIONS do not
//     look at them
//  2. the route: 404. Then OPTIONS is answered
//  3. the method: 405
//  4. the form of the request: 415 for the type of its body, 406 for those it
//     accepts. It depends on the route alone and gives nothing away
//  5. the caller's permission, before anything is looked for: 401
//  6. arguments and control headers: 400
//  7. whether this node may do it, or the leader must: 307, 503, or relayed
//  8. the body: 400, 413
//
// The table of routes gives the permission of each operation, as a requirement. Nothing else says
// so: the dispatcher reads it, and the tests make docs/permissions.md of it. Options that let in
// callers without credentials are read in one place, Options.openings.
//
// An operation that has a live tail answers a request that accepts text/event-stream by that name
// with one, in place of what it answers otherwise: live.go, live_read.go, live_query.go. A tail is
// the goroutine of its request. It reads a page of the log, writes it as the client takes it, and
// waits for more; nothing is queued for a client, and the log is what a slow one reads later.
//
// Documents are appended by hand into pooled buffers: no reflection, no
// encoding/json and no fmt on the paths of appends, reads and feeds.
package httpapi
