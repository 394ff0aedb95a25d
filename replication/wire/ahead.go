package wire

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/bell"
)

// ahead sends new entries of this leader to a follower while the leader is still storing them.
//
// raft sends an entry when its own disk has it, so that a commit takes a sync here and then one
// there. But nothing in Raft asks for that order: the leader must not count itself before its own
// sync, and it does not (Ongaro's thesis, section 10.2.1). So the pipeline sends the message that
// raft is about to send, and when raft sends it, there is only the answer to hand over. raft knows
// nothing of it: no entry is committed before the leader has stored it, as raft asks for the answer
// no sooner. To raft the follower was heard of at that moment, though its answer is as old as the
// leader's sync took: raft.VerifyLeader must not be built on that.
//
// A leader that ends before it has stored an entry leaves it to followers: an entry of its term
// that was neither committed nor acknowledged, as if the leader had ended a moment later. It cannot
// give that index to another entry in that term. It would have to lead again, in a later one.
//
// The message must be the one that follows what raft has sent on this pipeline. Where it is not,
// because the follower lags, or raft was faster, nothing is sent, and raft sends all there is by
// itself.
type ahead struct {
	offers chan []*raft.Log // holds one: what is being stored now

	// sending is held while a message is written, which may take as long as the follower does not
	// read. It guards what follows; mu nests in it.
	sending sync.Mutex
	last    raft.AppendEntriesRequest // the newest message of raft, without entries
	end     uint64                    // last entry that was sent; 0: raft has sent nothing yet
	endTerm uint64
	failed  bool // The connection is broken, as raft will notice.

	mu    sync.Mutex // guards what follows
	sent  []*early   // messages that raft did not send yet
	early map[*raft.AppendEntriesResponse]*early
	ready []*takenOver  // to be handed to raft
	wake  chan struct{} // holds one: there is something ready
}

// early is a message that was sent before raft would have.
type early struct {
	args     *raft.AppendEntriesRequest
	resp     *raft.AppendEntriesResponse
	answer   raft.AppendFuture // nil: there is none yet
	wantedBy *takenOver        // nil: raft did not send it yet
}

// takenOver is a message of raft whose entries were sent in early ones. It is the future of its
// answer.
type takenOver struct {
	args  *raft.AppendEntriesRequest
	resp  *raft.AppendEntriesResponse
	parts []*early
}

func newAhead() *ahead {
	return &ahead{offers: make(chan []*raft.Log, 1), early: map[*raft.AppendEntriesResponse]*early{}, wake: make(chan struct{}, 1)}
}

// Storing sends entries to the followers that have all before them. raft's Raft log calls it when
// it is about to store them. It does not block, and does nothing on a node that does not lead.
func (r *Raft) Storing(logs []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pipelines {
		select {
		case p.ahead.offers <- logs:
		default: // raft sends it.
		}
	}
}

// sendAhead sends what is offered until the pipeline closes.
func (p *pipeline) sendAhead() {
	for {
		select {
		case logs := <-p.ahead.offers:
			p.offered(logs)
		case <-p.closing:
			return
		}
	}
}

func (p *pipeline) offered(logs []*raft.Log) {
	a := p.ahead
	a.sending.Lock()
	defer a.sending.Unlock()
	if a.failed || a.end == 0 || logs[0].Index != a.end+1 || logs[0].Term != a.last.Term || p.conn.isDue() || p.raft.opts.Silent() != nil {
		return
	}
	args := a.last
	args.Entries, args.PrevLogEntry, args.PrevLogTerm = logs, a.end, a.endTerm
	args.LeaderCommitIndex = max(args.LeaderCommitIndex, p.raft.commits.known(args.Term))
	if p.raft.cut(&args); len(args.Entries) != len(logs) {
		return
	}
	e := &early{args: &args, resp: new(raft.AppendEntriesResponse)}
	a.mu.Lock()
	a.sent, a.early[e.resp] = append(a.sent, e), e
	a.mu.Unlock()
	a.sentTo(&args)
	p.raft.commits.sent(p.id, p.target, &args)
	if _, err := p.AppendPipeline.AppendEntries(e.args, e.resp); err != nil {
		a.failed = true // What raft sends next fails as well.
		a.mu.Lock()
		a.sent = nil
		a.mu.Unlock()
	}
}

// sentTo keeps where a message ends. a.sending is held.
func (a *ahead) sentTo(args *raft.AppendEntriesRequest) {
	a.last = *args
	a.last.Entries = nil
	if n := len(args.Entries); n > 0 {
		a.end, a.endTerm = args.Entries[n-1].Index, args.Entries[n-1].Term
	} else if args.PrevLogEntry > a.end {
		a.end, a.endTerm = args.PrevLogEntry, args.PrevLogTerm
	}
}

// takeOver returns the answer to come if all entries of a message of raft's were sent before.
// Otherwise raft sends them all again, and no more is heard of those that were. a.sending is held.
func (a *ahead) takeOver(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) *takenOver {
	if len(args.Entries) == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &takenOver{args: args, resp: resp}
	next, last := args.PrevLogEntry+1, args.Entries[len(args.Entries)-1].Index
	for n, e := range a.sent {
		if e.args.Term != args.Term || e.args.PrevLogEntry+1 != next {
			break
		}
		next += uint64(len(e.args.Entries))
		if next <= last {
			continue
		}
		if next > last+1 {
			break
		}
		t.parts, a.sent = a.sent[:n+1], a.sent[n+1:]
		for _, e := range t.parts {
			e.wantedBy = t
		}
		// The message is not sent, but the next one must carry its commit index: for barriers, no
		// other message does.
		a.last.LeaderCommitIndex = max(a.last.LeaderCommitIndex, args.LeaderCommitIndex)
		a.look(t)
		return t
	}
	a.sent = nil
	return nil
}

// look has an answer handed to raft if it is complete. a.mu is held.
func (a *ahead) look(t *takenOver) {
	for _, e := range t.parts {
		if e.answer == nil {
			return
		}
	}
	a.ready = append(a.ready, t)
	bell.Ring(a.wake)
}

// answered takes the answer to a message that was sent ahead, and reports whether it is one.
func (a *ahead) answered(f raft.AppendFuture) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.early[f.Response()]
	if e == nil {
		return false
	}
	delete(a.early, f.Response())
	e.answer = f
	if e.wantedBy != nil {
		a.look(e.wantedBy)
	}
	return true
}

// next returns an answer that raft can have now, nil if there is none.
func (a *ahead) next() *takenOver {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ready) == 0 {
		return nil
	}
	t := a.ready[0]
	a.ready = a.ready[1:]
	last := t.decisive()
	*t.resp = *last.Response()
	return t
}

// decisive returns the first answer that says no success, or the last one.
func (t *takenOver) decisive() raft.AppendFuture {
	for _, e := range t.parts {
		if !e.answer.Response().Success {
			return e.answer
		}
	}
	return t.parts[len(t.parts)-1].answer
}

// Error is that of the answer. Neither it nor Start may be asked for before the answer was handed
// over.
func (t *takenOver) Error() error                          { return t.decisive().Error() }
func (t *takenOver) Start() time.Time                      { return t.parts[0].answer.Start() }
func (t *takenOver) Request() *raft.AppendEntriesRequest   { return t.args }
func (t *takenOver) Response() *raft.AppendEntriesResponse { return t.resp }
