package eventlog

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// order compares the numbers of applied events with this node's last events of their streams. All
// nodes append what the leader decided, right or wrong. If a leader gives a number twice, the other
// nodes notice: they have the first event of that number.
//
// Metadata events after a tombstone have their positions as numbers (event.IsLate). They may follow
// any number.
//
// For streams whose facts are cached the numbers are compared during the commit. For others one
// goroutine compares them a moment later: it reads the log up to its end.
type order struct {
	*state
	reads *Reader
	// 1 + the position of the first event that is not compared; 0: there is none
	from  atomic.Int64
	wake  chan struct{} // capacity 1
	first atomic.Pointer[error]
	// the last number of streams that were looked up, by hash; the goroutine's
	seen map[uint64]int64
}

const (
	orderPause = 200 * time.Millisecond // between two looks at the log
	// items between two pauses, each seven times as long as the batch took
	orderBatch = 2048
	orderSeen  = 8192
)

// wrong says that the events of a stream are not numbered as they should be; nil: none is known.
func (o *order) wrong() error {
	if err := o.first.Load(); err != nil {
		return *err
	}
	return nil
}

// later has an event, and those after it, compared later.
func (o *order) later(position int64) {
	if o.from.CompareAndSwap(0, position+1) {
		bell.Ring(o.wake)
	}
}

// alarm takes note of an event whose number does not follow.
func (o *order) alarm(stream string, number, position, before int64) {
	err := error(&event.Renumbered{Stream: stream, Number: number, Before: before, Position: position})
	o.metrics.renumbered.Inc()
	o.logger.Error("the number of an event does not follow the last event of its stream on this node: the index of the leader or of this node is damaged, and nodes answer differently",
		logkey.Stream, stream, logkey.Number, number, "last", before, logkey.Position, position)
	o.first.CompareAndSwap(nil, &err)
	o.damages.suspectIndex(err)
}

// run compares what is left to it until ctx ends.
func (o *order) run(ctx context.Context) {
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
		if clock.Sleep(ctx, orderPause) != nil {
			return
		}
		from := o.from.Swap(0) - 1
		for from >= 0 {
			begun := time.Now()
			next, err := o.look(from)
			if err != nil && !event.IsCorruption(err) && ctx.Err() == nil {
				o.logger.Warn("numbers of events could not be compared", logkey.From, from, logkey.Error, err)
			}
			if f := o.from.Load(); f > 0 && f-1 < next { // It was just compared.
				o.from.CompareAndSwap(f, 0)
			}
			if from = next; clock.Sleep(ctx, 7*time.Since(begun)) != nil {
				return
			}
		}
	}
}

// look compares a batch from a position on. It returns where the next one begins, -1 when there is
// none. What is damaged is known as such elsewhere.
func (o *order) look(from int64) (next int64, err error) {
	next = -1
	err = o.read(func(v view) (err error) {
		looked := 0
		for it, position := range v.forward(from, &err) {
			next = position + int64(len(it))
			if it.IsRecord() && it.Number() != event.TombstoneNumber {
				if err := o.compare(v, it, position); err != nil {
					return err
				}
			}
			if looked++; looked == orderBatch {
				return nil
			}
		}
		next = -1
		return err
	})
	return next, err
}

// compare looks for another event of an event's number, and for the one before it.
func (o *order) compare(v view, it chunkfile.Item, position int64) error {
	hash, number := it.StreamHash(), it.Number()
	last, ok := o.seen[hash]
	if len(o.seen) >= orderSeen {
		clear(o.seen)
	}
	o.seen[hash] = number
	if ok && last == number-1 {
		return nil
	}
	stream := string(it.Stream())
	earlier, err := o.has(v, hash, stream, number, position)
	if err != nil {
		return err
	}
	if earlier {
		o.alarm(stream, number, position, number)
		return nil
	}
	if number == 0 {
		return nil
	}
	if before, err := o.has(v, hash, stream, number-1, position); before || err != nil {
		return err
	}
	// A scavenge may have removed it meanwhile.
	info, err := o.reads.StreamInfo(stream)
	if err != nil || event.IsMetaStream(stream) || info.HardDeleted || info.Metadata.Retention != (event.Retention{}) {
		return err
	}
	o.alarm(stream, number, position, -1)
	return nil
}

// has reports whether a stream has an event of a number below a position.
func (o *order) has(v view, hash uint64, stream string, number, below int64) (bool, error) {
	var room [4]index.Entry
	found, err := index.GetCertain(o.index, room[:0], hash, number)
	if err != nil {
		return false, err
	}
	for _, e := range found {
		if e.Position >= below {
			continue
		}
		if it, err := o.reads.confirm(v, e, stream, new([]byte)); err != nil || it != nil {
			return err == nil, err
		}
	}
	return false, nil
}
