package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

// checkTwin refuses a node that asks from an address at which it is not known, if another process
// answers at the one where it is. Of a node that has moved none does, or itself.
func (c *Cluster) checkTwin(r *http.Request) error {
	peer, ok := wire.PeerFrom(r.Context())
	address := r.Header.Get(headerAddress)
	if !ok || address == "" || c.candidate(peer.Node.String(), address) == nil {
		return nil
	}
	m, _ := c.peers.member(peer.Node.String())
	ctx, cancel := context.WithTimeout(r.Context(), peerTimeout/2)
	defer cancel()
	var s Status
	if err := c.caller.call(ctx, m.ReplicationAddress, http.MethodGet, "/status", nil, &s); err != nil || s.Node != peer.Node || s.Address == address {
		return nil
	}
	t := Twin{Node: peer.Node, Address: m.ReplicationAddress, Copy: address}
	c.noteTwin(t, true)
	return t
}

// candidate refuses a node that stands for election at an address where it is not known: two with
// one id could both win.
func (c *Cluster) candidate(node, address string) error {
	m, ok := c.peers.member(node)
	if !ok || !m.Alive || m.ReplicationAddress == address {
		return nil
	}
	return fmt.Errorf("node %s is known at %s, and not at %s", node, m.ReplicationAddress, address)
}

// noteTwin logs a twin, once a minute. Those met here are passed on in this node's status.
func (c *Cluster) noteTwin(t Twin, met bool) {
	c.mu.Lock()
	now := time.Now()
	note := c.twins[t]
	if met {
		note.met = now
	}
	say := now.Sub(note.said) >= sayEvery
	if say {
		note.said = now
	}
	if c.twins == nil {
		c.twins = make(map[Twin]twinNote)
	}
	for other, old := range c.twins {
		if now.Sub(old.said) >= 2*sayEvery {
			delete(c.twins, other)
		}
	}
	c.twins[t] = note
	c.mu.Unlock()
	if say {
		c.self.logger.Error(t.Error())
	}
}

// metTwins are those that were refused here within the last minute.
func (c *Cluster) metTwins() (list []Twin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, note := range c.twins {
		if time.Since(note.met) < sayEvery {
			list = append(list, t)
		}
	}
	return list
}

// endTwin ends this node because others know its id elsewhere.
func (c *Cluster) endTwin(why string) {
	c.twinned.Do(func() { c.self.opts.Replica.OnFatal(errors.New(why)) })
}
