//go:build sabotage

package node

import (
	"context"
	"os"
	"sync"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/pipeline"
)

// The environment variable ANNALS_SABOTAGE names a promise to be broken, so that the
// tests which watch over these promises can be shown to notice.
const (
	fence = "fence" // apply entries that were decided on another end of the log
	drop  = "drop"  // lose a frame now and then when applying
	early = "early" // acknowledge before the entry is committed
)

func broken() string { return os.Getenv("ANNALS_SABOTAGE") }

func sabotaged(m replication.Dependencies) replication.Dependencies {
	switch broken() {
	case fence, drop:
		m.FSM = fsm.Sabotage(m.FSM.(*fsm.Machine), broken() == drop)
	case early:
		m.Decider = earlyDecider{m.Decider}
	}
	return m
}

func sabotagedStore(s *store) api.Store {
	if broken() == early {
		return earlyStore{s}
	}
	return s
}

// decided has a channel of event.Written for each *event.Write in flight.
var decided sync.Map

// earlyDecider reports its decisions.
type earlyDecider struct{ pipeline.Decider }

func (e earlyDecider) Decide(w *event.Write) event.Decision {
	d := e.Decider.Decide(w)
	if told, ok := decided.Load(w); ok && d.Err == nil && !d.Full {
		select {
		case told.(chan event.Written) <- d.Written:
		default: // It is decided again.
		}
	}
	return d
}

// earlyStore answers as soon as a write is decided.
type earlyStore struct{ *store }

func (e earlyStore) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	type answer struct {
		event.Written
		error
	}
	told, done := make(chan event.Written, 1), make(chan answer, 1)
	decided.Store(w, told)
	go func() {
		defer decided.Delete(w)
		written, err := e.store.Write(context.WithoutCancel(ctx), w)
		done <- answer{written, err}
	}()
	select {
	case written := <-told:
		return written, nil
	case a := <-done:
		return a.Written, a.error
	}
}
