package schedule

import (
	"time"

	"github.com/annalsdb/annals/event"
)

// Status is what a node knows of the schedule.
type Status struct {
	Expression string    `json:"expression"`        // of this node; empty: none
	NextDue    time.Time `json:"nextDue,omitzero"`  // by this node's expression
	Round      *Round    `json:"round,omitempty"`   // under way
	Last       *Round    `json:"last,omitempty"`    // that ended last
	Nodes      []Node    `json:"nodes"`             // that take turns, by endpoint
	Problem    string    `json:"problem,omitempty"` // that keeps this node from going on now
}

// Node is a node that takes turns.
type Node struct {
	ID         event.ID `json:"id"`
	Endpoint   string   `json:"endpoint"`
	Expression string   `json:"expression"`
}

// Round is one time that the cluster is scavenged.
type Round struct {
	Due     time.Time `json:"due"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Result  string    `json:"result,omitempty"`
	Turn    *Turn     `json:"turn,omitempty"` // that is held
	Turns   []Turn    `json:"turns"`          // that ended, in order
}

// Turn is the scavenge of one node in a round.
type Turn struct {
	Node     event.ID  `json:"node"`
	Endpoint string    `json:"endpoint"`
	Taken    time.Time `json:"taken"`   // the last time
	Attempt  int       `json:"attempt"` // above 1: the node was restarted or lost before
	Ended    time.Time `json:"ended,omitzero"`
	Result   string    `json:"result,omitempty"`
	Scavenge event.ID  `json:"scavengeId,omitzero"`
	Error    string    `json:"error,omitempty"`
}

func (r *round) status() *Round {
	if r == nil {
		return nil
	}
	out := &Round{Due: r.due, Started: r.started, Ended: r.ended, Result: r.result, Turns: []Turn{}}
	if r.turn != nil {
		t := r.turn.status()
		out.Turn = &t
	}
	for i := range r.turns {
		out.Turns = append(out.Turns, r.turns[i].status())
	}
	return out
}

func (t *turn) status() Turn {
	return Turn{
		Node: t.node, Endpoint: t.endpoint, Taken: t.taken, Attempt: t.attempt,
		Ended: t.ended, Result: t.result, Scavenge: t.scavenge, Error: t.err,
	}
}
