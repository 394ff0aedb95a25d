package wire

import (
	"errors"
	"sync"

	"github.com/hashicorp/raft"
)

// pipeline is a pipeline of raft.NetworkTransport on a connection of its own. It
// shortens messages, it ends itself when the connection is due, and it never has
// raft wait for room among answers that raft takes no more.
type pipeline struct {
	raft.AppendPipeline
	raft      *Raft
	id        raft.ServerID
	target    raft.ServerAddress
	transport *raft.NetworkTransport // of this pipeline alone
	conn      *conn
	ahead     *ahead

	answers chan raft.AppendFuture
	closing chan struct{}  // closed when raft is done with the pipeline
	owned   sync.WaitGroup // hand, sendAhead
	once    sync.Once
	err     error // of closing; valid after once
}

// AppendEntriesPipeline opens a pipeline to a node.
func (r *Raft) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if r.opts.MaxInFlight < 2 {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	stream := newOutbound(r)
	var dialled *conn // the only one
	stream.dialled = func(c *conn) { dialled = c }
	transport := r.network(stream)
	target = r.target(id, target)
	inner, err := transport.AppendEntriesPipeline(id, target)
	if err != nil {
		return nil, errors.Join(err, transport.Close())
	}
	p := &pipeline{
		AppendPipeline: inner, raft: r, id: id, target: target, transport: transport, conn: dialled, ahead: newAhead(),
		answers: make(chan raft.AppendFuture), closing: make(chan struct{}),
	}
	p.owned.Go(p.hand)
	p.owned.Go(p.sendAhead)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pipelines[p] = struct{}{}
	return p, nil
}

// Consumer returns the answers, in the order of the messages.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answers }

// hand hands answers to raft. After an answer without success, or with a later term, raft takes no
// more answers. But it may be sending at that moment, and notices only when it has sent: later
// answers must make room for each other, or raft would block in sending for ever.
func (p *pipeline) hand() {
	taking := true
	for {
		var f raft.AppendFuture
		select {
		case f = <-p.AppendPipeline.Consumer():
			if taking {
				p.raft.commits.answered(p.id, f.Request(), f.Response())
			}
			if p.ahead.answered(f) {
				continue
			}
		case <-p.ahead.wake:
		case <-p.closing:
			return
		}
		// Answers to messages sent ahead come first: raft's own messages went out after them.
		for t := p.ahead.next(); t != nil; t = p.ahead.next() {
			if !p.give(t, &taking) {
				return
			}
		}
		if f != nil && !p.give(f, &taking) {
			return
		}
	}
}

// give hands an answer to raft, if raft takes any. It reports whether the pipeline continues.
func (p *pipeline) give(f raft.AppendFuture, taking *bool) bool {
	if !*taking {
		return true
	}
	select {
	case p.answers <- f:
		*taking = f.Response().Success && f.Response().Term <= f.Request().Term
		return true
	case <-p.closing:
		return false
	}
}

// AppendEntries sends entries. It may shorten args.Entries. raft calls it from one goroutine.
//
// When the connection is due, the message is not sent, and the other side ends the connection after
// its last answer. The answer to this message is then an error, with a response without success:
// raft leaves the pipeline without a log line and continues after the last confirmed entry.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.ahead.sending.Lock()
	defer p.ahead.sending.Unlock()
	if p.conn.isDue() && !p.conn.retired.Load() {
		p.conn.retire()
	}
	if err := p.raft.opts.Silent(); err != nil {
		return nil, err
	}
	p.raft.cut(args)
	if t := p.ahead.takeOver(args, resp); t != nil {
		return t, nil
	}
	p.ahead.sentTo(args)
	p.raft.commits.sent(p.id, p.target, args)
	return p.AppendPipeline.AppendEntries(args, resp)
}

// Close ends the pipeline. Idempotent.
func (p *pipeline) Close() error {
	p.once.Do(func() {
		p.raft.mu.Lock()
		delete(p.raft.pipelines, p)
		p.raft.mu.Unlock()
		close(p.closing)
		// Before its goroutines are waited for: what is being written then fails.
		p.err = errors.Join(p.AppendPipeline.Close(), p.transport.Close())
		p.owned.Wait()
	})
	return p.err
}
