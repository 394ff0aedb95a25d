// Package http1 serves HTTP/1.1. Requests of the plain form that nearly all clients send it
// reads and answers by itself, at less than half of what net/http takes for them; whatever
// else comes it leaves to net/http, with the connection and all that was read of it.
//
// A handler sees a *http.Request and a http.ResponseWriter as net/http makes them, by the
// same rules (RFC 9110, RFC 9112). Beyond them an answer may have its own text in the status line,
// see [SetReason], and goes out in one piece if it is of usual size. There are no interim
// answers but 100 Continue, no trailers and no Hijack.
//
// A connection of HTTP/2 goes to net/http too, unless its first request is a call of gRPC: it is
// then handed to the server of calls.
//
// DESIGN.md defines plain requests, lists who owns which goroutine, and shows the differences to
// net/http.
package http1
