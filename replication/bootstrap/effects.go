package bootstrap

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
)

// input is one thing that happens to a node: time passes or the view changes,
// or also a request arrives or a call ends.
type input struct {
	now     time.Time
	peers   []Peer // the view at that time
	request *Request
	result  *result
}

// result is how a call ended.
type result struct {
	to     event.ID
	answer Answer
	err    error
}

// effect is something that an Engine does for the state machine. Effects are
// carried out in order, and all of a step before the next step: what comes
// after a save relies on it. If one fails, or the process ends before it,
// the rest is not carried out.
type effect interface{ effect() }

type (
	// save makes the record durable.
	save struct{ record Record }

	// reply answers the request of this step.
	reply struct{ answer Answer }

	// call sends a request to another node. Its result comes back as an input,
	// whatever happens. There is one call to a node at a time.
	call struct {
		to      event.ID
		address string
		request Request
	}

	// decide ends the search.
	decide struct{ outcome Outcome }

	// say writes a log line.
	say struct {
		level   hclog.Level
		message string
		args    []any
	}
)

func (save) effect()   {}
func (reply) effect()  {}
func (call) effect()   {}
func (decide) effect() {}
func (say) effect()    {}
