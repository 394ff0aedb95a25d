package output

import (
	"context"
	"errors"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
)

// tracker lists the streams that are emitted to, each once. It remembers the names
// that are listed by a hash, 8 bytes each. Names that come while a write is under
// way are written together.
type tracker struct {
	o *Output

	mu      sync.Mutex // guards what follows
	listed  map[uint64]struct{}
	waiting *names // of the next write
	writing bool
}

// names are written together.
type names struct {
	all  []string
	done chan struct{}
	err  error
}

// add returns when a name is listed.
func (t *tracker) add(name string) error {
	t.mu.Lock()
	if _, ok := t.listed[xxh3.HashString(name)]; ok {
		t.mu.Unlock()
		return nil
	}
	if t.waiting == nil {
		t.waiting = &names{done: make(chan struct{})}
	}
	mine := t.waiting
	mine.all = append(mine.all, name)
	if t.writing {
		t.mu.Unlock()
		<-mine.done // Somebody is at it.
		return mine.err
	}
	t.writing = true
	for t.waiting != nil {
		n := t.waiting
		t.waiting = nil
		t.mu.Unlock()
		hashes, err := t.write(n.all)
		t.mu.Lock()
		for _, h := range hashes {
			t.listed[h] = struct{}{}
		}
		n.err = err
		close(n.done)
	}
	t.writing = false
	t.mu.Unlock()
	return mine.err
}

// write lists names, those that are not listed, and returns their hashes.
func (t *tracker) write(all []string) ([]uint64, error) {
	stream := t.o.opts.Streams.Emitted()
	if t.listed == nil {
		listed := map[uint64]struct{}{}
		err := readNames(t.o.ctx, t.o.opts.Store, t.o.tries, stream, 0, func(page []string, _ int64) error {
			for _, name := range page {
				listed[xxh3.HashString(name)] = struct{}{}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		t.listed = listed
		t.mu.Unlock()
	}
	var hashes []uint64
	var fresh []string
	for _, name := range all { // Each comes from its stream's only worker, so none is there twice.
		h := xxh3.HashString(name)
		if _, ok := t.listed[h]; !ok {
			hashes, fresh = append(hashes, h), append(fresh, name)
		}
	}
	if err := writeNames(t.o.ctx, t.o.opts.Store, t.o.tries, stream, TypeStreamTracked, fresh); err != nil {
		return nil, err
	}
	return hashes, nil
}

// writeNames adds names to a list.
func writeNames(ctx context.Context, store Store, tries func(func() error) error, stream, eventType string, names []string) error {
	for len(names) > 0 {
		w := &event.Write{Stream: stream, ExpectedVersion: event.AnyVersion}
		size := 0
		for len(names) > 0 && size < maxBatchBytes {
			w.Events = append(w.Events, event.Proposed{ID: newID(), Type: eventType, Data: []byte(names[0])})
			size += len(names[0]) + len(eventType)
			names = names[1:]
		}
		err := tries(func() error {
			_, err := store.Write(ctx, w)
			return err
		})
		if err != nil {
			return writeError(stream, err)
		}
	}
	return nil
}

// readNames goes through a list of names from a number on, a page at a time; next
// is the number behind it. A list that is not there is empty.
func readNames(ctx context.Context, store Store, tries func(func() error) error, stream string, from int64, page func(names []string, next int64) error) error {
	for {
		var p event.StreamPage
		err := tries(func() (err error) {
			p, err = store.ReadStream(ctx, event.StreamRead{Stream: stream, From: from, Count: pageEvents, MaxPayload: pageBytes})
			return err
		})
		if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
			return nil
		} else if err != nil {
			return storageError("read", stream, err)
		}
		names := make([]string, 0, len(p.Events))
		for i := range p.Events {
			e := &p.Events[i].Record
			if e.Bare {
				if err := tries(func() error { return store.ReadPayload(ctx, e) }); isAbsent(err) {
					continue
				} else if err != nil {
					return storageError("read", stream, err)
				}
			}
			names = append(names, string(e.Data))
		}
		from += pageEvents
		if err := page(names, from); err != nil {
			return err
		}
		if p.End {
			return nil
		}
	}
}
