package source

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// bounds of the read of a Fill. Tests choose small ones.
type bounds struct {
	events int // most that are read ahead
	bytes  int // of their data and metadata; one event may be larger alone
	// of the log that one read looks at, so that a reader that selects little can be stopped and
	// tells how far it is
	records int
	places  int // of the order that are read at once
}

var usual = bounds{events: 1000, bytes: 4 << 20, records: 20_000, places: 200}

// entry is a record that was read: an event for the projection, or, without a
// Record, one that is passed over.
type entry struct {
	handler.Event
	stream   int   // which; 0 for the log
	number   int64 // in the stream; for the log the position
	position int64 // in the log
	bytes    int64 // of the log that are passed with it
	recorded int   // where the order has the position after it, 1 + an index; 0: it has not
}

// input is the log or streams.
type input interface {
	// fill reads into the reader's buffer, which is empty.
	fill(ctx context.Context) error
	// passed moves the position past an entry.
	passed(e *entry)
	position() position.Position
	// looked is the position of the log before which all events were put into the buffer.
	looked() int64
	// extent tells how much was handed on and how much there is, and whether that is all.
	extent() (done, total int64, isAll bool)
	close()
}

// Reader reads the sources of a projection. It belongs to one goroutine.
type Reader struct {
	Options
	selection
	max     bounds
	in      input
	limit   int64 // in the log: what begins there or later is not read
	buffer  []entry
	at      int // of the next entry in buffer
	events  int // events among what is left of it
	bytes   int64
	done    int64     // all events of the sources before this position of the log were handed on
	isBegun bool      // something was looked at
	sources []string  // whose read right is needed
	judged  time.Time // when it was there last
}

// Open returns a reader that resumes after a position. It checks the rights, and reads nothing yet.
// A position of another kind of source is position.ErrOtherSource.
func Open(ctx context.Context, o Options) (*Reader, error) { return open(ctx, o, usual) }

func open(ctx context.Context, o Options, limits bounds) (*Reader, error) {
	r := &Reader{Options: o, max: limits, selection: newSelection(o.Definition), limit: math.MaxInt64}
	from, err := position.Convert(o.From, Zero(o.Definition))
	if err != nil {
		return nil, err
	}
	if r.Links == nil {
		r.Links = event.NoLink
	}
	streams := streamsOf(o.Definition)
	r.sources = Names(o.Definition)
	if err := r.judge(ctx); err != nil {
		return nil, err
	}
	if o.Once {
		r.limit = o.Store.LogEnd()
	}
	if o.Definition.AllStreams {
		r.in = newLogInput(r, from)
	} else {
		r.in = newStreamsInput(r, streams, from)
	}
	if o.Until != nil {
		until, err := position.Convert(*o.Until, Zero(o.Definition))
		if err != nil {
			return nil, err
		}
		r.end(until)
	}
	return r, nil
}

// end ends the input after a position.
func (r *Reader) end(until position.Position) {
	if !until.Log {
		for i, s := range r.in.(*streamsInput).streams {
			s.until = until.Numbers[i].Number
		}
		return
	}
	r.limit = min(r.limit, until.End())
}

// Fill reads ahead if the buffer is empty. It returns when an event is buffered or
// the position moved over events that are not selected, and waits at the end of
// the input until one of both is so. It returns ErrEnd at the end of what is read
// once, a *handler.Fault for numbers that are missing, and errors of the store, after
// which it can be called again.
func (r *Reader) Fill(ctx context.Context) error {
	if r.events == 0 {
		r.pass()
		clear(r.buffer)
		r.buffer, r.at = r.buffer[:0], 0
		if err := r.in.fill(ctx); err != nil {
			return err
		}
	}
	if time.Since(r.judged) < judgeEvery {
		return nil
	}
	return r.judge(ctx) // The events that were read are handed on after that.
}

// judgeEvery is how often the rights are looked at again.
const judgeEvery = time.Second

// judge looks at the rights to read the sources.
func (r *Reader) judge(ctx context.Context) error {
	for _, s := range r.sources {
		if r.May == nil {
			break
		}
		if err := r.May(ctx, s); errors.Is(err, event.ErrNotAuthorized) {
			return &NotReadable{Stream: s, Err: err}
		} else if err != nil {
			return fmt.Errorf("right to read stream %s: %w", s, err)
		}
	}
	r.judged = time.Now()
	return nil
}

// Next returns the next event of the buffer; it reads nothing. The event and all
// that it points to may be used until the next Fill.
func (r *Reader) Next() (e *handler.Event, ok bool) {
	if r.events == 0 {
		r.pass()
		return nil, false
	}
	for {
		e := &r.buffer[r.at]
		r.at++
		r.leave(e)
		if e.Record != nil {
			r.events--
			return &e.Event, true
		}
	}
}

// pass moves past the rest of the buffer, which is not selected.
func (r *Reader) pass() {
	for ; r.at < len(r.buffer); r.at++ {
		r.leave(&r.buffer[r.at])
	}
	r.done = max(r.done, r.in.looked())
}

// leave moves past an entry. Those whose order was written may come before older ones of a source
// that is new.
func (r *Reader) leave(e *entry) {
	r.in.passed(e)
	r.bytes += e.bytes
	if e.recorded == 0 {
		r.done = max(r.done, e.position+1)
	}
}

// rest is called before a wait at the end of the input.
func (r *Reader) rest() {
	r.buffer = shed(r.buffer)
	r.done = max(r.done, r.in.looked())
	if r.Waiting != nil {
		r.Waiting(r.done)
	}
}

// Done is the position of the log before which all events of the sources were handed on.
func (r *Reader) Done() int64 { return r.done }

// add puts an entry at the end of the buffer. Of a run that is passed over the last counts.
func (r *Reader) add(e entry) {
	if e.Record != nil {
		r.events++
	} else if n := len(r.buffer); n > 0 {
		if last := &r.buffer[n-1]; last.Record == nil && last.stream == e.stream && last.recorded == 0 {
			e.bytes += last.bytes
			*last = e
			return
		}
	}
	r.buffer = append(r.buffer, e)
}

// whole returns an event with what its page left out. One that a scavenge removed meanwhile stays
// bare: it is passed over.
func (r *Reader) whole(ctx context.Context, e *event.Resolved) (*event.Resolved, error) {
	full, err := e.Complete(func(rec *event.Record) error { return r.Store.ReadPayload(ctx, rec) })
	switch {
	case errors.Is(err, event.ErrEventNotFound):
		return e, nil
	case err != nil:
		return nil, fmt.Errorf("read event %d of stream %s: %w", e.Number, e.Stream, err)
	}
	return full, nil
}

// shed lets go of an empty buffer that has grown large: the reader is about to wait,
// perhaps for long, and there may be a thousand of them.
func shed(b []entry) []entry {
	if cap(b) > 16 {
		return nil
	}
	return b
}

// Position is the position after the event that Next returned last. Once Next found the buffer
// empty, it is after all that was read.
func (r *Reader) Position() position.Position { return r.in.position() }

// Buffered is how many events Next can return.
func (r *Reader) Buffered() int { return r.events }

// Passed is how many bytes of the log were passed since the reader was opened: up
// to where Position is, also those of events that are not selected.
func (r *Reader) Passed() int64 { return r.bytes }

// Progress is how much of the input was read: -1 before anything was, else
// percent, 100 when all was.
func (r *Reader) Progress() float64 {
	if !r.isBegun {
		return -1
	}
	done, total, isAll := r.in.extent()
	if isAll && r.at == len(r.buffer) || total <= 0 {
		return 100
	}
	return min(100, 100*float64(done)/float64(total))
}

// Unread is about how much is not read yet: bytes of the log, or events of streams.
func (r *Reader) Unread() int64 {
	done, total, isAll := r.in.extent()
	if isAll && r.isBegun && r.at == len(r.buffer) {
		done = total
	}
	return max(0, total-done)
}

// Close releases the buffer.
func (r *Reader) Close() {
	r.buffer, r.at, r.events = nil, 0, 0
	r.in.close()
}
