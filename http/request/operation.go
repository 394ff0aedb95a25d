package request

import (
	"net/http"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
)

// Operation is one method on one form of path.
type Operation struct {
	api.Operation
	Method string
	Action problem.Action
	Offer  *media.Offer // types of the answer; nil: the request may accept what it likes
	Bodies uint32       // forms of the request's body; 0: not looked at
	Single bool         // reads one event
	Live   Handler      // answers those that accept a live tail by name; nil: there is none
	// changes something although it is a read: a node that relays it must not repeat it
	Once  bool
	Typed bool // the request must have a Content-Type, of any value
	// redirected says that a read is the leader's business as a write is: another
	// node redirects it, and relays it only where it relays writes.
	Redirected bool
	// Awaits is what an operation of the leader waits for, if the request names a position; nil: it
	// waits for nothing
	Awaits func(x *Request) api.Awaited
	Serve  Handler
}

// Resource has the operations of a path, in the order in which the CORS header lists their methods.
type Resource struct {
	Operations []Operation
	Methods    []string
	Open       bool // credentials are not even looked at
}

// Operation returns the operation of a method, nil when there is none. HEAD is GET without a body.
func (r *Resource) Operation(method string) *Operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for i := range r.Operations {
		if r.Operations[i].Method == method {
			return &r.Operations[i]
		}
	}
	return nil
}
