package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

const (
	// lookEvery is how many items are read between two looks at a context.
	lookEvery = 1024
)

// set fills in what an item is. Its slices share the item's memory.
func (s *Stored) set(it chunkfile.Item, position int64) {
	content := it.Content()
	typeAt := it.StreamLen()
	dataAt := typeAt + it.TypeLen()
	metadataAt := len(content) - it.MetadataLen()
	s.Position = position
	s.Size = len(it)
	s.Number = it.Number()
	s.Time = it.Time()
	s.ID = it.Id()
	s.Flags = event.Flags(it.Flags())
	s.Stream = content[:typeAt:typeAt]
	s.Type = content[typeAt:dataAt:dataAt]
	s.Data = content[dataAt:metadataAt:metadataAt]
	s.Metadata = content[metadataAt:]
}

// Scan gives f the records at the positions from (included) to to (excluded), in order, also those
// that readers do not see. From is where an item begins, or anywhere in a rewritten chunk or in the
// void. It holds the file that it reads, one at a time, and looks at ctx at least every 1024
// records. f's error ends it and is returned as it is.
func (cs *Chunks) Scan(ctx context.Context, from, to int64, f func(*Stored) error) error {
	if from < 0 {
		return event.ErrBadPosition
	}
	to = min(to, cs.Tail().End)
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := cs.scanChunk(ctx, from, to, f)
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// scanChunk scans the file that covers a position and returns where the next one begins.
func (cs *Chunks) scanChunk(ctx context.Context, from, to int64, f func(*Stored) error) (next int64, err error) {
	r, err := cs.readerAt(from)
	if err != nil {
		return 0, err
	}
	if r == nil {
		return to, nil
	}
	defer func() {
		if failed := r.C.Release(); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	defer chunkfile.GuardFaults(&err)()
	var s Stored
	for n := 1; ; n++ {
		if n%lookEvery == 0 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
		}
		it, position, err := r.Next()
		if err != nil {
			return 0, fmt.Errorf("scan the log: %w", err)
		}
		if it == nil {
			return chunkfile.ChunkStart(r.C.Header.Last + 1), nil
		}
		if position >= to {
			return to, nil
		}
		if !it.IsRecord() {
			continue
		}
		s.set(it, position)
		if err := f(&s); err != nil {
			return 0, err
		}
	}
}

// readerAt returns a reader that begins with the first item at or after a position; nil where there
// is no file. Its chunk is held and must be released.
func (cs *Chunks) readerAt(position int64) (_ *chunkfile.ItemReader, err error) {
	v, err := cs.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	defer chunkfile.GuardFaults(&err)()
	c := v.set.at(position)
	if c == nil {
		return nil, nil
	}
	r := &chunkfile.ItemReader{C: c, Offset: chunkfile.HeaderSize + position - c.Start(), Limit: c.DataEnd(v.tail.End)}
	if c.Header.Mapped {
		if r.Offset, _, err = c.FindFrom(position, new([]byte)); err != nil {
			return nil, err
		}
	} else if r.Offset < r.Limit {
		// The position comes from outside: it may be none.
		if _, err := v.itemAt(position, new([]byte)); err != nil {
			return nil, v.explain(position, false, err)
		}
	}
	c.Retain()
	return r, nil
}
