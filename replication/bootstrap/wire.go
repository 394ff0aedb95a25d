package bootstrap

import (
	"encoding/json"
	"errors"

	"github.com/annalsdb/annals/event"
)

// text is an id as JSON shows it: in canonical form, left out when zero.
type text event.ID

func (t text) IsZero() bool                 { return event.ID(t).IsZero() }
func (t text) MarshalText() ([]byte, error) { return event.ID(t).AppendTo(nil), nil }

func (t *text) UnmarshalText(data []byte) error {
	id, err := event.ParseID(data)
	*t = text(id)
	return err
}

// The names below are read by other nodes and stand in files: do not change.

type proposalJSON struct {
	Cluster  text   `json:"cluster"`
	Proposer text   `json:"proposer"`
	Members  []text `json:"members"`
}

type requestJSON struct {
	Kind     Kind      `json:"kind"`
	From     text      `json:"from"`
	Proposal *Proposal `json:"proposal,omitempty"`
}

type answerJSON struct {
	Node        text      `json:"node"`
	Cluster     text      `json:"cluster,omitzero"`
	Promise     *Proposal `json:"promise,omitempty"`
	GaveUp      text      `json:"gaveUp,omitzero"`
	ReadOnly    bool      `json:"readOnly,omitempty"`
	ClusterSize int       `json:"clusterSize"`
	Refusal     Refusal   `json:"refusal,omitempty"`
}

type recordJSON struct {
	Format  int       `json:"format"`
	Node    text      `json:"node"`
	Promise *Proposal `json:"promise,omitempty"`
	Formed  bool      `json:"formed,omitempty"`
}

// MarshalJSON writes ids as text.
func (p Proposal) MarshalJSON() ([]byte, error) {
	doc := proposalJSON{Cluster: text(p.Cluster), Proposer: text(p.Proposer), Members: make([]text, len(p.Members))}
	for i, member := range p.Members {
		doc.Members[i] = text(member)
	}
	return json.Marshal(doc)
}

// UnmarshalJSON reads what MarshalJSON wrote. It does not validate it, except that it holds no set above the limit.
func (p *Proposal) UnmarshalJSON(data []byte) error {
	var doc proposalJSON
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	if len(doc.Members) > MaxClusterSize {
		return errors.New("too many members in a proposal")
	}
	*p = Proposal{Cluster: event.ID(doc.Cluster), Proposer: event.ID(doc.Proposer), Members: make([]event.ID, len(doc.Members))}
	for i, member := range doc.Members {
		p.Members[i] = event.ID(member)
	}
	return nil
}

// MarshalJSON writes ids as text.
func (r Request) MarshalJSON() ([]byte, error) {
	return json.Marshal(requestJSON{Kind: r.Kind, From: text(r.From), Proposal: r.Proposal})
}

// UnmarshalJSON reads what MarshalJSON wrote. Validate judges it.
func (r *Request) UnmarshalJSON(data []byte) error {
	var doc requestJSON
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	*r = Request{Kind: doc.Kind, From: event.ID(doc.From), Proposal: doc.Proposal}
	return nil
}

// MarshalJSON writes ids as text.
func (a Answer) MarshalJSON() ([]byte, error) {
	return json.Marshal(answerJSON{
		Node: text(a.Node), Cluster: text(a.Cluster), Promise: a.Promise, GaveUp: text(a.GaveUp),
		ReadOnly: a.ReadOnly, ClusterSize: a.ClusterSize, Refusal: a.Refusal,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote. Validate judges it.
func (a *Answer) UnmarshalJSON(data []byte) error {
	var doc answerJSON
	if err := json.Unmarshal(data, &doc); err != nil {
		return err
	}
	*a = Answer{
		Node: event.ID(doc.Node), Cluster: event.ID(doc.Cluster), Promise: doc.Promise, GaveUp: event.ID(doc.GaveUp),
		ReadOnly: doc.ReadOnly, ClusterSize: doc.ClusterSize, Refusal: doc.Refusal,
	}
	return nil
}
