package replication

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/throttle"
	"github.com/annalsdb/annals/replication/wire"
)

// Duplicate describes a duplicate node id: a second process shows the id of a node which is alive
// elsewhere, because its data directory was copied with the folder raft. Both would vote under one
// name.
type Duplicate struct {
	Node    event.ID `json:"node"`
	Address string   `json:"address"` // of the node that is known
	Copy    string   `json:"copy"`    // of the newcomer
}

// `duplicates` are the duplicate node ids that this node or another one found.
type duplicates struct {
	self  *self
	peers *peers
	ended sync.Once // this node is one of them
	said  throttle.Lines[Duplicate]

	mu      sync.Mutex              // guards refused; nests no other lock
	refused map[Duplicate]time.Time // here, within the last minute
}

const (
	// headerAddress carries where the node that asks is reached by others.
	headerAddress = "Annals-Address"
	// statusTwin answers a node whose id belongs to another process.
	statusTwin = http.StatusLocked
)

func (t Duplicate) Error() string {
	return fmt.Sprintf("node %s is alive at %s, and another process shows its id at %s: that one is refused. Its data directory is a copy; "+
		"rename the folder raft in it to have it join as a node of its own", t.Node, t.Address, t.Copy)
}

// check refuses a node that asks from an address at which it is not known, if another process
// answers at the one where it is. Of a node that has moved none does, or itself.
func (t *duplicates) check(r *http.Request) error {
	peer, ok := wire.PeerFrom(r.Context())
	address := r.Header.Get(headerAddress)
	if !ok || address == "" || t.candidate(peer.Node.String(), address) == nil {
		return nil
	}
	m, _ := t.peers.member(peer.Node.String())
	ctx, cancel := context.WithTimeout(r.Context(), peerTimeout/2)
	defer cancel()
	var s Status
	if err := t.peers.caller.call(ctx, m.ReplicationAddress, http.MethodGet, "/status", nil, &s); err != nil || s.Node != peer.Node || s.Address == address {
		return nil
	}
	duplicate := Duplicate{Node: peer.Node, Address: m.ReplicationAddress, Copy: address}
	t.note(duplicate, true)
	return duplicate
}

// candidate refuses a node that stands for election at an address where it is not known: two with
// one id could both win.
func (t *duplicates) candidate(node, address string) error {
	m, ok := t.peers.member(node)
	if !ok || !m.Alive || m.ReplicationAddress == address {
		return nil
	}
	return fmt.Errorf("node %s is known at %s, and not at %s", node, m.ReplicationAddress, address)
}

// note logs a duplicate node id, once a minute. This node's status passes on those that it met
// itself.
func (t *duplicates) note(duplicate Duplicate, met bool) {
	if met {
		t.mu.Lock()
		t.refused[duplicate] = time.Now()
		t.mu.Unlock()
	}
	if _, due := t.said.Due(duplicate); due {
		t.self.logger.Error(duplicate.Error())
	}
}

// met are those that were refused here within the last minute.
func (t *duplicates) met() []Duplicate {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.refused, func(_ Duplicate, at time.Time) bool { return time.Since(at) >= sayEvery })
	return slices.Collect(maps.Keys(t.refused))
}

// end ends this node because others know its id elsewhere.
func (t *duplicates) end(why string) {
	t.ended.Do(func() { t.self.opts.Replica.OnFatal(errors.New(why)) })
}
