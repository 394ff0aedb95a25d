package output

import (
	"errors"
	"slices"
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/position"
)

// worker is a goroutine that writes, and its memory.
type worker struct {
	o       *Output
	batch   []item
	numbers []int64 // under which those of the batch are stored, or gone
	write   event.Write
	written []int // which of the batch the events of the write are
}

const (
	keptEvents  = 16  // of the memory of queues and workers that are idle
	keptBuffers = 256 // queues
	keptWorkers = 64
)

// run writes until no stream has anything to write.
func (w *worker) run() {
	o := w.o
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.err == nil && !o.closed && o.ready.head != nil {
		s := o.ready.head
		o.ready.remove(s)
		if !w.take(s) {
			continue
		}
		s.busy = true
		o.mu.Unlock()
		err := w.step(s)
		o.mu.Lock()
		s.busy = false
		if err != nil {
			o.fail(err)
			break
		}
		w.finish(s)
	}
	o.workers--
	clear(w.batch)
	if cap(w.batch) > keptEvents {
		w.batch, w.written, w.numbers, w.write.Events = nil, nil, nil, nil
	}
	if len(o.spare) < keptWorkers {
		o.spare = append(o.spare, w)
	}
}

// take copies the next batch of a stream; none if it begins with a link to an event that is not
// written yet.
func (w *worker) take(s *stream) bool {
	w.batch = w.batch[:0]
	size := int64(0)
	for i := s.next; i < len(s.queue) && len(w.batch) < w.o.opts.MaxBatch; i++ {
		it := &s.queue[i]
		if it.links != nil && !it.links.ready {
			if len(w.batch) == 0 {
				it.links.blocks = s
			}
			break
		}
		size += it.size()
		if size > maxBatchBytes && len(w.batch) > 0 {
			break
		}
		w.batch = append(w.batch, *it)
	}
	return len(w.batch) > 0
}

// finish takes what was done out of the queue of a stream, and hands on the stream. The mutex is
// held.
func (w *worker) finish(s *stream) {
	o := w.o
	for i := range w.batch {
		it := &s.queue[s.next+i] // As it was added: the data of a link may have been made since.
		o.bytes -= it.size()
		if p := it.tells; p != nil {
			p.number, p.ready = w.numbers[i], true
			if b := p.blocks; b != nil {
				p.blocks = nil
				if !b.busy && b.in == nil {
					o.ready.push(b)
					o.hire()
				}
			}
		}
	}
	n := len(w.batch)
	o.pending -= n
	clear(s.queue[s.next : s.next+n])
	s.next += n
	s.settled = s.recovery == nil
	switch {
	case s.waits() == 0:
		if cap(s.queue) <= keptEvents && len(o.buffers) < keptBuffers {
			o.buffers = append(o.buffers, s.queue[:0])
		}
		s.queue, s.next = nil, 0
		if s.settled {
			o.idle.push(s)
		}
	default:
		// What waits moves to the front, or the queue of a busy stream would grow for ever.
		if s.next > len(s.queue)/2 {
			k := copy(s.queue, s.queue[s.next:])
			clear(s.queue[k:])
			s.queue, s.next = s.queue[:k], 0
		}
		o.ready.push(s)
	}
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
}

// fail ends the output. The mutex is held.
func (o *Output) fail(err error) {
	if o.err == nil && !(o.closed && IsLost(err)) {
		o.err = err
		o.giveUp(err)
	}
}

// step does a batch: what is stored already is passed over, the rest is written.
func (w *worker) step(s *stream) error {
	if !s.seen {
		if err := w.o.look(s); err != nil {
			return err
		}
		s.seen = true
		if !slices.ContainsFunc(w.batch, func(i item) bool { return i.mark }) {
			s.lastAt = nil
		}
	} else if err := w.o.mayWrite(s); err != nil {
		return err
	}
	w.numbers, w.written, w.write.Events = w.numbers[:0], w.written[:0], w.write.Events[:0]
	for i := range w.batch {
		it := &w.batch[i]
		number, isStored, err := w.stored(s, it)
		if err != nil {
			return err
		}
		if !isStored {
			number = s.last + 1 + int64(len(w.written))
			w.written = append(w.written, i)
			w.write.Events = append(w.write.Events, it.event)
		}
		w.numbers = append(w.numbers, number)
	}
	if len(w.written) == 0 {
		return nil
	}
	return w.append(s)
}

// stored reports whether an item is stored already, or is not to be written for another reason.
func (w *worker) stored(s *stream, it *item) (number int64, isStored bool, err error) {
	switch {
	case it.mark:
		if s.lastAt != nil && !isBehind(*it.at, *s.lastAt) {
			return gone, true, nil
		}
		s.lastAt = it.at
	case s.recovery != nil:
		number, isStored, err = w.o.recover(s, it)
		if err != nil || isStored {
			return number, isStored, err
		}
	}
	if p := it.links; p != nil {
		if p.number == gone {
			return gone, true, nil
		}
		data := make([]byte, 0, len(p.stream)+20)
		data = append(strconv.AppendInt(data, p.number, 10), '@')
		it.event.Data = append(data, p.stream...)
	}
	return 0, false, nil
}

// append writes the events that are not stored.
func (w *worker) append(s *stream) error {
	w.write.Stream, w.write.ExpectedVersion = s.name, s.last
	var done event.Written
	isFirst := true
	err := w.o.tries(w.o.ctx, func() (err error) {
		done, err = w.o.store.Write(w.o.ctx, &w.write)
		isFirst = isFirst && err == nil
		return err
	})
	if !isFirst {
		// A write that was given up may still be looked at by others.
		w.write = event.Write{}
	} else {
		clear(w.write.Events)
	}
	if err != nil {
		return writeError(s.name, err)
	}
	s.last = done.Last
	return nil
}

// writeError says what an error of a write to a stream means for the projection.
func writeError(stream string, err error) error {
	var other *event.WrongExpectedVersion
	var bad *event.BadRequest
	switch {
	case errors.As(err, &other):
		return restart(err)
	case errors.As(err, &bad):
		return faultf("An event cannot be written to the stream '%s': %s", stream, bad.Text)
	case errors.Is(err, event.ErrStreamDeleted):
		return deletedFault(stream)
	case errors.Is(err, event.ErrNotAuthorized):
		return notAuthorizedFault(stream)
	case errors.Is(err, event.ErrTooLarge):
		return faultf("An event is too large to be written to the stream '%s': %v", stream, err)
	}
	return storageError("write to", stream, err)
}

// isBehind reports whether a position is later than another one, which is one of the projection as
// it is now.
func isBehind(p, other position.Position) bool {
	c, ok := compare(p, other)
	return !ok || c > 0
}

// compare is position.Compare where p may be of what the projection read before
// its definition was changed.
func compare(p, ours position.Position) (int, bool) {
	if c, ok := position.Compare(p, ours); ok {
		return c, true
	}
	zero := position.Position{Log: ours.Log, Prepare: -1, Numbers: make([]position.Number, len(ours.Numbers))}
	for i, n := range ours.Numbers {
		zero.Numbers[i] = position.Number{Name: n.Name, Number: -1}
	}
	same, err := position.Convert(p, zero)
	if err != nil {
		return 0, false
	}
	return position.Compare(same, ours)
}

// equal reports whether two positions are the same in every detail.
func equal(a, b position.Position) bool {
	return a.Log == b.Log && a.Commit == b.Commit && a.Prepare == b.Prepare && a.Phase == b.Phase && a.Completed == b.Completed &&
		slices.Equal(a.Numbers, b.Numbers)
}
