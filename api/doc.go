// Package api holds the rules that the HTTP and the gRPC interface share, so that
// each rule stands once and an interface adds only its syntax: rights of callers,
// limits, and kinds of errors. It sees the database through interfaces that it
// declares itself: Node has them, with the limits, and both interfaces embed it.
//
// A new operation is a row among the operations, and a handler in each interface,
// to which a row of http's table and of gRPC's methods leads.
package api
