package replication

import (
	"context"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/pipeline"
)

// Writes has writes done: by this node where it leads, and those of its own wherever the leader is.
type Writes struct {
	self         *self
	disk         *disk
	incarnations *incarnations
	lead         *leadership
	redirect     func() (address string, ok bool)
	started      func() bool
	own          *ownWrites
}

// Submit does what Pipeline.Submit does, also while there is no Replica.
func (s *Writes) Submit(ctx context.Context, w *event.Write) (event.Written, error) {
	r, err := s.serving()
	if err != nil {
		return event.Written{}, err
	}
	if w.Many != nil && len(w.Many.Conditions) > 0 {
		if w, err = s.look(ctx, w); err != nil {
			return event.Written{}, err
		}
	}
	return r.pipeline.Submit(ctx, w)
}

// look has the log of a leader looked at for the conditions of a write.
func (s *Writes) look(ctx context.Context, w *event.Write) (*event.Write, error) {
	l, _ := s.lead.Current()
	if m := s.self.deps.Load(); l.Leading && m != nil && m.Look != nil {
		return m.Look(ctx, w)
	}
	return w, nil
}

// Begin does what Pipeline.Begin does, also while there is no Replica.
func (s *Writes) Begin(ctx context.Context, w *event.Write, wake chan<- struct{}) (pipeline.Pending, error) {
	r, err := s.serving()
	if err != nil {
		return pipeline.Pending{}, err
	}
	return r.pipeline.Begin(ctx, w, wake)
}

// Confirm does what Pipeline.Confirm does, also while there is no Replica.
func (s *Writes) Confirm(ctx context.Context) error {
	r, err := s.serving()
	if err != nil {
		return err
	}
	return r.pipeline.Confirm(ctx)
}

// serving returns what does writes, or why there is none.
func (s *Writes) serving() (*Replica, error) {
	r := s.self.replica.Load()
	if r == nil {
		if address, ok := s.redirect(); ok {
			return nil, &event.NotLeader{Address: address}
		}
		return nil, event.ErrNotReady
	}
	if err := s.incarnations.diverged.get(); err != nil {
		return nil, fmt.Errorf("%w: %w", event.ErrNotReady, err)
	}
	if err := s.disk.hanging(); err != nil && s.self.opts.Size > 1 {
		if address, ok := s.redirect(); ok {
			return nil, &event.NotLeader{Address: address}
		}
		return nil, fmt.Errorf("%w: %w", event.ErrNotReady, err)
	}
	return r, nil
}

// Write does a write of the node's own, or of a client that this node passes on, wherever the
// leader is: here, or over the port between nodes. Errors are those of Submit, but for
// *event.NotLeader.
//
// As long as there is no leader, and nothing was written, it tries again until ctx is over; that is
// then event.ErrNotReady. A write with an unknown outcome is sent again only if it is an append and
// all its events have ids, so that it cannot be done twice; else, and when the time is over, the
// outcome stays unknown (event.ErrOutcomeUnknown or event.ErrWriteTimeout).
//
// As with Submit, the write must not be changed before Write returns, and after
// event.ErrWriteTimeout never.
func (s *Writes) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	if !s.started() {
		return event.Written{}, event.ErrNotReady
	}
	return s.own.write(ctx, w)
}
