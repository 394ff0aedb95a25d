package eventlog

import (
	"runtime/debug"

	"github.com/annalsdb/annals/event"
)

// published is what readers see: the chunk files, and how far the log in them
// is applied and indexed.
type published struct {
	set   *chunkSet
	tail  event.Tail
	epoch int64 // first position of the newest term, -1 when the log is empty
}

// view is a reader's hold on a published state. It must be released.
type view struct{ *published }

func (l *Log) view() (view, error) {
	for {
		p := l.pub.Load()
		if p.set.acquire() {
			return view{p}, nil
		}
		if l.gone.Load() {
			return view{}, event.ErrClosed
		}
	}
}

func (v view) release() { v.set.release() }

// guardFaults turns a fault while reading mapped memory (the disk did not
// deliver, or the file was cut from outside) into a corruption error instead of
// the end of the process. Use: defer guardFaults(&err)().
func guardFaults(err *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		if fault, ok := r.(interface {
			error
			Addr() uintptr
		}); ok {
			*err = &faultError{&event.Corruption{File: "a mapped chunk or index file", Offset: -1, Detail: "reading it faulted: " + fault.Error()}, fault.Addr()}
			return
		}
		panic(r)
	}
}

// faultError is a corruption met where the system could not deliver mapped memory.
type faultError struct {
	*event.Corruption
	addr uintptr
}

func (e *faultError) Unwrap() error { return e.Corruption }

// itemAt returns the item that stands at exactly a position, nil when it is gone (scavenged), whether or not a stub is left of it.
func (v view) itemAt(position int64, scratch *[]byte) (item, error) {
	if position < 0 || position >= v.tail.End {
		return nil, nil
	}
	c := v.set.at(position)
	if c == nil {
		return nil, nil
	}
	offset := headerSize + position - c.start()
	if c.header.mapped {
		i, err := c.search(position)
		if err != nil {
			return nil, err
		}
		if i == c.mapEntries() {
			return nil, nil
		}
		var at int64
		var small []byte
		if at, offset, err = c.mapEntry(i, &small); err != nil || at != position {
			return nil, err
		}
	}
	it, err := c.itemAt(offset, c.dataEnd(v.tail.End), scratch)
	if err == nil && it.position() != position {
		err = c.corrupt(offset, "a record of position %d stands where that of %d belongs", it.position(), position)
	}
	if err == nil && it.isStub() {
		it = nil
	}
	return it, err
}

// cursor walks the items of a view, in one direction at a time.
type cursor struct {
	v       view
	c       *chunk // nil at the end (forward) or the start (backward) of the log
	offset  int64  // in c: of the next item forward, behind the next item backward
	limit   int64  // in c: behind its data
	scratch []byte
}

// seekForward puts the cursor before the first item at or behind a position.
func (cu *cursor) seekForward(position int64) error {
	for {
		cu.c = nil
		if position >= cu.v.tail.End {
			return nil
		}
		c := cu.v.set.at(position)
		if c == nil {
			return nil
		}
		limit := c.dataEnd(cu.v.tail.End)
		offset := headerSize + position - c.start()
		if c.header.mapped {
			i, err := c.search(position)
			if err != nil {
				return err
			}
			offset = limit
			if i < c.mapEntries() {
				if _, offset, err = c.mapEntry(i, &cu.scratch); err != nil {
					return err
				}
			}
		}
		if offset < limit {
			cu.c, cu.offset, cu.limit = c, offset, limit
			return nil
		}
		position = chunkStart(c.header.last + 1)
	}
}

// next returns the next item forward and its position; nil at the end of the log.
func (cu *cursor) next() (item, int64, error) {
	for cu.c != nil {
		if cu.offset >= cu.limit {
			if err := cu.seekForward(chunkStart(cu.c.header.last + 1)); err != nil {
				return nil, 0, err
			}
			continue
		}
		it, err := cu.c.itemAt(cu.offset, cu.limit, &cu.scratch)
		if err != nil {
			return nil, 0, err
		}
		position := it.position()
		if !cu.c.header.mapped && position != cu.c.start()+cu.offset-headerSize {
			return nil, 0, cu.c.corrupt(cu.offset, "a record of position %d stands where that of %d belongs", position, cu.c.start()+cu.offset-headerSize)
		}
		cu.offset += int64(len(it))
		return it, position, nil
	}
	return nil, 0, nil
}

// seekBackward puts the cursor behind the last item that ends at or before a position.
func (cu *cursor) seekBackward(position int64) error {
	position = min(position, cu.v.tail.End)
	for {
		cu.c = nil
		if position <= 0 {
			return nil
		}
		c := cu.v.set.at(position - 1)
		if c == nil { // The log ends before it.
			return nil
		}
		limit := c.dataEnd(cu.v.tail.End)
		offset := min(limit, headerSize+position-c.start())
		if c.header.mapped {
			i, err := c.search(position)
			if err != nil {
				return err
			}
			offset = limit
			if i < c.mapEntries() {
				if _, offset, err = c.mapEntry(i, &cu.scratch); err != nil {
					return err
				}
			}
		}
		if offset > headerSize {
			cu.c, cu.offset, cu.limit = c, offset, limit
			return nil
		}
		position = c.start()
	}
}

// prev returns the next item backward and its position; nil at the start of the log.
func (cu *cursor) prev() (item, int64, error) {
	for cu.c != nil {
		if cu.offset <= headerSize {
			if err := cu.seekBackward(cu.c.start()); err != nil {
				return nil, 0, err
			}
			continue
		}
		it, at, err := cu.c.itemBefore(cu.offset, &cu.scratch)
		if err != nil {
			return nil, 0, err
		}
		position := it.position()
		if !cu.c.header.mapped && position != cu.c.start()+at-headerSize {
			return nil, 0, cu.c.corrupt(at, "a record of position %d stands where that of %d belongs", position, cu.c.start()+at-headerSize)
		}
		cu.offset = at
		return it, position, nil
	}
	return nil, 0, nil
}

// explain tells, of an error that a cursor met right at a position that came
// from outside, whether the position was none or the data there are damaged: it
// walks the lengths from the start of the chunk.
func (v view) explain(position int64, backward bool, err error) error {
	if !event.IsCorruption(err) {
		return err
	}
	within := position
	if backward {
		within-- // The start of a chunk is also where the one before ends.
	}
	c := v.set.at(within)
	if c == nil || c.header.mapped {
		return err
	}
	limit := c.dataEnd(v.tail.End)
	target := min(limit, headerSize+position-c.start())
	var scratch []byte
	for at := int64(headerSize); ; {
		if at == target {
			return err
		}
		if at > target {
			return event.ErrBadPosition
		}
		b, readErr := c.bytes(at, 4, &scratch)
		if readErr != nil {
			return err
		}
		size := int64(order.Uint32(b))
		if size < recordFixed || size > limit-at {
			return err
		}
		at += size
	}
}
