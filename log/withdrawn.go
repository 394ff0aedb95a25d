package eventlog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/chunkfile"
)

// withdrawn knows the events that the log says are no longer found by their tags and correlation
// ids, since their metadata is redacted. The bytes on this node do not matter: they may be blank,
// or not yet, or never be. As long as the log could not be read to its end at the start, the answer
// is an error: an event that is missing here would be found.
type withdrawn struct {
	lookup
	found  atomic.Pointer[withdrawnSet] // nil: none
	isRead atomic.Bool                  // what was in the log at the start is there
	mu     sync.Mutex                   // held while found is replaced
}

// withdrawnSet are such events. It is not changed.
type withdrawnSet map[label.Withdrawn]struct{}

func (w withdrawnSet) has(e label.Withdrawn) bool {
	_, has := w[e]
	return has
}

// note takes a record that is being applied, before readers see it.
func (w *withdrawn) note(it chunkfile.Item) {
	w.add(label.ReadWithdrawn(it.Stream(), it.EventType(), it.Data()))
}

func (w *withdrawn) add(more []label.Withdrawn) {
	if len(more) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(withdrawnSet, len(more))
	if before := w.found.Load(); before != nil {
		maps.Copy(all, *before)
	}
	for _, e := range more {
		all[e] = struct{}{}
	}
	w.found.Store(&all)
}

// all are the events. What cannot be read is tried again with each call.
func (w *withdrawn) all() (withdrawnSet, error) {
	if !w.isRead.Load() {
		if err := w.state.read(w.read); err != nil {
			return nil, fmt.Errorf("read which events were redacted: %w", err)
		}
		w.isRead.Store(true)
	}
	if found := w.found.Load(); found != nil {
		return *found, nil
	}
	return nil, nil
}

// HasWithdrawn reports whether the log says of some events that their metadata is redacted.
func (rd *Reader) HasWithdrawn(events []label.Withdrawn) (bool, error) {
	all, err := rd.withdrawn.all()
	return !slices.ContainsFunc(events, func(e label.Withdrawn) bool { return !all.has(e) }), err
}

// WaitWithdrawn blocks until HasWithdrawn reports true.
func (rd *Reader) WaitWithdrawn(ctx context.Context, events []label.Withdrawn) error {
	return rd.notify.wait(ctx, func() (bool, error) {
		has, err := rd.HasWithdrawn(events)
		return has, cmp.Or(rd.Failed(), err)
	})
}

// read reads them from the log, whatever metadata hide.
func (w *withdrawn) read(v view) error {
	hash := chunkfile.HashStream(event.RedactionsStream)
	if !w.index.MayExist(hash) {
		return w.index.Damage()
	}
	var scratch []byte
	var all []label.Withdrawn
	for e, err := range w.index.Down(hash, event.TombstoneNumber, 0) {
		if err != nil {
			return err
		}
		it, err := w.confirm(v, e, event.RedactionsStream, &scratch)
		if err != nil {
			return err
		}
		if it != nil {
			all = append(all, label.ReadWithdrawn(it.Stream(), it.EventType(), it.Data())...)
		}
	}
	w.add(all)
	return w.index.Damage()
}
