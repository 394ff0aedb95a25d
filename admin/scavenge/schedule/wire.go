package schedule

import (
	"encoding/json"
	"time"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
)

// Stream is where the rounds stand. It and the types of its events are stored: do not change.
const Stream = "$scavengeSchedule"

// Types of events in Stream.
const (
	TypeJoined     = "$scavengeScheduleJoined" // a node has a schedule: it takes turns
	TypeLeft       = "$scavengeScheduleLeft"   // it has none any more
	TypeStarted    = "$scavengeRoundStarted"
	TypeTaken      = "$scavengeTurnTaken" // also by the one whose turn it is, when it was restarted
	TypeTurnEnded  = "$scavengeTurnEnded"
	TypeRoundEnded = "$scavengeRoundEnded"
)

// Results of turns beyond those of a scavenge, and of rounds.
const (
	TurnLost      = "Lost"      // the node was away for too long: others continued
	TurnWithdrawn = "Withdrawn" // the node has no schedule any more
	RoundComplete = "Completed" // every node that could has had its turn
	RoundAbandon  = "Abandoned" // no node was left to continue it, or none for long
)

// Metadata of the stream. Every node must find all that counts in the events that are visible.
const (
	keptEvents  = 1000 // $maxCount
	fewestKept  = 500  // a lower $maxCount is set right
	repeatAfter = 250  // events after which a node says again that it takes turns
)

// metadataOf returns the stream's metadata, which hide events below a number.
func metadataOf(below int64) []byte {
	data := []byte(`{"$maxCount":1000,` + record.ACL + `}`)
	if below > 0 {
		data = event.WithTruncateBefore(data, below)
	}
	return data
}

// note is the data of every event in the stream. Which fields there are depends on the type.
type note struct {
	Round    time.Time `json:"round,omitzero"`    // the due time, which names the round
	Schedule string    `json:"schedule,omitzero"` // Joined, Started
	Node     event.ID  `json:"node,omitzero"`     // that it is about; of rounds: that wrote it
	Endpoint string    `json:"endpoint,omitzero"` // of Node, host:port
	Since    time.Time `json:"since,omitzero"`    // Joined: no due time before counts
	Session  event.ID  `json:"session,omitzero"`  // Taken: of the process
	// Taken: 1 unless it was taken before in this round
	Attempt  int       `json:"attempt,omitzero"`
	Result   string    `json:"result,omitzero"`     // TurnEnded, RoundEnded
	Scavenge event.ID  `json:"scavengeId,omitzero"` // TurnEnded
	Error    string    `json:"error,omitzero"`      // TurnEnded
	By       event.ID  `json:"by,omitzero"`         // TurnEnded: that wrote it, if it is not Node
	Through  time.Time `json:"through,omitzero"`    // RoundEnded: due times up to it are done with
	Turns    int       `json:"turns,omitzero"`      // RoundEnded: that ended well
}

// proposal is an event that a node wants to append.
type proposal struct {
	kind string // of the types above
	note note
}

// sameAs reports whether two proposals are of the same step.
func (p *proposal) sameAs(q *proposal) bool {
	return p.kind == q.kind && p.note.Round.Equal(q.note.Round) && p.note.Node == q.note.Node && p.note.Attempt == q.note.Attempt
}

func (p *proposal) event() (event.Proposed, error) {
	data, err := json.Marshal(&p.note)
	return record.Proposed(p.kind, data), err
}
