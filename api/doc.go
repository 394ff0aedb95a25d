// Package api holds the rules that the HTTP and the gRPC interface share, so that
// each rule stands once and an interface adds only its syntax: rights of callers,
// limits, and kinds of errors. It sees the database through small interfaces that
// it declares itself.
package api
