package eventlog

import (
	"context"
	"errors"
	"math"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/postings"
)

// queryBudget bounds the postings that one page reads.
const queryBudget = 100_000

// candidates are positions at which events may be that a query asks for.
type candidates interface {
	Next(at int64) (int64, postings.Found, error)
}

// everything is all records of the log.
type everything struct {
	cu       cursor
	backward bool
	at       int64 // where the cursor is; -1: nowhere
}

func (e *everything) Next(at int64) (int64, postings.Found, error) {
	if at != e.at {
		seek, from := e.cu.seekForward, at
		if e.backward {
			seek, from = e.cu.seekBackward, at+1
		}
		if err := seek(e.cu.v.align(from)); err != nil {
			return 0, postings.None, err
		}
	}
	for {
		step := e.cu.next
		if e.backward {
			step = e.cu.prev
		}
		it, position, err := step()
		if err != nil || it == nil {
			return 0, postings.None, err
		}
		if e.at = position + 1; e.backward {
			e.at = position - 1
		}
		if it.IsRecord() {
			return position, postings.Match, nil
		}
	}
}

// readQuery reads a page of the events that a query asks for, as reads of their streams show them.
func (rd *Reader) readQuery(v view, a *arena, r *event.AllRead, page *event.AllPage) error {
	end := page.LogEnd
	var found candidates = &everything{cu: cursor{v: v}, backward: r.Backward, at: -1}
	if r.Plan != nil {
		*r.Plan = event.Plan{}
		defer func() { r.Plan.Looked = page.Looked }()
	}
	if !r.Query.All {
		walk := rd.walk(v, end, r.Query, postings.WalkOptions{Backward: r.Backward, Most: queryBudget})
		if walk == nil {
			return rd.postings.Missing()
		}
		if r.Query.Index {
			rd.metrics.indexed.Inc()
		} else {
			rd.metrics.queried.Inc()
		}
		if found = walk; r.Plan != nil {
			defer func() { r.Plan.Lists = walk.lists(r.Query) }()
		}
	}
	q := querying{rd: rd, v: v, r: r}
	at := page.From
	if r.After {
		at++
	} else if r.Backward {
		at--
	}
	for {
		if len(page.Events) == r.Count || r.MaxScan > 0 && page.Looked == r.MaxScan || page.Looked == queryBudget {
			page.More = true
			break
		}
		position, state, err := found.Next(at)
		if err != nil {
			return rd.unposted(err)
		}
		if state == postings.None || position >= end && !r.Backward || position < 0 {
			if page.Next = max(page.From, end); r.Backward {
				page.Next = 0
			}
			break
		}
		if state == postings.Paused {
			if page.Next, page.More = position, true; r.Backward {
				page.Next++
			}
			break
		}
		page.Looked++
		it, err := q.look(position)
		if err != nil {
			return err
		}
		if at = position + 1; r.Backward {
			at = position - 1
		}
		if page.Next = at; r.Backward {
			page.Next = position
		}
		if it != nil {
			page.Last = position
			page.Events = append(page.Events, event.Resolved{Record: a.record(it, position, "")})
		}
	}
	return rd.finish(a, page.Events, nil)
}

// querying looks at what a query may have found.
type querying struct {
	rd      *Reader
	v       view
	r       *event.AllRead
	labels  label.Reader
	scratch []byte

	byLabels bool // what was asked for last would not be so without its tags and its correlation id
}

// asked returns the record at a position if it is there and is asked for.
func (q *querying) asked(position int64) (chunkfile.Item, error) {
	it, err := q.v.itemAt(position, &q.scratch)
	if err != nil || it == nil || !it.IsRecord() {
		return nil, err
	}
	// Malformed tags are none.
	facts, _ := q.labels.Read(chunkfile.String(it.Stream()), chunkfile.String(it.EventType()), it.Metadata())
	isAsked := q.r.Query.Matches(&facts)
	if q.byLabels = false; isAsked && len(facts.Tags)+len(facts.Correlation) > 0 {
		facts.Tags, facts.Correlation = nil, ""
		q.byLabels = !q.r.Query.Matches(&facts)
	}
	if q.byLabels {
		withdrawn, err := q.rd.withdrawn.all()
		if err != nil {
			return nil, err
		}
		isAsked = !withdrawn.has(label.Withdrawn{Position: position, ID: it.Id()})
	}
	if !isAsked {
		q.rd.metrics.falseHits.Inc()
		return nil, nil
	}
	return it, nil
}

// look returns the record at a position if it is asked for, there, visible, and for the caller.
func (q *querying) look(position int64) (chunkfile.Item, error) {
	it, err := q.asked(position)
	if err != nil || it == nil {
		return nil, err
	}
	stream := string(it.Stream())
	info, err := q.rd.StreamInfo(stream)
	if err != nil || !q.rd.shows(&info, it) {
		q.rd.metrics.hiddenHits.Inc()
		return nil, err
	}
	if q.r.Links != nil {
		if may, err := q.r.Links.MayRead(stream, &info); err != nil || !may {
			q.rd.metrics.deniedHits.Inc()
			return nil, err
		}
	}
	return it, nil
}

// shows reports whether a read of a stream with these facts shows a record of it now.
func (rd *Reader) shows(info *event.StreamInfo, it chunkfile.Item) bool {
	return info.Exists() && it.Number() >= info.Metadata.MinVisible(info.Last) && it.Time() >= info.Metadata.Oldest(rd.opts.Now())
}

// WaitQuery blocks until there may be an event that a query asks for, at a position or after it.
func (rd *Reader) WaitQuery(ctx context.Context, q *event.Query, from int64) error {
	if q.All {
		return rd.WaitLog(ctx, from)
	}
	alternatives := label.Alternatives(q, false)
	var hashes []uint64
	for _, all := range alternatives {
		hashes = append(hashes, all[0]...) // An event that matches has one of these, too.
	}
	return rd.notify.wait(ctx, func() (bool, error) {
		if err := rd.Failed(); err != nil {
			return true, err
		}
		end := rd.Settled()
		walk := rd.postings.Walk(end, alternatives, postings.WalkOptions{Most: queryBudget})
		if walk == nil {
			return true, rd.postings.Missing()
		}
		position, found, err := walk.Next(from)
		return found != postings.None && position < end, rd.unposted(err)
	}, hashes...)
}

// unposted is the error of a lookup. Damage has the index built again, and so one that is closed
// although the log is not is being built.
func (rd *Reader) unposted(err error) error {
	isDamaged := event.IsCorruption(err) && !rd.postings.Covers(math.MinInt64)
	if isDamaged || errors.Is(err, event.ErrClosed) && rd.lifetime.Err() == nil {
		return rd.postings.Missing()
	}
	return err
}
