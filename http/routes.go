package httpapi

import (
	"net/http"
	"strings"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

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
	request.Resource
}

// at makes a row.
func at(path string, ops ...request.Operation) row {
	return row{path: path, Resource: request.Resource{Operations: ops, Methods: methodsHeader(ops)}}
}

// open makes a row that is for everybody, and looks at no credentials.
func open(path string, serve request.Handler) row {
	r := at(path, look(nil, api.MayAnyone, serve))
	r.Open = true
	return r
}

// about makes a row one of a certain stream.
func about(stream string, r row) row {
	r.stream = stream
	return r
}

// methodsHeader spells the methods of a path as the CORS header does.
func methodsHeader(ops []request.Operation) []string {
	var methods []string
	for i := range ops {
		methods = append(methods, ops[i].Method)
	}
	return []string{strings.Join(append(methods, http.MethodOptions), ", ")}
}

func get(o *media.Offer, right access.Right, serve request.Handler) request.Operation {
	return look(o, api.MayStream(right), serve)
}

func post(bodies uint32, op api.Operation, serve request.Handler) request.Operation {
	return request.Operation{Operation: op, Method: http.MethodPost, Action: problem.Writing, Offer: changeOffer, Bodies: bodies, Serve: serve}
}

// slash leads to the same path without the slash at its end, and changes nothing.
func slash(method string, o *media.Offer, bodies uint32) request.Operation {
	return request.Operation{Operation: api.Operation{May: api.MayEverybody}, Method: method, Offer: o, Bodies: bodies, Serve: redirectSlash}
}

// look is a read of something that is not a stream.
func look(o *media.Offer, may api.Requirement, serve request.Handler) request.Operation {
	return request.Operation{Operation: api.Operation{May: may}, Method: http.MethodGet, Offer: o, Serve: serve}
}

// operate is an operation of the node's operators. A body is ignored.
func operate(method string, serve request.Handler) request.Operation {
	return request.Operation{Operation: api.Operate, Method: method, Offer: adminOffer, Serve: serve}
}
