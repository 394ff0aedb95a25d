package bootstrap

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/annalsdb/annals/event"
)

// Limits of what another node may send.
const (
	MaxClusterSize  = 32      // members of a proposal
	MaxMessageBytes = 8 << 10 // of an encoded Request or Answer; more is not worth reading
)

// Kind says what a Request wants. The spelling is the wire's.
type Kind string

// Kinds of requests.
const (
	// tell your situation; Proposal, if any, is the one the sender is bound to
	Ask     Kind = "ask"
	Promise Kind = "promise" // promise yourself to Proposal, which the sender proposes
	GaveUp  Kind = "gave-up" // the sender will never form its Proposal
)

// Refusal says why a promise was not given. The spelling is the wire's.
type Refusal string

// Refusals. NotYet and NotRunning pass by themselves, the others may not.
const (
	Invalid    Refusal = "invalid"      // the request makes no sense
	IsMember   Refusal = "member"       // belongs to a cluster: Answer.Cluster
	IsBound    Refusal = "bound"        // promised to another proposal: Answer.Promise
	IsReadOnly Refusal = "read-only"    // never counts
	OtherSize  Refusal = "cluster-size" // expects a cluster of another size
	NotInSet   Refusal = "not-in-set"   // is not among the members
	// the sender is not the proposer, or not the lowest of the set
	WrongProposer Refusal = "wrong-proposer"
	SeesCluster   Refusal = "sees-cluster" // a cluster exists already
	NotYet        Refusal = "not-yet"      // does not see all members alive and without a cluster
	NotRunning    Refusal = "not-running"  // is starting or stopping
)

// Proposal is a cluster that a node would create from an exact set of nodes.
// It is never changed once it is made, so it is shared without copying.
//
// Its names and those of Request and Answer are read by other nodes, and stand in
// files: do not change.
type Proposal struct {
	Cluster  event.ID   `json:"cluster"`  // new and random: no two proposals share it
	Proposer event.ID   `json:"proposer"` // the lowest of Members
	Members  []event.ID `json:"members"`  // in rising order
}

// Validate reports what no node would propose.
func (p *Proposal) Validate() error {
	switch {
	case p.Cluster.IsZero():
		return errors.New("a proposal without a cluster id")
	case p.Proposer.IsZero():
		return errors.New("a proposal without a proposer")
	case len(p.Members) == 0 || len(p.Members) > MaxClusterSize:
		return fmt.Errorf("a proposal of %d members: must be 1 to %d", len(p.Members), MaxClusterSize)
	case p.Members[0].IsZero():
		return errors.New("a proposal with a member without an id")
	}
	for i, member := range p.Members[1:] {
		if compare(p.Members[i], member) >= 0 {
			return errors.New("a proposal whose members are not in rising order")
		}
	}
	return nil
}

// is reports whether two proposals are the same in every part.
func (p *Proposal) is(q *Proposal) bool {
	return p != nil && q != nil && p.Cluster == q.Cluster && p.Proposer == q.Proposer && slices.Equal(p.Members, q.Members)
}

// has reports whether a node belongs to the set.
func (p *Proposal) has(node event.ID) bool { return p != nil && slices.Contains(p.Members, node) }

// Request is what one node asks another.
type Request struct {
	Kind     Kind      `json:"kind"`
	From     event.ID  `json:"from"`               // the node that asks
	Proposal *Proposal `json:"proposal,omitempty"` // must be given unless Kind is Ask
}

// Validate reports a request that no node would send.
func (r *Request) Validate() error {
	switch r.Kind {
	case Ask, Promise, GaveUp:
	default:
		return fmt.Errorf("request of unknown kind %.20q", string(r.Kind))
	}
	if r.From.IsZero() {
		return errors.New("request without the id of the node that asks")
	}
	if r.Proposal == nil {
		if r.Kind != Ask {
			return fmt.Errorf("request of kind %s without a proposal", r.Kind)
		}
		return nil
	}
	return r.Proposal.Validate()
}

// Answer is a node's whole situation, as it stands durably on its disk. With
// neither Cluster nor Promise the node is fresh. A Promise whose Proposer is the
// node itself is its own proposal, not yet formed unless Cluster says so.
type Answer struct {
	Node event.ID `json:"node"`
	// it is a member of this cluster, has formed it, or is about to join it
	Cluster event.ID  `json:"cluster,omitzero"`
	Promise *Proposal `json:"promise,omitempty"`
	// the proposal of the request is the node's own, and it will never form it
	GaveUp      event.ID `json:"gaveUp,omitzero"`
	ReadOnly    bool     `json:"readOnly,omitempty"`
	ClusterSize int      `json:"clusterSize"`
	Refusal     Refusal  `json:"refusal,omitempty"` // why it did not do what was asked
}

// Validate reports an answer that no node would give.
func (a *Answer) Validate() error {
	switch {
	case a.Node.IsZero():
		return errors.New("answer without the id of the node that answers")
	case a.ClusterSize < 1 || a.ClusterSize > MaxClusterSize:
		return fmt.Errorf("answer with a cluster size of %d: must be 1 to %d", a.ClusterSize, MaxClusterSize)
	case a.Promise == nil:
		return nil
	}
	if err := a.Promise.Validate(); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if !a.Promise.has(a.Node) {
		return errors.New("answer of a node that is promised to a set without it")
	}
	return nil
}

// compare orders nodes: the lowest of a set is its proposer.
func compare(a, b event.ID) int { return bytes.Compare(a[:], b[:]) }
