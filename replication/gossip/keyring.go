package gossip

import (
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
)

// Bounds of a keyring. A cluster has a handful of nodes, each with one key and
// for a while a second one.
const (
	maxPeers   = 128
	maxKeys    = 2 * maxPeers
	maxWaiting = 16 // packets that wait until a node has the key

	// sealBefore is the number of packets after which a key is replaced before its age demands it.
	sealBefore = 1 << 32
)

// keyring holds the keys of one node: its own, which nodes have it, and theirs.
type keyring struct {
	self           event.ID
	rekey, overlap time.Duration

	mu            sync.Mutex // guards what follows; nothing blocks under it
	current       *sendingKey
	made          time.Time   // when current was
	previous      *sendingKey // nil if there is none
	previousUntil time.Time
	peers         map[event.ID]*peer
	received      map[keyID]*received
}

// peer is a node that this one sends packets to.
type peer struct {
	has     *sendingKey // what it can open; nil: nothing yet
	waiting [][]byte    // packets until it has the key; the oldest are dropped
	used    time.Time
}

// received is a key of another node.
type received struct {
	receivingKey
	node  event.ID
	until time.Time // then its owner must have shown a certificate again
	since time.Time
}

func newKeyring(self event.ID, rekey, overlap time.Duration) (*keyring, error) {
	key, err := newSendingKey()
	if err != nil {
		return nil, err
	}
	return &keyring{
		self: self, rekey: rekey, overlap: overlap, current: key, made: time.Now(),
		peers: map[event.ID]*peer{}, received: map[keyID]*received{},
	}, nil
}

// tick replaces the sending key when it is due and forgets what is too old.
func (r *keyring) tick(now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.After(r.previousUntil) {
		r.previous = nil
	}
	for id, k := range r.received {
		if now.After(k.until) {
			delete(r.received, id)
		}
	}
	for id, p := range r.peers {
		if now.Sub(p.used) > r.rekey {
			delete(r.peers, id)
		}
	}
	if now.Sub(r.made) >= r.rekey || r.current.counter.Load() >= sealBefore {
		return r.rotate(now)
	}
	return nil
}

func (r *keyring) rotate(now time.Time) error {
	key, err := newSendingKey()
	if err != nil {
		return err
	}
	r.previous, r.previousUntil = r.current, now.Add(r.overlap)
	r.current, r.made = key, now
	return nil
}

// seal seals a packet for a node. If the node does not have the current key, it
// should be introduced; if it has none at all, the packet is kept until then and
// the result is nil.
func (r *keyring) seal(packet []byte, to event.ID, now time.Time) (sealed []byte, introduce bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peer(to, now)
	key := p.has
	if key != nil && key != r.current && (key != r.previous || now.After(r.previousUntil)) {
		key, p.has = nil, nil
	}
	if key != nil {
		if sealed, ok := key.seal(packet, to); ok {
			return sealed, key != r.current
		}
		return nil, true
	}
	if len(p.waiting) == maxWaiting {
		p.waiting = append(p.waiting[:0], p.waiting[1:]...)
	}
	p.waiting = append(p.waiting, append([]byte(nil), packet...))
	return nil, true
}

func (r *keyring) peer(node event.ID, now time.Time) *peer {
	p, ok := r.peers[node]
	if !ok {
		if len(r.peers) >= maxPeers {
			delete(r.peers, oldest(r.peers, func(p *peer) time.Time { return p.used }))
		}
		p = &peer{}
		r.peers[node] = p
	}
	p.used = now
	return p
}

// oldest returns the key whose value has the earliest time.
func oldest[K comparable, V any](of map[K]V, at func(V) time.Time) (key K) {
	var found time.Time
	for k, v := range of {
		if t := at(v); found.IsZero() || t.Before(found) {
			key, found = k, t
		}
	}
	return key
}

// sending returns the key to introduce.
func (r *keyring) sending() *sendingKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// introduced notes that a node has a key of ours, and returns the packets that
// waited for that, sealed.
func (r *keyring) introduced(node event.ID, key *sendingKey, now time.Time) [][]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.peer(node, now)
	p.has = key
	var packets [][]byte
	for _, packet := range p.waiting {
		if sealed, ok := key.seal(packet, node); ok {
			packets = append(packets, sealed)
		}
	}
	p.waiting = nil
	return packets
}

// abandon drops the packets that wait for a node which cannot be reached: they are out of date.
func (r *keyring) abandon(node event.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p, ok := r.peers[node]; ok {
		p.waiting = nil
	}
}

// learn adds the key of another node, which has just shown its certificate. A
// node has at most two: with a third its oldest goes.
func (r *keyring) learn(node event.ID, id keyID, s secret, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := now.Add(r.rekey + r.overlap)
	if known, ok := r.received[id]; ok {
		// A key of somebody else under the same id would bring its window back to the
		// start; the same key again just lives on.
		if known.node == node {
			known.until = until
		}
		return nil
	}
	aead, err := newAEAD(s)
	if err != nil {
		return err
	}
	of := map[keyID]*received{}
	for id, k := range r.received {
		if k.node == node {
			of[id] = k
		}
	}
	since := func(k *received) time.Time { return k.since }
	if len(of) >= 2 {
		delete(r.received, oldest(of, since))
	} else if len(r.received) >= maxKeys {
		delete(r.received, oldest(r.received, since))
	}
	r.received[id] = &received{receivingKey: receivingKey{aead: aead}, node: node, until: until, since: now}
	return nil
}

// open returns what a sealed packet holds, or one of errUnknownKey, errForged and errReplayed.
func (r *keyring) open(sealed []byte, now time.Time) ([]byte, error) {
	if len(sealed) < sealedOverhead || sealed[0] != packetSealed {
		return nil, errForged
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key, ok := r.received[keyID(sealed[1:1+keyIDSize])]
	if !ok || now.After(key.until) {
		return nil, errUnknownKey
	}
	return key.open(sealed, r.self)
}
