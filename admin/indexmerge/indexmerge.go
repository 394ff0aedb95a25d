// Package indexmerge merges the tables of a node's index into one when an operator asks for it. A
// merge runs in the background and changes nothing that clients can read; it may be asked for at
// any time.
package indexmerge

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Jobs runs merges, one at a time. The zero value is not usable.
type Jobs struct {
	logger hclog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	owned  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	running bool
	closed  bool
}

// New returns the jobs of one node.
func New(logger hclog.Logger) *Jobs {
	j := &Jobs{logger: logger}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	return j
}

// Start begins to merge the index by merge, which leaves everything as it was when its
// context ends first, and returns the id of the order. Who orders
// a merge while one runs gets an id too, and the tables that this one leaves. It
// fails with event.ErrClosed.
func (j *Jobs) Start(merge func(context.Context) error) (event.ID, error) {
	id := event.ID(uuid.New())
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.closed:
		return event.ID{}, event.ErrClosed
	case j.running:
		j.logger.Info("a merge of the index was ordered while one runs", logkey.ID, id.String())
		return id, nil
	}
	j.running = true
	j.owned.Go(func() { j.run(id, merge) })
	return id, nil
}

func (j *Jobs) run(id event.ID, merge func(context.Context) error) {
	j.logger.Info("merging the index", logkey.ID, id.String())
	switch err := merge(j.ctx); {
	case err == nil:
		j.logger.Info("index merged", logkey.ID, id.String())
	case errors.Is(err, context.Canceled), errors.Is(err, event.ErrClosed):
		j.logger.Info("merge of the index stopped", logkey.ID, id.String())
	default:
		j.logger.Error("the index was not merged", logkey.ID, id.String(), logkey.Error, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running = false
}

// Close stops a merge that is running and waits for it. It is idempotent.
func (j *Jobs) Close() {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.cancel()
	j.owned.Wait()
}
