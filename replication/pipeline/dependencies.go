package pipeline

import (
	"sync"

	"github.com/annalsdb/annals/event"
)

// Decider turns writes into the bytes of entries. Only the pipeline's goroutine calls it.
type Decider interface {
	// Reset forgets everything decided and not applied. From now on, decisions
	// are made from the applied state.
	Reset() error
	// Decide decides a write against the applied state and everything decided
	// before it. It must not keep w.
	Decide(w *event.Write) event.Decision
	// Seal ends the entry being built and returns it; nil when nothing in it
	// wrote. The bytes belong to the caller for good.
	Seal() []byte
	// Applied says that the oldest sealed entry has been applied: its facts are
	// in the applied state now.
	Applied()
}

// Leadership says whether this node leads, and since which term.
type Leadership struct {
	Leading bool
	Term    uint64 // 0 when not leading
}

// Announced is a Leadership whose changes others wait for. The zero value does not lead.
type Announced struct {
	mu      sync.Mutex // guards what follows
	now     Leadership
	changed chan struct{} // made when a caller asks for it
}

// Publish announces a Leadership, unless it is the one that was announced last.
func (a *Announced) Publish(l Leadership) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now != l && a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
	a.now = l
}

// Current returns what was announced last, and a channel that is closed when that changes.
func (a *Announced) Current() (Leadership, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.now, a.changed
}

// Future is what raft returns for a proposal. One that came from Propose also has a method
// Response, as raft.ApplyFuture does.
type Future interface{ Error() error }

// Dependencies are what a pipeline needs of raft. A pipeline is tested without raft.
type Dependencies struct {
	Propose  func(entry []byte) Future // must not block
	Barrier  func() Future             // must not block
	Term     func() uint64             // current term
	Leader   func() bool               // raft considers this node the leader
	Quorum   func() Quorum             // must not block
	Hint     <-chan bool               // leadership may have changed
	Redirect func() string             // the leader's address for clients; empty when not known
	Fatal    func(error)               // the node must end
}

// Quorum is what raft's configuration says of an answer.
type Quorum struct {
	Configuration uint64 // which one was applied last: one is, before the next change is made
	Enough        bool   // it has the voters for an answer
	Alone         bool   // this node is the only one
}

// MaxEntryBytes bounds an entry: segment files read back very large ones as damaged.
const MaxEntryBytes = 16 << 20
