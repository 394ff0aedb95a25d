package httpapi

import (
	"context"
	"net/http"
)

const (
	projectionPrefix = "/projection/"

	segQuery  = "query"
	segResult = "result"
	segState  = "state"
)

// What projections answer with. A query is a script, whichever types are accepted.
var projectionsOffer = newOffer(typeJSON, typeJSON)

// projecting makes of a handler of projections one that runs on the leader only.
func projecting(serve func(*exchange, context.Context) error) func(*exchange) error {
	return func(x *exchange) error {
		return x.lead(func(ctx context.Context) error { return projectionFailed(serve(x, ctx)) })
	}
}

// watch is an operation that tells about projections.
func watch(serve func(*exchange, context.Context) error) operation {
	return operation{method: http.MethodGet, offer: projectionsOffer, may: mayUser, redirected: true, serve: projecting(serve)}
}

// instruct is an operation on projections whose body is not looked at.
func instruct(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	a := writing
	if method == http.MethodDelete {
		a = deleting
	}
	return operation{method: method, action: a, offer: projectionsOffer, may: may, redirected: true, serve: projecting(serve)}
}

// script is an operation whose body is a text of any type, which must be named.
func script(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	op := instruct(method, may, serve)
	op.typed = true
	return op
}

// document is an operation whose body is a JSON document.
func document(method string, may requirement, serve func(*exchange, context.Context) error) operation {
	op := instruct(method, may, serve)
	op.bodies = 1 << formJSON
	return op
}
