// Package httpapi is the HTTP interface of the database: streams as Atom feeds,
// appends, deletes, stream metadata, the whole log, and the small endpoints by
// which clients and balancers look at a node.
//
// The package translates. A request becomes one call of an interface declared in
// service.go, a result or an error becomes an answer; no decision about data is
// made here. Its parts, in the order a request meets them:
//
//	conn.go       the connection layer that puts texts into HTTP/1.1 status lines
//	server.go     options and the top level router
//	path.go       the escaped path to a route, decoded exactly once
//	routes.go     the table of routes: methods, media types, rights, handlers
//	dispatch.go   the order of checks
//	media.go      media types; accept.go their negotiation
//	control.go    the headers that steer an operation
//	stream.go, all.go, single.go, metadata.go, append.go, delete.go, nodeinfo.go
//	              the operations, with caching.go; body_*.go read what is written
//	relay.go      where a write is done: here, or at the leader
//	gossip.go, members.go
//	              the cluster as clients and operators see it
//	feed.go       the fields and links of a feed; feed_json.go, feed_xml.go and
//	              document.go the documents; uri.go, text.go what they are made of
//	problem.go    the one table from errors to status, text and headers
//
// Documents are appended by hand into pooled buffers: no reflection, no
// encoding/json and no fmt on the paths of appends, reads and feeds.
package httpapi
