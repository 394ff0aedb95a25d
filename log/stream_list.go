package eventlog

import (
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/postings"
)

// streamList is the positions of the events of a stream, by the index of streams. Positions and
// numbers of a stream rise together, so that it can begin anywhere.
type streamList struct {
	search numberSearch
	pages  index.Pages
	page   []index.Entry // those not passed yet
	number int64         // with which the next page begins; the first begins where the caller is
	whole  bool          // nothing follows the page
	passed bool          // nothing of the page was asked for
	sure   bool          // the first of the page is of the stream
	item   int           // of the query
}

// Next is that of postings.List.
func (l *streamList) Next(at int64, backward bool) (int64, postings.Found, error) {
	for {
		for ; len(l.page) > 0; l.page, l.sure = l.page[1:], false {
			e := l.page[0]
			if backward && e.Position > at || !backward && e.Position < at {
				continue
			}
			l.passed = false
			if !l.sure {
				it, err := l.search.confirm(l.search.v, e, l.search.stream, &l.search.scratch)
				if err != nil {
					return 0, postings.None, err
				}
				l.sure = it != nil
			}
			if l.sure {
				return e.Position, postings.Match, nil
			}
		}
		if l.whole {
			return 0, postings.None, l.search.index.Damage()
		}
		if !l.pages.Begun() || l.passed {
			if err := l.seek(at, backward); err != nil {
				return 0, postings.None, err
			}
		}
		if err := l.read(backward); err != nil {
			return 0, postings.None, err
		}
	}
}

// seek has the next page begin with the first event that is not before a position. It never goes
// back: numbers of another stream of the same hash may have been passed.
func (l *streamList) seek(at int64, backward bool) error {
	if l.search.position = at; backward {
		l.search.position++
	}
	number, err := l.search.search()
	switch {
	case !backward:
		l.number = max(l.number, number+1)
	case !l.pages.Begun():
		l.number = number
	default:
		l.number = min(l.number, number)
	}
	return err
}

func (l *streamList) read(backward bool) (err error) {
	end := event.TombstoneNumber
	if backward {
		end = 0
	}
	l.passed = true
	if l.page, l.whole, err = l.pages.Next(l.page, l.number, end, backward); err != nil || l.whole {
		return err
	}
	// Of the last number some may have been cut off: streams share the hash.
	last := len(l.page) - 1
	for l.number = l.page[last].Number; last >= 0 && l.page[last].Number == l.number; last-- {
	}
	l.page = l.page[:last+1]
	return nil
}

// queryWalk is a walk over what a query may find.
type queryWalk struct {
	*postings.Walk
	findsStreams bool
	streams      []*streamList
}

// walk begins one. Events of streams that the query names are found by the index of streams, unless
// that is known to be damaged. It is nil unless all of the log before an end is posted.
func (lk lookup) walk(v view, end int64, q *event.Query, o postings.WalkOptions) *queryWalk {
	w := &queryWalk{findsStreams: lk.index.Damage() == nil}
	if w.findsStreams {
		o.Lists = make([][]postings.List, len(q.Items))
		for i := range q.Items {
			for _, stream := range q.Items[i].Streams {
				search := numberSearch{lookup: lk, v: v, stream: stream, hash: chunkfile.HashStream(stream), certain: o.Certain}
				l := &streamList{search: search, pages: index.Pages{Index: lk.index, Hash: search.hash, Certain: o.Certain}, item: i}
				o.Lists[i], w.streams = append(o.Lists[i], l), append(w.streams, l)
			}
		}
	}
	if w.Walk = lk.postings.Walk(end, label.Alternatives(q, w.findsStreams), o); w.Walk == nil {
		return nil
	}
	return w
}

// lists says what was read so far.
func (w *queryWalk) lists(q *event.Query) []event.PlannedList {
	lists := label.Lists(q, w.findsStreams)
	for i := range lists {
		lists[i].Postings = w.ReadOf(i)
	}
	for _, l := range w.streams {
		lists = append(lists, event.PlannedList{Item: l.item, Kind: "stream", Name: l.search.stream, Postings: l.pages.Read})
	}
	return lists
}
