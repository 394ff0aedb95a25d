package httpapi

import (
	"net/http"
	"strings"

	"github.com/annalsdb/annals/access"
)

// operation is one method on one form of path.
type operation struct {
	method string
	action action
	offer  *offer // types of the answer; nil: the request may accept what it likes
	bodies uint32 // forms of the request's body; 0: not looked at
	may    requirement
	single bool    // reads one event
	live   handler // answers those that accept a live tail by name; nil: there is none
	once   bool    // changes something although it is a read: a node that relays it must not repeat it
	typed  bool    // the request must have a Content-Type, of any value
	// redirected says that a read is the leader's business as a write is: another
	// node redirects it, and relays it only where it relays writes.
	redirected bool
	// unnoted keeps requests out of the record of who changed what: they change nothing,
	// or are what applications do all day.
	unnoted bool
	serve   handler
}

// resource has the operations of a path, in the order in which the CORS header lists their methods.
type resource struct {
	operations []operation
	methods    []string
	open       bool // credentials are not even looked at
}

// row is a form of path with its resource.
type row struct {
	// path has a placeholder in braces for each segment. A placeholder whose name ends with dots
	// stands for the rest of the path.
	path string
	// stream is the stream that the path refers to if the path has no {stream}. With isRun the id
	// of a run and a dash follow it.
	stream  string
	isRun   bool
	isPlain bool // placeholders hold no slashes
	resource
}

// at makes a row.
func at(path string, ops ...operation) row {
	return row{path: path, resource: resource{operations: ops, methods: methodsHeader(ops)}}
}

// about makes a row one of a certain stream.
func about(stream string, r row) row {
	r.stream = stream
	return r
}

// methodsHeader spells the methods of a path as the CORS header does.
func methodsHeader(ops []operation) []string {
	var methods []string
	for i := range ops {
		methods = append(methods, ops[i].method)
	}
	return []string{strings.Join(append(methods, http.MethodOptions), ", ")}
}

// operation returns the operation of a method, nil when there is none. HEAD is GET without a body.
func (r *resource) operation(method string) *operation {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for i := range r.operations {
		if r.operations[i].method == method {
			return &r.operations[i]
		}
	}
	return nil
}

func get(o *offer, right access.Right, serve handler) operation {
	return operation{method: http.MethodGet, offer: o, may: mayStream(right), serve: serve}
}

func post(bodies uint32, right access.Right, serve handler) operation {
	return operation{method: http.MethodPost, action: writing, offer: changeOffer, bodies: bodies, may: mayStream(right), serve: serve}
}

func slash(method string, o *offer, bodies uint32) operation {
	return operation{method: method, offer: o, bodies: bodies, may: mayEverybody, serve: redirectSlash}
}

// look is a read of something that is not a stream.
func look(o *offer, may requirement, serve handler) operation {
	return operation{method: http.MethodGet, offer: o, may: may, serve: serve}
}

// operate is an operation of the node's operators. A body is ignored.
func operate(method string, serve handler) operation {
	return operation{method: method, offer: adminOffer, may: mayOps, serve: serve}
}
