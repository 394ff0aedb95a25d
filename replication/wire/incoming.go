package wire

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// pump hands messages to raft. There is a channel between for snapshots, which
// come from elsewhere.
func (r *Raft) pump() {
	in, done := r.in.Consumer(), r.ctx.Done()
	for {
		select {
		case rpc := <-in:
			if _, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
				// It could only be refused with its bytes unread, which would then
				// be taken for messages: no answer can be made of this, and the connection ends.
				rpc.Respond(noAnswer{}, errors.New("snapshots have connections of their own"))
				continue
			}
			if err := r.opts.Silent(); err != nil {
				rpc.Respond(struct{}{}, err)
				continue
			}
			if r.turnedDown(rpc) { // It judges messages as they were sent.
				continue
			}
			if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && r.opts.Append != nil {
				r.opts.Append(req)
			}
			byID(rpc.Command)
			select {
			case r.consumer <- rpc:
			case <-done:
				return
			}
		case <-done:
			return
		}
	}
}

// deposed returns an error for entries that a leader cannot have in its term. After it was
// replaced, raft may still send what a successor has stored on it meanwhile. The other node would
// stay in the old term, and its next start would find that term below that of its own log.
func deposed(q *raft.AppendEntriesRequest) error {
	last := q.PrevLogTerm
	if n := len(q.Entries); n > 0 {
		last = q.Entries[n-1].Term
	}
	if last > q.Term {
		return fmt.Errorf("entries of term %d from the leader of term %d, which was replaced", last, q.Term)
	}
	return nil
}

// turnedDown answers a candidate that may not be one, or a leader that was replaced.
func (r *Raft) turnedDown(rpc raft.RPC) bool {
	var header raft.RPCHeader
	var answer any
	switch q := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		header, answer = q.RPCHeader, &raft.RequestVoteResponse{}
	case *raft.RequestPreVoteRequest:
		header, answer = q.RPCHeader, &raft.RequestPreVoteResponse{}
	case *raft.AppendEntriesRequest:
		err := deposed(q)
		if err != nil {
			rpc.Respond(struct{}{}, err)
		}
		return err != nil
	default:
		return false
	}
	if r.opts.Candidate == nil {
		return false
	}
	err := r.opts.Candidate(string(header.ID), string(header.Addr))
	if err != nil {
		rpc.Respond(answer, err)
	}
	return err != nil
}

// noAnswer is an answer that cannot be encoded.
type noAnswer struct{}

func (noAnswer) MarshalBinary() ([]byte, error) { return nil, errors.New("no answer") }

// SetHeartbeatHandler has heartbeats handled without the Consumer, so that a disk that is slow does
// not look like a leader that is gone: but only within the term in which raft is. A heartbeat of
// another term may make a leader or a candidate a follower, and raft does that without a lock: its
// own goroutine would continue for a moment, and give an entry that it takes then the term in which
// another node leads (issue 695 of hashicorp/raft). Such a heartbeat goes through the Consumer.
func (r *Raft) SetHeartbeatHandler(handle func(raft.RPC)) {
	r.in.SetHeartbeatHandler(func(rpc raft.RPC) {
		if err := r.opts.Silent(); err != nil {
			rpc.Respond(struct{}{}, err)
			return
		}
		byID(rpc.Command)
		if q, ok := rpc.Command.(*raft.AppendEntriesRequest); ok && r.opts.InTerm(q.Term, func() { handle(rpc) }) {
			return
		}
		select {
		case r.consumer <- rpc:
		case <-r.ctx.Done():
		}
	})
}

// inbound is the stream layer of incoming connections.
type inbound struct {
	net.Listener
	raft *Raft
}

// Accept waits for the next connection of another node.
func (s *inbound) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.(*listener).accept()
		if err != nil {
			return nil, err
		}
		r := s.raft
		// The other side renews its connections. One that does not is cut off
		// between two messages, unless it does not even take the answer.
		cutOff := time.Now().Add(r.port.opts.Renew + r.port.opts.Renew/4 + r.opts.Timeout)
		c.hard = true
		if err := errors.Join(c.SetReadDeadline(cutOff), c.SetWriteDeadline(cutOff.Add(r.opts.Timeout))); err != nil {
			_ = c.Close()
			continue
		}
		if r.track(c, &r.handlers) != nil {
			continue // It closes: the listener ends next, which raft expects.
		}
		return c, nil
	}
}

// Dial is never called: this transport sends nothing.
func (s *inbound) Dial(raft.ServerAddress, time.Duration) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}
