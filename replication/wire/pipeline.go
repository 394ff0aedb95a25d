package wire

import (
	"errors"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// pipeline is a pipeline of raft.NetworkTransport on a connection of its own. It
// shortens messages, and it ends itself when the connection is due.
type pipeline struct {
	raft.AppendPipeline
	raft      *Raft
	transport *raft.NetworkTransport // of this pipeline alone
	conn      *conn
}

// AppendEntriesPipeline opens a pipeline to a node.
func (r *Raft) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	if r.opts.MaxInFlight < 2 {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	stream := &pipeStream{outbound: newOutbound(r)}
	transport := r.network(stream)
	inner, err := transport.AppendEntriesPipeline(id, r.target(id, target))
	if err != nil {
		return nil, errors.Join(err, transport.Close())
	}
	return &pipeline{AppendPipeline: inner, raft: r, transport: transport, conn: stream.conn}, nil
}

// AppendEntries sends entries. It may shorten args.Entries. raft calls it from one goroutine.
//
// When the connection is due, what is sent goes nowhere and the other side ends
// the connection behind its last answer. The answer to this message then is an error,
// with a response that says no success: raft leaves the pipeline without a word and
// goes on behind the last entry that was confirmed.
func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if p.conn.isDue() && !p.conn.retired.Load() {
		p.conn.retire()
	}
	p.raft.cut(args)
	return p.AppendPipeline.AppendEntries(args, resp)
}

// Close ends the pipeline.
func (p *pipeline) Close() error {
	return errors.Join(p.AppendPipeline.Close(), p.transport.Close())
}

// pipeStream is the stream layer of one pipeline: it remembers the one
// connection that is dialled.
type pipeStream struct {
	*outbound
	conn *conn
}

// Dial connects to a target.
func (s *pipeStream) Dial(target raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	c, err := s.raft.dial(KindRaft, target, timeout)
	if err != nil {
		return nil, err
	}
	s.conn = c
	return c, nil
}
