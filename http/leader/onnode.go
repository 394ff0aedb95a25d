package leader

import (
	"context"
	"net/http"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// OnNode has the node answer that the client asks for. The request was relayed and answered when
// done is true; when neither that nor an error this node answers it. A relayed request is not
// relayed again: this node answers it, or it fails.
func (l *Way) OnNode(x *request.Request) (done bool, err error) {
	if x.Node.Membership == nil {
		return false, problem.NodeAway
	}
	view := x.Node.Membership.View()
	x.W = &nodeWriter{ResponseWriter: x.W, x: x, node: view.Node}
	to, err := memberFor(&view, x.R.Header[request.KeyNode][0])
	switch {
	case err != nil:
		return false, err
	case to == nil:
		return false, problem.NodeAway
	case to.Node == view.Node:
		return false, nil
	case l.Relayer == nil || x.R.Header[request.KeyRelayed] != nil:
		return false, problem.NodeAway
	}
	r := marked(x)
	if x.Res != nil {
		if op := x.Res.Operation(r.Method); op != nil && op.Once {
			r.Body = onceBody{r.Body}
		}
	}
	if media.WantsLive(r.Header) { // It would last for as long as the other node serves.
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(x.Node.Draining, cancel)()
		r, x.IsLive = r.WithContext(ctx), true
	}
	clearHeader(x)
	if !l.Relayer.RelayTo(x.W, r, to) {
		x.Common()
		return false, problem.NodeAway
	}
	x.Upload.Taken(false) // The other node may have answered before it had it all.
	return true, nil
}

// memberFor returns the member that a client asks for, nil when there is none that lives.
func memberFor(view *event.ClusterView, asked string) (*event.Member, error) {
	id, err := event.ParseID(asked)
	if asked != request.NodeLeader && err != nil {
		return nil, problem.WrongNode
	}
	var found *event.Member
	for i := range view.Members {
		m := &view.Members[i]
		switch {
		case !m.Alive:
		case asked != request.NodeLeader && m.Node == id:
			return m, nil
		case asked == request.NodeLeader && m.State == event.StateLeader && (found == nil || m.EpochNumber > found.EpochNumber):
			found = m
		}
	}
	return found, nil
}

// nodeWriter sends the answer to a request that says which node is to give it. The answer must not
// be cached: it does not depend on the address alone.
type nodeWriter struct {
	http.ResponseWriter
	x     *request.Request
	node  event.ID
	begun bool
}

func (w *nodeWriter) WriteHeader(status int) {
	h := w.Header()
	if !w.begun {
		if h[request.KeyAllowMethods] == nil { // An answer in the place of another node's.
			w.x.Common()
		}
		if h[request.KeyNode] == nil {
			h[request.KeyNode] = []string{w.node.String()}
		}
		h[caching.KeyControl] = caching.Nothing
		// A client that wants to read its own write asks the same node.
		delete(h, request.KeyLogEnd)
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
