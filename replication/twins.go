package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/wire"
)

// Twin is a second process that shows the id of a node which is alive elsewhere: its data
// directory was copied with the folder raft. Both would vote under one name.
type Twin struct {
	Node    event.ID `json:"node"`
	Address string   `json:"address"` // of the node that is known
	Copy    string   `json:"copy"`    // of the newcomer
}

// twins are the processes that show another node's id, as this node or another one found out.
type twins struct {
	self  *self
	peers *peers
	ended sync.Once // this node is one of them

	mu   sync.Mutex // guards seen; nests no other lock
	seen map[Twin]twinNote
}

// twinNote is what a node remembers of a twin.
type twinNote struct {
	met  time.Time // when it was refused here; zero: others said so
	said time.Time
}

const (
	// headerAddress carries where the node that asks is reached by others.
	headerAddress = "Annals-Address"
	// statusTwin answers a node whose id belongs to another process.
	statusTwin = http.StatusLocked
)

func (t Twin) Error() string {
	return fmt.Sprintf("node %s is alive at %s, and another process shows its id at %s: that one is refused. Its data directory is a copy; "+
		"rename the folder raft in it to have it join as a node of its own", t.Node, t.Address, t.Copy)
}

// check refuses a node that asks from an address at which it is not known, if another process
// answers at the one where it is. Of a node that has moved none does, or itself.
func (t *twins) check(r *http.Request) error {
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
	twin := Twin{Node: peer.Node, Address: m.ReplicationAddress, Copy: address}
	t.note(twin, true)
	return twin
}

// candidate refuses a node that stands for election at an address where it is not known: two with
// one id could both win.
func (t *twins) candidate(node, address string) error {
	m, ok := t.peers.member(node)
	if !ok || !m.Alive || m.ReplicationAddress == address {
		return nil
	}
	return fmt.Errorf("node %s is known at %s, and not at %s", node, m.ReplicationAddress, address)
}

// note logs a twin, once a minute. Those met here are passed on in this node's status.
func (t *twins) note(twin Twin, met bool) {
	t.mu.Lock()
	now := time.Now()
	note := t.seen[twin]
	if met {
		note.met = now
	}
	say := now.Sub(note.said) >= sayEvery
	if say {
		note.said = now
	}
	for other, old := range t.seen {
		if now.Sub(old.said) >= 2*sayEvery {
			delete(t.seen, other)
		}
	}
	t.seen[twin] = note
	t.mu.Unlock()
	if say {
		t.self.logger.Error(twin.Error())
	}
}

// met are those that were refused here within the last minute.
func (t *twins) met() (list []Twin) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for twin, note := range t.seen {
		if time.Since(note.met) < sayEvery {
			list = append(list, twin)
		}
	}
	return list
}

// end ends this node because others know its id elsewhere.
func (t *twins) end(why string) {
	t.ended.Do(func() { t.self.opts.Replica.OnFatal(errors.New(why)) })
}
