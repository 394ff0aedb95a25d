package eventlog

import (
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// ReadAll reads a page of the log. Events of deleted, truncated or expired
// streams are there until a scavenge removes them.
func (rd *Reader) ReadAll(r event.AllRead) (page event.AllPage, err error) {
	// Before the view: what lies before it is seen in the streams from now on.
	settled := rd.Settled()
	err = rd.read(func(v view) error {
		var err error
		if page, err = pageOf(v, settled, &r); err != nil {
			return err
		}
		a := newArena(r.MaxPayload, r.Room)
		defer func() { a.keep(r.Room, page.Events) }()
		if r.Room != nil {
			page.Events = r.Room.Events[:0]
		}
		if r.Query != nil {
			return rd.readQuery(v, &a, &r, &page)
		}
		return rd.readLog(v, &a, &r, &page)
	})
	return page, err
}

func (rd *Reader) readLog(v view, a *arena, r *event.AllRead, page *event.AllPage) error {
	end, s := page.LogEnd, rd.choosing.newSeeker(rd.state, v, page, r)
	for {
		if len(page.Events) == r.Count || r.MaxScan > 0 && page.Looked == r.MaxScan {
			page.More = true
			break
		}
		it, position, err := s.next()
		if err != nil {
			// Nothing was read yet: perhaps no record begins (ends) there.
			if page.Next == page.From {
				err = v.explain(page.From, r.Backward, err)
			}
			return fmt.Errorf("read the log from %d: %w", page.From, err)
		}
		if it == nil || !r.Backward && position >= end {
			if !r.Backward {
				page.Next = max(page.From, end)
			} else {
				page.Next = 0
			}
			if s.leapt {
				if _, err := s.complete(page, r, page.Next); err != nil {
					return err
				}
			}
			break
		}
		isChosen, isLeftOut := false, r.After && position == r.From
		if it.IsRecord() && !isLeftOut {
			if isChosen, err = r.Chooses(chunkfile.String(it.Stream()), chunkfile.String(it.EventType())); err != nil {
				page.Failed, page.More = err, true
				if s.leapt {
					at := position
					if r.Backward {
						at += int64(len(it))
					}
					if page.Next, err = s.complete(page, r, at); err != nil {
						return err
					}
				}
				break
			}
		}
		page.Next = position
		if !r.Backward {
			page.Next += int64(len(it))
		}
		if it.IsRecord() && !isLeftOut {
			page.Looked++
			page.Last = position
		}
		if isChosen {
			page.Events = append(page.Events, event.Resolved{Record: a.record(it, position, "")})
		}
	}
	page.Spared = s.spared
	return rd.finish(a, page.Events, r.Links)
}

// pageOf begins a page of the log.
func pageOf(v view, settled int64, r *event.AllRead) (event.AllPage, error) {
	// Reads of streams do not see later events yet: a link to one of them would look dead, and a
	// reader that looks for one would not find it.
	end := min(v.tail.End, settled)
	page := event.AllPage{From: r.From, Last: -1, LogEnd: end}
	switch {
	case r.From == event.End, r.From > end && r.Backward:
		page.From = end
	case r.From < 0:
		return page, event.ErrBadPosition
	}
	// Forward from beyond the end nothing is found, and Next stays: the position may come from a
	// node that is ahead of this one.
	page.Next = page.From
	return page, nil
}
