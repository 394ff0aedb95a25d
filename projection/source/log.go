package source

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// logInput reads the log.
type logInput struct {
	r       *Reader
	at      position.Position // after the last event that was handed on
	next    int64             // where the next read begins
	counted int64             // up to here the bytes are in entries
	newest  int64             // position of the last record that was read, -1: none
	count   int
	behind  int64 // where the last record that was handed on ends
	first   int64 // what begins before this was handed on before the reader was opened
}

func newLogInput(r *Reader, from position.Position) *logInput {
	in := &logInput{r: r, at: from, newest: -1, count: r.max.events}
	// A position (c, -1) is before the record at c, and (c, c) after it. There is no knowing where
	// the next one begins, so the read begins with it.
	in.next = max(0, from.Commit)
	in.first = in.next
	if from.Commit >= 0 && from.Prepare >= from.Commit && in.first < math.MaxInt64 {
		in.first++
	}
	in.counted, in.behind = in.next, in.next
	return in
}

func (in *logInput) fill(ctx context.Context) error {
	r := in.r
	for {
		if r.Once && in.next >= r.limit {
			r.isBegun = true
			return ErrEnd
		}
		page, err := r.Store.ReadAll(ctx, event.AllRead{
			From: in.next, Count: in.count, Filter: r.inLog, MaxScan: r.max.records, MaxPayload: r.max.bytes,
		})
		if err != nil {
			return err
		}
		if err := in.take(ctx, &page); err != nil {
			return err
		}
		r.isBegun = true
		if len(r.buffer) > 0 {
			return nil
		}
		if page.More {
			continue
		}
		if r.Once {
			return ErrEnd
		}
		r.buffer = shed(r.buffer)
		if err := r.Store.WaitLog(ctx, in.next); err != nil {
			return err
		}
	}
}

// take puts the events of a page into the buffer.
func (in *logInput) take(ctx context.Context, page *event.AllPage) error {
	r := in.r
	newest, next := page.Last, page.Next
	for i := range page.Events {
		rec := &page.Events[i].Record
		if rec.Position >= r.limit {
			newest, next, page.More = -1, r.limit, true
			break
		}
		if rec.Position < in.first {
			in.counted = max(in.counted, rec.Next)
			continue
		}
		if rec.Bare {
			if len(r.buffer) > 0 { // It begins the next page, so that the buffer stays small.
				newest, next, page.More = -1, rec.Position, true
				in.count = max(2*i, 1)
				break
			}
			if err := r.Store.ReadPayload(ctx, rec); errors.Is(err, event.ErrEventNotFound) {
				continue // A scavenge removed it just now.
			} else if err != nil {
				return fmt.Errorf("read the event at %d: %w", rec.Position, err)
			}
		}
		e := entry{number: rec.Position, position: rec.Position, bytes: rec.Next - in.counted}
		var ev handler.Event
		if r.fromLog(&ev, rec) {
			e.Event = ev
		}
		in.counted = rec.Next
		in.newest = rec.Position
		r.add(e)
	}
	in.count = min(r.max.events, 2*in.count)
	if newest >= r.limit {
		newest = -1 // It is after all that is read once.
	}
	if newest > in.newest && newest >= in.first {
		in.newest = newest
		r.add(entry{number: newest, position: newest, bytes: max(0, next-in.counted)})
		in.counted = max(next, in.counted)
	}
	in.next = next
	return nil
}

func (in *logInput) passed(e *entry) {
	in.at.Commit, in.at.Prepare = e.number, e.number
	in.behind += e.bytes
}

func (in *logInput) position() position.Position { return in.at }

func (in *logInput) extent() (done, total int64, isAll bool) {
	total = min(in.r.Store.LogEnd(), in.r.limit)
	return in.behind, total, in.next >= total
}

func (in *logInput) close() {}
