package torture

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/client"
)

// eraser is a client that deletes streams and writes to them again. Its streams
// are its own, so it knows what each answer must be.
//
// All its writes name the exact version, also on deleted streams, where the true
// last number is accepted. By that an attempt that was thought lost and arrives
// late does no harm: an append is known by its ids, and a deletion of an earlier
// version is refused.
type eraser struct {
	*writer
	streams [erasedStreams]erased
}

type erased struct {
	name    string
	id      uint32
	last    int64 // number of the last event ever written, -1 if none
	first   int64 // lowest number that can be seen
	deleted bool
	unsure  bool // the outcome of the last write is not known, so neither is anything else
}

// mayLack: what is deleted may be removed, but for the last event while no other follows.
func (s *erased) mayLack(number int64) bool {
	return s.unsure || number < s.first || s.deleted && number < s.last
}

func newEraser(l *load, seed uint64) *eraser {
	e := &eraser{writer: newWriter(l, seed)}
	for i := range e.streams {
		name := fmt.Sprintf("%s%s%d-%d", l.prefix, erasedStream, e.journal.client, i)
		e.streams[i] = erased{name: name, id: l.names.of(name), last: -1}
	}
	return e
}

func (e *eraser) run(ctx context.Context) {
	defer e.client.close()
	for !e.stopped() && ctx.Err() == nil && e.hist.reserve() {
		s := &e.streams[e.rng.IntN(len(e.streams))]
		var certain bool
		switch dice := e.rng.IntN(10); {
		case dice < 4 || s.last < 0:
			certain = e.extend(ctx, s)
		case dice < 6 && !s.deleted:
			certain = e.erase(ctx, s)
		default:
			certain = true
			e.look(ctx, s, e.client.choose(), true)
		}
		if !certain {
			s.unsure = true // The run ended before the outcome was known, or something is broken.
			return
		}
		e.rest(ctx, time.Duration(10+e.rng.IntN(40))*time.Millisecond)
	}
}

// extend appends, which revives a deleted stream. It reports whether the outcome is certain.
func (e *eraser) extend(ctx context.Context, s *erased) bool {
	count := 1 + e.rng.IntN(3)
	number := e.journal.begin(op{
		kind: opAppend, call: e.hist.now(), ret: never, stream: s.id, expected: s.last, count: uint16(count), node: -1,
	})
	o := e.journal.at(number)
	first := refOf(e.journal.client, number, 0)
	v, a := e.insist(ctx, o, write(e.ids, s.name, s.last, first, count, true), http.StatusCreated, never/2)
	o.number = v.number
	e.count.writes[o.outcome].Add(1)
	switch o.outcome {
	case done:
		if v.number != s.last+1 {
			e.find.add(kindDelete, "the stream's last number was %d: %s", s.last, e.names.describe(e.ids, first, o))
		}
		if s.deleted {
			s.first, s.deleted = v.number, false
		}
		s.last = v.number + int64(count) - 1
		e.acknowledged(o)
		return true
	case conflict:
		e.find.add(kindDelete, "nobody else writes there, its last number is %d: %s: %s", s.last, e.names.describe(e.ids, first, o), a)
	}
	return false
}

func (e *eraser) erase(ctx context.Context, s *erased) bool {
	o := e.journal.at(e.journal.begin(op{kind: opDelete, call: e.hist.now(), ret: never, stream: s.id, expected: s.last, node: -1}))
	req := client.Request{Method: http.MethodDelete, Path: "/streams/" + s.name, Header: map[string]string{client.HeaderExpectedVersion: strconv.FormatInt(s.last, 10)}}
	_, a := e.insist(ctx, o, req, http.StatusNoContent, never/2)
	switch o.outcome {
	case done:
		s.deleted = true
		e.count.deletes.Add(1)
		return true
	case conflict:
		e.find.add(kindDelete, "nobody else writes to %s, its last number is %d, and yet its deletion is refused: %s", s.name, s.last, a)
	}
	return false
}

// look reads the stream, from the leader or the node that is asked, and holds it against what is known.
func (e *eraser) look(ctx context.Context, s *erased, to target, leader bool) {
	a, err := e.client.do(ctx, to, read(streamHead(s.name, 20), leader, 0))
	switch {
	case err != nil:
		e.count.failed.Add(1)
		e.client.wander()
	case a.Status == http.StatusNotFound:
		e.count.reads.Add(1)
		if !s.deleted && s.last >= 0 {
			e.find.add(kindDelete, "%s is not there for %s, though it has the events %d to %d", s.name, e.place(a.from), s.first, s.last)
		}
	case a.Status == http.StatusOK:
		e.count.reads.Add(1)
		e.compare(s, a)
	default:
		e.count.failed.Add(1)
		e.oddRead(a)
		e.client.wander()
	}
}

func (e *eraser) compare(s *erased, a *answer) {
	p, err := parsePage(a.Body)
	if err != nil {
		e.find.add(kindAnswer, "reading of %s: %v", s.name, err)
		return
	}
	entries := p.oldestFirst()
	low := max(s.first, s.last-19)
	switch {
	case s.deleted:
		e.find.add(kindDelete, "%s was deleted at number %d, and %s shows %d events of it", s.name, s.last, e.place(a.from), len(entries))
	case int64(len(entries)) != s.last-low+1:
		e.find.add(kindDelete, "%s shows %d events of %s, want the numbers %d to %d", e.place(a.from), len(entries), s.name, low, s.last)
	default:
		e.book.streamPage(e.place(a.from), s.id, low, entries)
	}
}
