package bootstrap

import "github.com/annalsdb/annals/event"

// situation is what a node is and holds. All that it tells others follows from
// it alone, and from nothing that is not durable.
type situation struct {
	node     event.ID
	size     int
	readOnly bool
	record   Record
	cluster  event.ID // member of, formed, or about to join; zero while undecided
}

func newSituation(o *Options, record Record) situation {
	s := situation{node: o.Node, size: o.ClusterSize, readOnly: o.ReadOnly, record: record, cluster: o.Cluster}
	if record.Formed {
		s.cluster = record.Promise.Cluster
	}
	return s
}

// own returns the proposal that this node made and did not give up.
func (s *situation) own() *Proposal {
	if p := s.record.Promise; p != nil && p.Proposer == s.node {
		return p
	}
	return nil
}

// bond returns the proposal of another node that this one is promised to.
func (s *situation) bond() *Proposal {
	if p := s.record.Promise; p != nil && p.Proposer != s.node {
		return p
	}
	return nil
}

// answer returns this node's situation to the sender of a request.
//
// A proposal is recorded before any other node hears of it and leaves the record only when it is
// given up. So if this node is asked about one of its own that it does not hold, it gave that up,
// and will never form it: cluster ids do not repeat.
func (s *situation) answer(r *Request) Answer {
	a := Answer{
		Node: s.node, Cluster: s.cluster, Promise: s.record.Promise, ReadOnly: s.readOnly, ClusterSize: s.size,
	}
	if p := r.Proposal; p != nil && p.Proposer == s.node {
		if held := s.own(); held == nil || held.Cluster != p.Cluster {
			a.GaveUp = p.Cluster
		}
	}
	return a
}

// passive answers for a node whose search has not begun or is over. It promises
// nothing new.
func (s *situation) passive(r Request) Answer {
	if r.Validate() != nil {
		a := s.answer(&Request{})
		a.Refusal = Invalid
		return a
	}
	a := s.answer(&r)
	switch {
	case r.Kind != Promise || r.Proposal.is(s.record.Promise):
	case !s.cluster.IsZero():
		a.Refusal = IsMember
	default:
		a.Refusal = NotRunning
	}
	return a
}
