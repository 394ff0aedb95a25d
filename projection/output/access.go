package output

import (
	"context"
	"errors"
	"time"

	"github.com/annalsdb/annals/event"
)

// Errors of storage are tried again with growing pauses, half a minute in all.
const (
	maxTries     = 12
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// access reads and writes streams, and tries again what fails.
type access struct {
	store Store
	stop  <-chan struct{} // once it is closed nothing is tried again; may be nil
}

// tries calls f until it succeeds, fails in a way that no repetition helps, or failed often enough.
func (a access) tries(ctx context.Context, f func() error) error {
	pause := firstPause
	for n := 1; ; n++ {
		err := f()
		if err == nil || n == maxTries || isFinal(err) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-a.stop:
			timer.Stop()
			return event.ErrClosed
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, longestPause)
	}
}

// info describes a stream.
func (a access) info(ctx context.Context, stream string) (info event.StreamInfo, err error) {
	err = a.tries(ctx, func() (err error) {
		info, err = a.store.StreamInfo(ctx, stream)
		return err
	})
	if err != nil {
		return info, storageError("look at", stream, err)
	}
	return info, nil
}

// read returns an event that a reader sees; nil: there is none.
func (a access) read(ctx context.Context, stream string, number int64) (*event.Record, error) {
	var e event.Resolved
	err := a.tries(ctx, func() (err error) {
		e, err = a.store.ReadEvent(ctx, stream, number, nil)
		return err
	})
	switch {
	case isAbsent(err), errors.Is(err, event.ErrStreamDeleted):
		return nil, nil
	case err != nil:
		return nil, storageError("read", stream, err)
	}
	return &e.Record, nil
}

// complete reads the payload that a page left out of an event. The event may be gone.
func (a access) complete(ctx context.Context, e *event.Record) (isThere bool, err error) {
	if !e.Bare {
		return true, nil
	}
	err = a.tries(ctx, func() error { return a.store.ReadPayload(ctx, e) })
	switch {
	case isAbsent(err):
		return false, nil
	case err != nil:
		return false, storageError("read", e.Stream, err)
	}
	return true, nil
}

func (a access) write(ctx context.Context, w *event.Write) (written event.Written, err error) {
	err = a.tries(ctx, func() (err error) {
		written, err = a.store.Write(ctx, w)
		return err
	})
	return written, err
}

// addNames adds names to a list.
func (a access) addNames(ctx context.Context, list, eventType string, names []string) error {
	for len(names) > 0 {
		w := &event.Write{Stream: list, ExpectedVersion: event.AnyVersion}
		size := 0
		for len(names) > 0 && size < maxBatchBytes {
			w.Events = append(w.Events, event.Proposed{ID: newID(), Type: eventType, Data: []byte(names[0])})
			size += len(names[0]) + len(eventType)
			names = names[1:]
		}
		if _, err := a.write(ctx, w); err != nil {
			return writeError(list, err)
		}
	}
	return nil
}

// names goes through a list of names from a number on, a page at a time; next is the number after
// it. A list that is not there is empty.
func (a access) names(ctx context.Context, list string, from int64, page func(names []string, next int64) error) error {
	for {
		var p event.StreamPage
		err := a.tries(ctx, func() (err error) {
			p, err = a.store.ReadStream(ctx, event.StreamRead{Stream: list, From: from, Count: pageEvents, MaxPayload: pageBytes})
			return err
		})
		if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
			return nil
		} else if err != nil {
			return storageError("read", list, err)
		}
		names := make([]string, 0, len(p.Events))
		for i := range p.Events {
			e := &p.Events[i].Record
			if isThere, err := a.complete(ctx, e); err != nil {
				return err
			} else if isThere {
				names = append(names, string(e.Data))
			}
		}
		from = p.Next
		if err := page(names, from); err != nil {
			return err
		}
		if p.End {
			return nil
		}
	}
}
