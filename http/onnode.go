package httpapi

import (
	"context"
	"net/http"

	"github.com/annalsdb/annals/event"
)

// keyNode is where a client says which node is to answer: the leader, or the one with
// an id. It reaches all nodes that way though it may talk to one alone, as a page of
// the web interface may. Answers to such requests say by it who gave them.
const (
	keyNode    = "Annals-Node"
	nodeLeader = "leader"
)

var (
	problemNode     = refusal(http.StatusBadRequest, "Annals-Node must be leader or the id of a node.")
	problemNodeAway = refusal(http.StatusServiceUnavailable, "Node Cannot Be Reached")
)

// onNode has the node answer that the client asks for. The request was relayed and answered when
// done is true; when neither that nor an error this node answers it. A relayed request is not
// relayed again: this node answers it, or it fails.
func (l *way) onNode(x *exchange) (done bool, err error) {
	if l.members == nil {
		return false, problemNodeAway
	}
	view := l.members.View()
	x.w = &nodeWriter{ResponseWriter: x.w, x: x, node: view.Node}
	to, err := memberFor(&view, x.r.Header[keyNode][0])
	switch {
	case err != nil:
		return false, err
	case to == nil:
		return false, problemNodeAway
	case to.Node == view.Node:
		return false, nil
	case l.relayer == nil || x.r.Header[keyRelayed] != nil:
		return false, problemNodeAway
	}
	r := marked(x)
	if x.res != nil {
		if op := x.res.operation(r.Method); op != nil && op.once {
			r.Body = onceBody{r.Body}
		}
	}
	if wantsLive(r.Header) { // It would last for as long as the other node serves.
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(x.node.draining, cancel)()
		r, x.isLive = r.WithContext(ctx), true
	}
	clearHeader(x)
	if !l.relayer.RelayTo(x.w, r, to) {
		x.common()
		return false, problemNodeAway
	}
	x.bodyState = bodyBegun // The other node may have answered before it had it all.
	return true, nil
}

// memberFor returns the member that a client asks for, nil when there is none that lives.
func memberFor(view *event.ClusterView, asked string) (*event.Member, error) {
	id, err := event.ParseID(asked)
	if asked != nodeLeader && err != nil {
		return nil, problemNode
	}
	var found *event.Member
	for i := range view.Members {
		m := &view.Members[i]
		switch {
		case !m.Alive:
		case asked != nodeLeader && m.Node == id:
			return m, nil
		case asked == nodeLeader && m.State == event.StateLeader && (found == nil || m.EpochNumber > found.EpochNumber):
			found = m
		}
	}
	return found, nil
}

// nodeWriter sends the answer to a request that says which node is to give it. The answer must not
// be cached: it does not depend on the address alone.
type nodeWriter struct {
	http.ResponseWriter
	x     *exchange
	node  event.ID
	begun bool
}

func (w *nodeWriter) WriteHeader(status int) {
	h := w.Header()
	if !w.begun {
		if h[keyAllowMethods] == nil { // An answer in the place of another node's.
			w.x.common()
		}
		if h[keyNode] == nil {
			h[keyNode] = []string{w.node.String()}
		}
		h[keyCacheControl] = cacheNothing
		delete(h, keyLogEnd) // A client that wants to read its own write asks the same node.
		w.begun = true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *nodeWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets an http.ResponseController find the connection's own writer.
func (w *nodeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
