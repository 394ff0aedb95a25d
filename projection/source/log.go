package source

import (
	"context"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// logInput reads the log.
type logInput struct {
	catchup.Cursor
	r       *Reader
	at      position.Position // after the last event that was handed on
	counted int64             // up to here the bytes are in entries
	newest  int64             // position of the last record that was read, -1: none
	count   int
	names   *event.FilterNames // nil: any
	behind  int64              // where the last record that was handed on ends
}

func newLogInput(r *Reader, from position.Position) *logInput {
	// A position (c, -1) is before the record at c, and (c, c) after it.
	next := max(0, from.Commit)
	return &logInput{
		Cursor: catchup.Cursor{Store: r.Store, All: true, Next: next, After: from.Commit >= 0 && from.Prepare >= from.Commit},
		r:      r, names: r.namesInLog(), at: from, counted: next, newest: -1, count: r.max.events, behind: next,
	}
}

func (in *logInput) fill(ctx context.Context) error {
	r := in.r
	for {
		if r.Once && in.Next >= r.limit {
			r.isBegun = true
			return ErrEnd
		}
		in.Seen = -1
		page, err := in.Read(ctx, &catchup.Look{Count: in.count, Filter: r.inLog, Names: in.names, MaxScan: r.max.records, MaxPayload: r.max.bytes})
		if err != nil {
			return err
		}
		more, err := in.take(ctx, &page)
		if err != nil {
			return err
		}
		r.isBegun = true
		if len(r.buffer) > 0 {
			return nil
		}
		if more {
			continue
		}
		if r.Once {
			return ErrEnd
		}
		r.rest()
		if err := r.Store.WaitLog(ctx, in.Next); err != nil {
			return err
		}
	}
}

// take puts the events of a page into the buffer. There may be more at once when it says so.
func (in *logInput) take(ctx context.Context, page *catchup.Page) (more bool, err error) {
	r, newest := in.r, in.Seen
	more = page.More
	for i := range page.Events {
		of := &page.Events[i]
		if of.Position >= r.limit {
			in.Next, newest, more = r.limit, -1, true
			break
		}
		if of.Bare && len(r.buffer) > 0 { // It begins the next page: the buffer stays small.
			in.ReadAgain(of)
			in.count, newest, more = max(2*i, 1), -1, true
			break
		}
		if of, err = r.whole(ctx, of); err != nil {
			in.ReadAgain(&page.Events[i])
			return false, err
		}
		e := entry{number: of.Position, position: of.Position, bytes: of.Next - in.counted}
		var ev handler.Event
		if !of.Bare && r.fromLog(&ev, &of.Record) {
			e.Event = ev
		}
		in.counted, in.newest = of.Next, of.Position
		r.add(e)
	}
	in.count = min(r.max.events, 2*in.count)
	if newest > in.newest && newest < r.limit { // Nothing after the limit is read.
		in.newest = newest
		r.add(entry{number: newest, position: newest, bytes: max(0, in.Next-in.counted)})
		in.counted = max(in.Next, in.counted)
	}
	return more, nil
}

func (in *logInput) passed(e *entry) {
	in.at.Commit, in.at.Prepare = e.number, e.number
	in.behind += e.bytes
}

func (in *logInput) looked() int64 { return in.Next }

func (in *logInput) position() position.Position { return in.at }

func (in *logInput) extent() (done, total int64, isAll bool) {
	total = min(in.r.Store.LogEnd(), in.r.limit)
	return in.behind, total, in.Next >= total
}

func (in *logInput) close() {}
