package torture

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/annalsdb/annals/client"
)

// shedder is a client that limits and deletes its streams, so that a scavenge has something to
// remove. As only it writes to its streams, it knows what each answer must be, and which events may
// be gone.
//
// It names the exact version with every append and deletion, also on deleted streams, where the
// true last number is accepted. So an attempt that arrives late does no harm: an append is known by
// its ids, and a deletion of an earlier version is refused. Metadata is written at any version; its
// id makes a late attempt harmless.
type shedder struct {
	*writer
	streams []shed
}

const (
	// shedPage is how many events a shedder reads back at once.
	shedPage = 20
	// shedEnd is the number from which on a stream may be deleted for good.
	shedEnd = 25
)

// newShedder makes a client with a stream of each of the styles.
func newShedder(l *load, styles ...shedStyle) *shedder {
	s := &shedder{writer: newWriter(l, l.hist.journal()), streams: make([]shed, len(styles))}
	for i, style := range styles {
		stream := l.book.stream(fmt.Sprintf("%s%s%d-%d-%s", l.prefix, shedStream, s.journal.client, i, style))
		s.streams[i] = shed{stream: stream, style: style}
		stream.shed = &s.streams[i]
	}
	l.employ(s.turn)
	return s
}

func (e *shedder) turn(ctx context.Context) time.Duration {
	if !e.hist.reserve() {
		return enough
	}
	s := &e.streams[e.rng.IntN(len(e.streams))]
	certain := true
	switch dice := e.rng.IntN(40); {
	case s.hard:
		e.ask(ctx, s)
	case s.last() < 0 || dice < 18:
		certain = e.extend(ctx, s)
	case dice < 26 && s.style == shedSoft && !s.deleted:
		certain = e.erase(ctx, s, false)
	case dice < 26 && s.style != shedSoft:
		certain = e.limit(ctx, s)
	case dice < 30:
		e.repeat(ctx, s)
	case dice < 33 && s.style == shedHard && s.last() >= shedEnd:
		certain = e.erase(ctx, s, true)
	default:
		e.look(ctx, s)
	}
	if !certain {
		s.unsure = true
		return enough
	}
	return e.pause(5, 30)
}

// extend appends, which revives a deleted stream. It reports whether the outcome is certain.
func (e *shedder) extend(ctx context.Context, s *shed) bool {
	count, last := 1+e.rng.IntN(4), s.last()
	begun := op{kind: opAppend, stream: s.stream, expected: last, count: uint16(count)}
	first, o, a := e.insist(ctx, begun, never/2, func(first ref) client.Request {
		return write(e.ids, s.name, last, first, count, true)
	})
	switch o.outcome {
	case done:
		if o.number != last+1 {
			e.find.add(kindScavenged, "the last number of the stream was %d: %s", last, e.ids.describe(first, o))
			return false
		}
		if s.deleted {
			s.deleted, s.before = false, last+1
		}
		for i := range count {
			s.refs = append(s.refs, first+ref(i))
		}
		s.written = append(s.written, first)
		s.changed()
		return true
	case conflict:
		e.find.add(kindScavenged, "no other client writes there, its last number is %d: %s: %s", last, e.ids.describe(first, o), a)
	}
	return false
}

// limit replaces the metadata.
func (e *shedder) limit(ctx context.Context, s *shed) bool {
	s.tighten(e.rng, e.age)
	begun := op{kind: opMetadata, stream: e.book.stream("$$" + s.name), expected: anyVersion}
	_, o, a := e.insist(ctx, begun, never/2, func(first ref) client.Request {
		id := e.ids.serverID(first).String()
		return client.Request{
			Method: http.MethodPost, Path: "/streams/" + s.name + "/metadata", Body: []byte(s.metadata(e.rng)),
			Header: map[string]string{"Content-Type": client.MediaJSON, client.HeaderEventID: id, client.HeaderExpectedVersion: strconv.Itoa(anyVersion)},
		}
	})
	switch o.outcome {
	case done:
		s.metas++
		s.changed()
		return true
	case conflict:
		e.find.add(kindScavenged, "metadata of %s was refused, whatever the version: %s", s.name, a)
	}
	return false
}

func (e *shedder) erase(ctx context.Context, s *shed, hard bool) bool {
	_, o, a := e.insist(ctx, op{kind: opDelete, stream: s.stream, expected: s.last()}, never/2, func(ref) client.Request {
		return deletion(s.name, s.last(), hard)
	})
	switch o.outcome {
	case done:
		s.deleted, s.hard = !hard, hard
		s.metas++
		s.changed()
		return true
	case conflict:
		e.find.add(kindScavenged, "no other client writes to %s, its last number is %d, and yet its deletion is refused: %s", s.name, s.last(), a)
	}
	return false
}

func deletion(stream string, expected int64, hard bool) client.Request {
	r := client.Request{Method: http.MethodDelete, Path: "/streams/" + stream, Header: map[string]string{client.HeaderExpectedVersion: strconv.FormatInt(expected, 10)}}
	if hard {
		r.Header[client.HeaderHardDelete] = "True"
	}
	return r
}

// repeat sends an append of any time again, whose events may be gone.
func (e *shedder) repeat(ctx context.Context, s *shed) {
	if len(s.written) > 0 {
		e.examine(ctx, e.choose(), e.retry(s.written[e.rng.IntN(len(s.written))], s.hard))
	}
}

// ask asks what a stream that was deleted for good must refuse.
func (e *shedder) ask(ctx context.Context, s *shed) {
	list := e.questions(s, 1)
	e.examine(ctx, e.choose(), list[e.rng.IntN(len(list))])
}

// look reads the end of the stream from the leader and holds it against what is known.
func (e *shedder) look(ctx context.Context, s *shed) {
	a, err := e.do(ctx, e.choose(), read(streamHead(s.name, shedPage), true, 0))
	if err != nil {
		e.count.add(ofReads, "failed", 1)
		e.wander()
		return
	}
	e.judge(s, a, shedPage)
}

// judge holds a reading of the newest events against what is known.
func (e *shedder) judge(s *shed, a *answer, count int) {
	from := e.place(a.from)
	switch {
	case a.Status == http.StatusNotFound:
		e.count.add(ofReads, "leader", 1)
		if s.hard || !s.deleted && s.last() >= 0 {
			e.find.add(kindScavenged, "%s is not there for %s, though it has %d events", s.name, from, len(s.refs))
		}
	case a.Status == http.StatusGone && s.hard:
		e.count.add(ofReads, "leader", 1)
	case a.Status == http.StatusOK:
		e.count.add(ofReads, "leader", 1)
		p, err := client.ParsePage(a.Body)
		if err != nil {
			e.find.add(kindAnswer, "reading of %s: %v", s.name, err)
			return
		}
		if s.hard || s.deleted || s.last() < 0 {
			e.find.add(kindScavenged, "%s is deleted, and %s shows %d events of it", s.name, from, len(p.Entries))
			return
		}
		e.compare(s, from, oldestFirst(p), count)
	default:
		e.count.add(ofReads, "failed", 1)
		e.oddRead(a)
		e.wander()
	}
}

// compare holds the newest events as they were shown against what the stream must show.
func (e *shedder) compare(s *shed, from place, entries []entry, count int) {
	if len(entries) > count {
		e.find.add(kindAnswer, "%s shows %d events of %s, asked for %d", from, len(entries), s.name, count)
		return
	}
	numbers := make([]int64, 0, len(entries))
	for i := range entries {
		n := entries[i].Number
		r, ok := e.book.showsEvent(from, s.stream, &entries[i])
		switch {
		case !ok:
			return
		case n > s.last() || s.refs[n] != r:
			e.find.add(kindScavenged, "%s shows number %d of %s with id %s, which is not what was written there", from, n, s.name, e.ids.id(r))
			return
		case n < s.visible():
			e.find.add(kindScavenged, "%s shows number %d of %s, which the limits hide from %d on down", from, n, s.name, s.visible()-1)
			return
		case len(numbers) > 0 && n <= numbers[len(numbers)-1]:
			e.find.add(kindOrder, "%s shows number %d of %s after %d", from, n, s.name, numbers[len(numbers)-1])
			return
		}
		numbers = append(numbers, n)
	}
	low := max(s.lost, s.visible())
	if len(entries) == count {
		low = max(low, numbers[0])
	}
	if s.maxAge > 0 {
		low = s.last() + 1
		if len(numbers) > 0 {
			low = numbers[0] // What is younger is there as well.
		}
	}
	for n := low; n <= s.last(); n++ {
		if _, there := slices.BinarySearch(numbers, n); !there {
			e.find.add(kindLost, "%s does not show number %d of %s, id %s, of which the events %d to %d cannot be removed; it shows %v",
				from, n, s.name, e.ids.id(s.refs[n]), low, s.last(), numbers)
			return
		}
	}
}

// questions returns the questions about a stream, with so many repeated appends among them.
func (e *shedder) questions(s *shed, retries int) []question {
	if s.unsure || s.last() < 0 {
		return nil
	}
	var list []question
	// Most of them are of the beginning, which is gone.
	for i := range min(retries, len(s.written)) {
		at := i
		if i%3 == 2 {
			at = len(s.written) - 1 - e.rng.IntN(len(s.written))
		}
		list = append(list, e.retry(s.written[at], s.hard))
	}
	refused := func(expected int64, status int, why string) {
		what := fmt.Sprintf("%s, %s, expecting %d", s.name, why, expected)
		fresh := refOf(e.journal.client, math.MaxUint32, e.rng.IntN(1<<16))
		request := write(e.ids, s.name, expected, fresh, 1, e.rng.IntN(2) == 0)
		list = append(list, question{s.stream, "append to " + what, request, status, s.last()})
		if expected >= 0 || s.hard {
			request = deletion(s.name, expected, !s.hard && e.rng.IntN(2) == 0)
			list = append(list, question{s.stream, "deletion of " + what, request, status, s.last()})
		}
	}
	if s.hard {
		for _, expected := range []int64{anyVersion, noStream, s.last()} {
			refused(expected, http.StatusGone, "deleted for good")
		}
		return list
	}
	wrong := []int64{s.last() + 1, s.last() + 100}
	if s.last() > 0 {
		wrong = append(wrong, s.last()-1, e.rng.Int64N(s.last()))
	}
	if !s.deleted {
		wrong = append(wrong, noStream)
	}
	for _, expected := range wrong {
		refused(expected, http.StatusBadRequest, fmt.Sprintf("whose last number is %d", s.last()))
	}
	return list
}
