package httpapi

import (
	"net/http"

	"github.com/annalsdb/annals/access"
)

// operation is what one method does on one form of path.
type operation struct {
	method string
	action action
	offer  *offer // types of the answer; nil: the request may accept what it likes
	bodies uint32 // forms of the request's body; 0: not looked at
	may    requirement
	single bool // reads one event
	once   bool // changes something although it is a read: whoever passes it on must not repeat it
	typed  bool // the request must have a Content-Type, whatever it says
	// redirected says that a read is the leader's business as a write is: another
	// node redirects it, and relays it only where it relays writes.
	redirected bool
	serve      func(*exchange) error
}

// resource is a form of path with its operations, in the order in which the CORS
// header lists their methods.
type resource struct {
	operations []operation
	methods    []string
	open       bool // credentials are not even looked at
}

func newResource(ops ...operation) resource {
	return resource{operations: ops, methods: methodsHeader(ops)}
}

// operation returns what a method does, nil when it does nothing. HEAD is GET
// without a body.
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

func get(o *offer, right access.Right, serve func(*exchange) error) operation {
	return operation{method: http.MethodGet, offer: o, may: mayStream(right), serve: serve}
}

func getSingle(right access.Right, serve func(*exchange) error) operation {
	op := get(singleOffer, right, serve)
	op.single = true
	return op
}

func post(bodies uint32, right access.Right, serve func(*exchange) error) operation {
	return operation{method: http.MethodPost, action: writing, offer: changeOffer, bodies: bodies, may: mayStream(right), serve: serve}
}

func slash(method string, o *offer, bodies uint32) operation {
	return operation{method: method, offer: o, bodies: bodies, may: mayEverybody, serve: (*exchange).redirectSlash}
}

// operate is an operation of whoever operates the node. A body is not looked at.
func operate(method string, serve func(*exchange) error) operation {
	return operation{method: method, offer: adminOffer, may: mayOps, serve: serve}
}

// remove is the deletion of a stream.
func remove() operation {
	return operation{method: http.MethodDelete, action: deleting, offer: changeOffer, may: mayStream(access.DeleteRight), serve: (*exchange).delete}
}

// streamResources is the table of everything under /streams/.
var streamResources = [kinds]resource{
	kindStream: newResource(
		post(appendForms, access.WriteRight, (*exchange).append),
		remove(),
		get(feedOffer, access.ReadRight, (*exchange).backward),
	),
	kindStreamSlash: newResource(
		slash(http.MethodPost, changeOffer, appendForms),
		slash(http.MethodDelete, changeOffer, 0),
		slash(http.MethodGet, feedOffer, 0),
	),
	kindEvent:    newResource(getSingle(access.ReadRight, (*exchange).single)),
	kindBackward: newResource(get(feedOffer, access.ReadRight, (*exchange).backward)),
	kindForward:  newResource(get(feedOffer, access.ReadRight, (*exchange).forward)),
	kindIncoming: newResource(post(incomingForms, access.WriteRight, (*exchange).incoming)),
	kindMetadata: newResource(
		getSingle(access.MetaReadRight, (*exchange).metadata),
		post(appendForms, access.MetaWriteRight, (*exchange).writeMetadata),
	),
	kindMetadataSlash: newResource(
		slash(http.MethodGet, singleOffer, 0),
		slash(http.MethodPost, changeOffer, appendForms),
	),
	kindMetadataEvent: newResource(getSingle(access.MetaReadRight, (*exchange).metadata)),
	kindMetaBackward:  newResource(get(feedOffer, access.MetaReadRight, (*exchange).metaBackward)),
	kindMetaForward:   newResource(get(feedOffer, access.MetaReadRight, (*exchange).metaForward)),
	kindAll: newResource(
		post(appendForms, access.WriteRight, (*exchange).append),
		remove(),
		get(feedOffer, access.ReadRight, (*exchange).allBackward),
	),
	kindAllBackward:      newResource(get(feedOffer, access.ReadRight, (*exchange).allBackward)),
	kindAllForward:       newResource(get(feedOffer, access.ReadRight, (*exchange).allForward)),
	kindFiltered:         newResource(get(feedOffer, access.ReadRight, (*exchange).filteredBackward)),
	kindFilteredBackward: newResource(get(feedOffer, access.ReadRight, (*exchange).filteredBackward)),
	kindFilteredForward:  newResource(get(feedOffer, access.ReadRight, (*exchange).filteredForward)),
}

// The paths outside /streams/.
var (
	pingResource = newResource(operation{method: http.MethodGet, offer: nodeOffer, may: mayEverybody, serve: (*exchange).ping})
	infoResource = newResource(operation{method: http.MethodGet, offer: nodeOffer, may: mayEverybody, serve: (*exchange).info})
	webResource  = newResource(operation{method: http.MethodGet, may: mayEverybody, serve: (*exchange).web})

	gossipResource = newResource(
		operation{method: http.MethodGet, offer: gossipOffer, may: mayGossip, serve: (*exchange).gossip},
		operation{method: http.MethodPost, offer: gossipOffer, bodies: gossipForms, may: mayGossip, serve: (*exchange).hearGossip},
	)

	resignResource   = newResource(operate(http.MethodPost, (*exchange).resign))
	priorityResource = newResource(operate(http.MethodPost, (*exchange).setPriority))
	membersResource  = newResource(operate(http.MethodGet, (*exchange).members), operate(http.MethodPost, (*exchange).addMember))
	memberResource   = newResource(operate(http.MethodDelete, (*exchange).removeMember))

	healthResource = probe((*exchange).health)
)
