package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
)

const (
	// lookEvery is how many items are read between two looks at a context.
	lookEvery = 1024

	// readWindow is how many bytes are read at a time where files cannot be mapped.
	readWindow = 1 << 20
)

// set fills in what an item is. Its slices share the item's memory.
func (s *Stored) set(it item, position int64) {
	content := it.content()
	typeAt := it.streamLen()
	dataAt := typeAt + it.typeLen()
	metadataAt := len(content) - it.metadataLen()
	s.Position = position
	s.Size = len(it)
	s.Number = it.number()
	s.Time = it.time()
	s.ID = it.id()
	s.Flags = event.Flags(it.flags())
	s.Stream = content[:typeAt:typeAt]
	s.Type = content[typeAt:dataAt:dataAt]
	s.Data = content[dataAt:metadataAt:metadataAt]
	s.Metadata = content[metadataAt:]
}

// itemReader reads the items of one chunk file from front to back. An item that
// it returned is good until the next call.
type itemReader struct {
	c             *chunk
	offset, limit int64  // of the next item; behind the data
	window        []byte // where the file is not mapped: its bytes from base on
	base          int64
}

// next returns the next item, checked, and its position; nil behind the last.
func (r *itemReader) next() (item, int64, error) {
	if r.offset >= r.limit {
		return nil, 0, nil
	}
	c := r.c
	b, err := r.bytes()
	if err != nil {
		return nil, 0, err
	}
	it, err := parseItem(b)
	if err != nil {
		return nil, 0, c.corrupt(r.offset, "%v", err)
	}
	position := it.position()
	if !c.header.mapped {
		if it.isStub() {
			return nil, 0, c.corrupt(r.offset, "a stub in a chunk as it was written")
		}
		if should := c.start() + r.offset - headerSize; position != should {
			return nil, 0, c.corrupt(r.offset, "a record of position %d stands where that of %d belongs", position, should)
		}
	}
	r.offset += int64(len(it))
	return it, position, nil
}

// bytes returns what the file holds from the next item on, at least all of that item if it is whole.
func (r *itemReader) bytes() ([]byte, error) {
	c := r.c
	if c.mapped != nil {
		if r.limit > int64(len(c.mapped)) {
			return nil, c.corrupt(r.offset, "data reach beyond the file")
		}
		return c.mapped[r.offset:r.limit], nil
	}
	have := r.window[min(r.offset-r.base, int64(len(r.window))):]
	need := int64(recordFixed)
	if len(have) >= 4 {
		need = max(need, int64(order.Uint32(have)))
	}
	for need = min(need, r.limit-r.offset); int64(len(have)) < need; {
		n := min(max(need, readWindow), r.limit-r.offset)
		if int64(cap(r.window)) < n {
			r.window = make([]byte, n)
		}
		r.window, r.base = r.window[:n], r.offset
		if err := readFull(c.file, r.window, r.offset); err != nil {
			r.window = r.window[:0]
			return nil, fmt.Errorf("read %s at %d: %w", c.name, r.offset, err)
		}
		have = r.window
		need = min(max(need, int64(order.Uint32(have))), r.limit-r.offset)
	}
	return have, nil
}

// Scan gives f the records at the positions from (included) to to (excluded), in
// order, also those that readers do not see. From is where an item begins, or
// anywhere in a rewritten chunk or in the void. It holds the file that it reads, one at a time, and looks at
// ctx at least every 1024 records. f's error ends it and is returned as it is.
func (l *Log) Scan(ctx context.Context, from, to int64, f func(*Stored) error) error {
	if from < 0 {
		return event.ErrBadPosition
	}
	to = min(to, l.Tail().End)
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := l.scanChunk(ctx, from, to, f)
		if err != nil {
			return err
		}
		from = next
	}
	return nil
}

// scanChunk scans the file that covers a position and returns where the next one begins.
func (l *Log) scanChunk(ctx context.Context, from, to int64, f func(*Stored) error) (next int64, err error) {
	r, err := l.readerAt(from)
	if err != nil {
		return 0, err
	}
	if r == nil {
		return to, nil
	}
	defer func() {
		if failed := r.c.release(); failed != nil {
			err = errors.Join(err, failed)
		}
	}()
	defer guardFaults(&err)()
	var s Stored
	for n := 1; ; n++ {
		if n%lookEvery == 0 {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
		}
		it, position, err := r.next()
		if err != nil {
			return 0, fmt.Errorf("scan the log: %w", err)
		}
		if it == nil {
			return chunkStart(r.c.header.last + 1), nil
		}
		if position >= to {
			return to, nil
		}
		if !it.isRecord() {
			continue
		}
		s.set(it, position)
		if err := f(&s); err != nil {
			return 0, err
		}
	}
}

// readerAt returns a reader that begins with the first item at or behind a
// position; nil where no file is. Its chunk is held and must be released.
func (l *Log) readerAt(position int64) (_ *itemReader, err error) {
	v, err := l.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	defer guardFaults(&err)()
	c := v.set.at(position)
	if c == nil {
		return nil, nil
	}
	r := &itemReader{c: c, offset: headerSize + position - c.start(), limit: c.dataEnd(v.tail.End)}
	if c.header.mapped {
		i, err := c.search(position)
		if err != nil {
			return nil, err
		}
		r.offset = r.limit
		if i < c.mapEntries() {
			if _, r.offset, err = c.mapEntry(i, new([]byte)); err != nil {
				return nil, err
			}
		}
	} else if r.offset < r.limit {
		// The position comes from outside: it may be none.
		if _, err := v.itemAt(position, new([]byte)); err != nil {
			return nil, v.explain(position, false, err)
		}
	}
	c.retain()
	return r, nil
}
