package torture

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// visitor is a client that reads here and there from any node, as far as that
// node has got. What it is shown must be a part of the one order.
type visitor struct{ worker }

func newVisitor(l *load, number int) {
	v := &visitor{l.worker(visitors + number)}
	l.employ(v.turn)
}

func (v *visitor) turn(ctx context.Context) time.Duration {
	to := v.wander()
	count := 1 + v.rng.IntN(100)
	switch dice := v.rng.IntN(4); dice {
	case 0:
		from := v.book.near(v.rng.IntN(v.book.len() + 1))
		if p, t := v.page(ctx, to, allForward(from.position, count)); p != nil {
			v.book.logPage(v.place(t), from, p, count)
		}
	case 1:
		// Mostly near the end, where nodes differ.
		known := v.book.len()
		from := v.book.near(known - v.rng.IntN(min(known, 200)+1))
		if p, t := v.page(ctx, to, allBackward(from.position, count)); p != nil {
			v.book.logBackward(v.place(t), from.ordinal, p.Entries, len(p.Entries) == count)
		}
	default:
		if stream := v.somePlain(v.rng); stream != nil {
			from := newest
			if dice == 2 {
				from = v.rng.Int64N(v.book.last(stream) + 2)
			}
			v.visit(ctx, to, stream, from, count)
		}
	}
	return v.pause(5, 50)
}

const (
	// newest is in place of the number that a page begins with: it ends with the last event.
	newest = int64(-1)
	// visits is how often a stream is read that lacks events which the node's log has: a node that
	// was killed between two answers may have less for a moment.
	visits = 4
)

// visit reads a page of a stream from one node. Each event of it must be there that the log of this
// node had before.
func (v *visitor) visit(ctx context.Context, to Target, stream *stream, from int64, count int) {
	path := streamForward(stream.name, from, count)
	if from == newest {
		path = streamHead(stream.name, count)
	}
	for left := visits; ; {
		end, err := logEnd(ctx, v.http, to, false)
		var a *answer
		if err == nil {
			a, err = exchange(ctx, v.http, to, read(path, false, 0), v.timeout)
		}
		if err != nil {
			v.count.add(ofReads, "failed", 1)
			return
		}
		p := v.pageOf(a)
		if p == nil && a.Status != http.StatusNotFound {
			return
		}
		first, want := max(from, 0), v.book.before(stream, end)
		var entries []entry
		if p != nil {
			entries = oldestFirst(p)
		}
		switch {
		case from != newest:
			want = min(want, from+int64(count))
		case len(entries) > 0:
			first = entries[0].Number
			if len(entries) < count && first != 0 {
				v.find.add(kindGap, "%s: the newest %d events of %s are %d and end at number %d", v.place(to), count, stream.name, len(entries), first)
			}
		}
		v.book.streamPage(v.place(to), stream, first, entries)
		if next := first + int64(len(entries)); next >= want {
			return
		} else if left--; left == 0 {
			v.find.add(kindIndex, "%s: the page of %d events of %s from number %d (-1: the newest) ends before number %d, and the log of this node had %d events of it before position %d",
				v.place(to), count, stream.name, from, next, want, end)
			return
		}
		if !v.rest(ctx, time.Second) {
			return
		}
	}
}

// page reads a page from one node. It returns nil when there is none.
func (v *visitor) page(ctx context.Context, to Target, path string) (*page, Target) {
	a, err := v.do(ctx, to, read(path, false, 0))
	if err != nil {
		v.count.add(ofReads, "failed", 1)
		return nil, to
	}
	return v.pageOf(a), a.from
}

// pageOf takes the page out of an answer.
func (l *load) pageOf(a *answer) *page {
	switch a.Status {
	case http.StatusNotFound: // This node has not come to the stream yet.
		l.count.add(ofReads, "pages", 1)
		return nil
	case http.StatusOK:
		p, err := client.ParsePage(a.Body)
		if err != nil {
			l.find.add(kindAnswer, "reading from %s: %v", l.place(a.from), err)
			return nil
		}
		l.count.add(ofReads, "pages", 1)
		return p
	}
	l.count.add(ofReads, "failed", 1)
	l.oddRead(a)
	return nil
}

// logPage takes a page read forward from a spot and returns what it shows and the spot after it.
func (b *book) logPage(from place, at spot, p *page, count int) ([]seen, spot) {
	if len(p.Entries) == 0 {
		return nil, at
	}
	next, err := nextPosition(p)
	if err != nil {
		b.find.add(kindAnswer, "%s: page of the log from event %d: %v", from, at.ordinal, err)
		return nil, at
	}
	if next <= at.position {
		b.find.add(kindOrder, "%s: the page of %d events from position %d ends at position %d", from, len(p.Entries), at.position, next)
		return nil, at
	}
	page, end := b.logForward(from, at.ordinal, oldestFirst(p), next, len(p.Entries) == count)
	return page, spot{end, next}
}

const (
	// followedPage is how many events a subscriber asks for at once.
	followedPage = 500
	// longPollSeconds is how long a subscriber lets the node wait.
	longPollSeconds = 2
)

// follower is a subscriber: it follows the log or one stream from its beginning on one node, and
// continues on another node when that one fails. It must see every event once and in order.
type follower struct {
	worker
	// stream is what it follows, nil for the log.
	stream *stream
	at     spot // in the log; of a stream, ordinal is the next number
	// goal is the ordinal at which it has seen everything, not known before all writers ended.
	goal atomic.Int64
}

func newFollower(l *load, number int, stream *stream) *follower {
	f := &follower{worker: l.worker(followers + number), stream: stream, at: l.book.start()}
	if stream != nil {
		f.at = spot{}
	}
	f.goal.Store(never)
	return f
}

// run follows until the goal is reached or the context ends.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil && int64(f.at.ordinal) < f.goal.Load() {
		progress, alive := f.step(ctx)
		if !alive {
			f.wander()
		}
		if !progress {
			// Not rest alone: a subscriber outlives the writers.
			if pause := f.pause(10, 60); !f.rest(ctx, f.spells.after(f.hist.now(), pause)) {
				_ = clock.Sleep(ctx, pause)
			}
		}
	}
}

func (f *follower) step(ctx context.Context) (progress, alive bool) {
	path := allForward(f.at.position, followedPage)
	if f.stream != nil {
		path = streamForward(f.stream.name, int64(f.at.ordinal), followedPage)
	}
	a, err := f.doWithin(ctx, f.choose(), read(path, false, longPollSeconds), f.timeout+longPollSeconds*time.Second)
	if err != nil {
		f.count.add(ofReads, "failed", 1)
		return false, false
	}
	p := f.pageOf(a)
	if p == nil {
		return false, a.Status == http.StatusNotFound
	}
	before := f.at
	if f.stream == nil {
		_, f.at = f.book.logPage(f.place(a.from), f.at, p, followedPage)
	} else {
		f.book.streamPage(f.place(a.from), f.stream, int64(before.ordinal), oldestFirst(p))
		f.at.ordinal += len(p.Entries)
	}
	return f.at != before, true
}

func (f *follower) what() string {
	if f.stream == nil {
		return "the log"
	}
	return f.stream.name
}
