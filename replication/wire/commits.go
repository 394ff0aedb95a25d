package wire

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/bell"
)

// commitPace is the least time between two commits that a follower is sent: soon after another one,
// a commit waits for a message of raft that carries it. As long as writes follow each other
// closely, we send nothing.
const commitPace = 5 * time.Millisecond

// commits has followers learn of a commit at once. raft sends a commit along with
// its next message, which on an idle cluster is due after 50 to 100 ms.
//
// The message is one that raft could send itself: an AppendEntries without entries, of a leader of
// the term, after the committed entry. A follower first compares that entry (index and term) with
// its Raft log: where they are the same, all entries before are the same too, and all are
// committed. So the message does no harm whenever it arrives, and whichever node leads by then: a
// follower of a later term refuses it.
//
// It goes only to followers that are known to have the entry: the others would refuse
// it, and get the commit with the entries that raft is sending to them anyway.
type commits struct {
	own  func(run func()) bool // starts a goroutine, unless all ends
	send func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error
	done <-chan struct{}

	mu          sync.Mutex // guards what follows; nests no other lock
	index, term uint64     // of the newest entry that this node knows to be committed
	followers   map[raft.ServerID]*follower
}

// follower holds the state of one node, as raft's messages to it show.
type follower struct {
	wake chan struct{} // holds one

	// Guarded by commits.mu.
	target raft.ServerAddress
	last   raft.AppendEntriesRequest // the newest of its term, without entries
	has    uint64                    // index of the last entry that it confirmed in that term
	told   uint64                    // the newest commit that was sent
	at     time.Time                 // when that was
}

func newCommits(own func(func()) bool, send func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error, done <-chan struct{}) *commits {
	return &commits{own: own, send: send, done: done, followers: map[raft.ServerID]*follower{}}
}

// newest notes that an entry is committed.
func (c *commits) newest(index, term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index <= c.index {
		return
	}
	c.index, c.term = index, term
	for _, f := range c.followers {
		c.look(f)
	}
}

// known returns the newest entry of a term that this node knows to be committed; 0: none.
func (c *commits) known(term uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.term != term {
		return 0
	}
	return c.index
}

// sent notes a message of raft's.
func (c *commits) sent(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest) {
	if heartbeat(args) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.followers[id]
	if f == nil {
		f = &follower{wake: make(chan struct{}, 1)}
		if !c.own(func() { c.tell(id, f) }) {
			return // closing
		}
		c.followers[id] = f
	}
	if args.Term < f.last.Term {
		return
	}
	if args.Term > f.last.Term {
		f.has, f.told = 0, 0
	}
	f.target, f.last = target, *args
	f.last.Entries = nil
	f.note(args.LeaderCommitIndex)
}

// note keeps the newest commit that was sent.
func (f *follower) note(index uint64) {
	if index > f.told {
		f.told, f.at = index, time.Now()
	}
}

// answered notes a follower's answer to a message of raft's. There is no success without one.
func (c *commits) answered(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.followers[id]
	switch {
	case f == nil || f.last.Term != args.Term:
	case !resp.Success:
		f.told = 0 // The commit may not have come through.
	default:
		f.has = max(f.has, args.PrevLogEntry+uint64(len(args.Entries)))
		c.look(f)
	}
}

// due reports whether the newest commit should be sent to a follower. c.mu is held.
func (c *commits) due(f *follower) bool {
	return c.term == f.last.Term && c.index <= f.has && c.index > f.told
}

// look wakes the goroutine of a follower if there is something to tell. c.mu is held.
func (c *commits) look(f *follower) {
	if !c.due(f) {
		return
	}
	bell.Ring(f.wake)
}

// tell sends the newest commit to one follower. At most one message to it is in flight, and none
// waits: only the newest commit matters.
func (c *commits) tell(id raft.ServerID, f *follower) {
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-f.wake:
		case <-c.done:
			return
		}
		c.mu.Lock()
		wait := time.Until(f.at.Add(commitPace))
		c.mu.Unlock()
		pace.Reset(wait)
		select {
		case <-pace.C:
		case <-c.done:
			return
		}
		c.mu.Lock()
		due, args, target := c.due(f), f.last, f.target
		args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex = c.index, c.term, c.index
		if due {
			f.note(c.index)
		}
		c.mu.Unlock()
		if !due {
			continue
		}
		// Without success the follower learns of the commit from raft.
		_ = c.send(id, target, &args, new(raft.AppendEntriesResponse))
	}
}
