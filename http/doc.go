// Package httpapi is the HTTP interface of the database: streams as Atom feeds,
// appends, deletes, stream metadata, the whole log, persistent subscriptions, projections,
// and the small endpoints by which clients and balancers look at a node.
//
// The package translates. A request becomes one call of an interface that its room declares, a
// result or an error becomes an answer; no decision about data is made here. Connections and the
// texts in status lines belong to internal/http1. The parts, in the order a request meets them:
//
//	server.go     options
//	table.go      the table of routes: path, methods, media types, rights, handlers
//	path.go       the escaped path to a row of the table; routes.go what a row is made of
//	dispatch.go   the order of checks
//	requestlog.go the log of requests
//	health.go, nodeinfo.go
//	              what balancers, clients and the web interface ask first
//
// Handlers are functions of a context and a request. They belong to small structs with the
// services that they use, in rooms that know nothing of each other:
//
//	streams       appends, deletions, metadata, pages of streams and the log, live tails
//	groups        groups of competing consumers and what they are handed
//	projections   projections and what is done to them
//	admin         users, the cluster, and this node as operators see it and steer it
//	ui            the files of web interfaces
//
// Below the rooms is what they share:
//
//	leader        where a request is done: here, at the leader, or at a node that it names
//	page          pages of a stream, and the wait for their events
//	request       a request, its rights, its memory, its body and its answer
//	address       what this node is called, and what pages of other sites may not do
//	args          parameters of queries, control headers, members of a body
//	media         media types and their negotiation
//	problem       the one table from errors to status and text
//	outline       documents that exist as JSON, XML and text
//	atom          pages and events as feeds and entries
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
// with one, in place of what it answers otherwise: streams/live.go. A tail is the goroutine of its
// request. It reads a page of the log, writes it as the client takes it, and
// waits for more; nothing is queued for a client, and the log is what a slow one reads later.
//
// Documents are appended by hand into pooled buffers: no reflection, no
// encoding/json and no fmt on the paths of appends, reads and feeds.
package httpapi
