package eventlog

import (
	"context"
	"errors"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/postings"
)

// What looking at the log for one condition may take.
const (
	conditionPostings = 1_000_000
	conditionTime     = 5 * time.Second
	conditionScan     = 256 << 20 // bytes of log, while the index is being built
	conditionLook     = 1024      // records from one look at the time to the next
)

// Look looks for events that fail the conditions of a write, among all that are applied, so that
// the decider has to look at those alone that come later. It returns a copy of the write, with what
// it found. Errors are event.ErrTooWide, an *event.IndexBuilding and those of reads.
func (f *Facts) Look(ctx context.Context, w *event.Write) (*event.Write, error) {
	begun := time.Now()
	defer f.metrics.looks.ObserveSince(begun)
	isOver := func() bool { return ctx.Err() != nil || time.Since(begun) > conditionTime }
	looked, many := *w, *w.Many
	looked.Many, many.Conditions = &many, make([]event.Condition, len(w.Many.Conditions))
	for i, c := range w.Many.Conditions {
		c.Looked = &event.Looked{}
		var passed map[string]bool
		end := f.Settled()
		hit, err := f.firstMatch(isOver, &c.Query, c.After+1, func(it chunkfile.Item, _ bool) (bool, error) {
			stream := string(it.Stream())
			info, err := f.StreamInfo(stream)
			if err != nil || f.shows(&info, it) {
				return true, err
			}
			if !passed[stream] && !info.HardDeleted {
				if passed == nil {
					passed = map[string]bool{}
				}
				passed[stream] = true
				c.Looked.Passed = append(c.Looked.Passed, event.Passed{Stream: stream, MetaLast: info.MetaLast})
			}
			return false, nil
		})
		switch {
		case err != nil:
			return nil, err
		case hit != nil:
			// What came later may hide in between.
			c.Looked.Clear = min(hit.Position, max(end, c.After+1))
		default:
			c.Looked.Clear = max(end, c.After+1)
		}
		many.Conditions[i] = c
	}
	return &looked, nil
}

// FirstMatch returns the applied event with the lowest position, from one on, that a query asks for
// and that shows reports true for; nil: there is none.
func (f *Facts) FirstMatch(q *event.Query, from int64, shows func(*event.Hit) (bool, error)) (*event.Hit, error) {
	hit, err := f.firstMatch(func() bool { return f.lifetime.Err() != nil }, q, from, func(it chunkfile.Item, byLabels bool) (bool, error) {
		hit := hitOf(it)
		hit.ByLabels = byLabels
		return shows(hit)
	})
	return hit, f.judged(err)
}

func hitOf(it chunkfile.Item) *event.Hit {
	return &event.Hit{Position: it.Position(), Stream: string(it.Stream()), Number: it.Number(), ID: it.Id(), Type: string(it.EventType()), Time: it.Time()}
}

// firstMatch looks for the first event that shows reports true for, until isOver.
func (f *Facts) firstMatch(isOver func() bool, q *event.Query, from int64, shows func(it chunkfile.Item, byLabels bool) (bool, error)) (hit *event.Hit, err error) {
	err = f.read(func(v view) error {
		var found candidates = &everything{cu: cursor{v: v}, at: -1}
		walk := f.walk(v, v.tail.End, q, postings.WalkOptions{Certain: true, Most: conditionPostings})
		switch {
		case walk != nil && !q.All:
			f.metrics.conditioned.Inc()
			defer func() { f.metrics.lookedFor.Observe(float64(walk.Read())) }()
			found = walk
		case walk == nil && v.tail.End-from > conditionScan:
			return f.postings.Missing()
		}
		look := querying{rd: f.Reader, v: v, r: &event.AllRead{Query: q}}
		for n := 1; ; n++ {
			if n%conditionLook == 0 && isOver() {
				return event.ErrTooWide
			}
			position, state, err := found.Next(from)
			if err != nil || state == postings.None || position >= v.tail.End {
				return f.unposted(err)
			}
			if state == postings.Paused || n > conditionPostings {
				return event.ErrTooWide
			}
			from = position + 1
			it, err := look.asked(position)
			if err != nil {
				return err
			}
			if it == nil {
				continue
			}
			if shown, err := shows(it, look.byLabels); err != nil {
				return err
			} else if shown {
				hit = hitOf(it)
				return nil
			}
		}
	})
	if errors.Is(err, event.ErrTooWide) {
		f.metrics.wide.Inc()
	}
	return hit, err
}

// Around returns the record at a position, so many before it and so many after it, fewer where the
// log ends or some are gone.
func (f *Facts) Around(position int64, before, after int) (list []event.Hit, err error) {
	err = f.read(func(v view) error {
		cu := cursor{v: v}
		if err := cu.seekBackward(position); err != nil {
			return err
		}
		start := position
		for n := 0; n < before; {
			it, at, err := cu.prev()
			if err != nil || it == nil {
				return err
			}
			if start = at; it.IsRecord() {
				n++
			}
		}
		for it := range v.forward(start, &err) {
			if !it.IsRecord() {
				continue
			}
			if list = append(list, *hitOf(it)); len(list) == before+1+after {
				break
			}
		}
		return err
	})
	return list, f.judged(err)
}
