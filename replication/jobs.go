package replication

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/wire"
)

// Jobs carries the questions of the leader about jobs of nodes: see ClusterOptions.Answer.
type Jobs struct {
	self   *self
	peers  *peers
	caller *caller
}

// Ask asks another node. Question and answer travel as JSON.
func (j *Jobs) Ask(ctx context.Context, node event.ID, question, answer any) error {
	address := j.peers.address(node.String())
	if j.caller.client == nil || address == "" {
		return event.ErrNotReady
	}
	return j.caller.call(ctx, address, http.MethodPost, "/ask", question, answer)
}

// serve answers a member of the cluster.
func (j *Jobs) serve(w http.ResponseWriter, r *http.Request) {
	if peer, ok := wire.PeerFrom(r.Context()); !ok || !j.self.members()[peer.Node.String()] || j.self.opts.Answer == nil {
		http.Error(w, "that node is not a member of this cluster, or this one has no jobs", http.StatusForbidden)
		return
	}
	var q json.RawMessage
	if !question(w, r, &q) {
		return
	}
	answer, err := j.self.opts.Answer(r.Context(), q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply(w, answer)
}
