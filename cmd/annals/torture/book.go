package torture

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
)

// place says who showed something, and when.
type place struct {
	node string
	at   int64
}

func (p place) String() string { return fmt.Sprintf("%s at %s", p.node, seconds(p.at)) }

// segment says who was the first to show the facts from an ordinal on.
type segment struct {
	from int
	by   place
}

// streamBook is one stream by event numbers.
type streamBook struct {
	// own streams begin in this run, so all their numbers are seen.
	own      bool
	refs     []ref   // 0 where nothing was seen yet
	ordinals []int32 // in the log, -1 where the log was not read yet
	next     int64   // of a stream that is not ours, -1 before its first event
}

// book is the order of events as readers saw it. The ordinal of an event is its
// place in the log, counted from where the run began to read and without the
// events that a scavenge may remove. The first that shows an ordinal defines it. What
// may be removed has its own book, and a place between two ordinals. All methods may be called from anywhere. The locks of
// names and findings nest within mu.
type book struct {
	ids    identity
	names  *names
	find   *findings
	prefix string
	origin int64 // the position of ordinal 0

	mu       sync.Mutex
	facts    []fact
	segments []segment
	streams  []*streamBook
	spots    []spot // where pages ended, rising
	kept     []keptEntry
	fluids   map[fluidKey]*fluidFact
	blank    sync.Map // refs of events that somebody asked to redact: any node may have fetched the chunk of one that did
}

// keptEntry is an event of the log that is kept as it was shown: of the streams
// in which a server keeps the groups of this run. Some of them have limits.
type keptEntry struct {
	ordinal int // as of a fluidFact
	at      int64
	entry   entry
}

func newBook(ids identity, n *names, find *findings, prefix string, origin int64) *book {
	return &book{ids: ids, names: n, find: find, prefix: prefix, origin: origin, fluids: map[fluidKey]*fluidFact{}}
}

// blanked says that an event may be shown without its data from now on.
func (b *book) blanked(r ref) { b.blank.Store(r, true) }

func (b *book) mayBeBlank(r ref) bool {
	_, ok := b.blank.Load(r)
	return ok
}

func (b *book) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.facts)
}

// isOwn says whether a stream, or the one that it is the metadata of, belongs to this run.
func (b *book) isOwn(stream string) bool {
	return strings.HasPrefix(strings.TrimPrefix(stream, "$$"), b.prefix)
}

// stream returns the book of a stream. b.mu is held.
func (b *book) stream(i uint32) *streamBook {
	for int(i) >= len(b.streams) {
		b.streams = append(b.streams, nil)
	}
	if b.streams[i] == nil {
		b.streams[i] = &streamBook{own: b.isOwn(b.names.name(i)), next: -1}
	}
	return b.streams[i]
}

// room makes place for a number of an own stream, at most so far above what is
// known: a wild number from a server must not cost memory.
func (s *streamBook) room(number int64) bool {
	if number < 0 || number > int64(len(s.refs))+1<<20 {
		return false
	}
	for int64(len(s.refs)) <= number {
		s.refs = append(s.refs, 0)
		s.ordinals = append(s.ordinals, -1)
	}
	return true
}

// say describes a fact for people. It needs no lock.
func (b *book) say(f fact) string {
	name := fmt.Sprintf("%d@%s", f.number, b.names.name(f.stream))
	if f.ref.isForeign() {
		return name + " (not written by this run)"
	}
	return fmt.Sprintf("%s id %s", name, b.ids.id(f.ref))
}

// definer says who showed an ordinal first. b.mu is held.
func (b *book) definer(ordinal int) place {
	i, found := slices.BinarySearchFunc(b.segments, ordinal, func(s segment, o int) int { return s.from - o })
	if !found {
		i--
	}
	return b.segments[i].by
}

// logForward takes a page of the log that begins at an ordinal, and returns what
// it shows and the ordinal behind it. next is the position behind the page, full says
// whether it held as many events as were asked for.
func (b *book) logForward(from place, ordinal int, entries []entry, next int64, full bool) ([]seen, int) {
	page := b.see(entries, from)
	b.rising(from, page)
	if n := len(page); n > 0 && full {
		// A page that is not full ends where the node's log ends, and that lies
		// behind the last event by as much as the node writes between events.
		page[n-1].after = next
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if ordinal > len(b.facts) {
		b.find.add(kindGap, "%s: a page begins at event %d of the log, though only %d are known", from, ordinal, len(b.facts))
		return nil, ordinal
	}
	end := ordinal
	for i, f := range page {
		if f.fluid {
			b.flow(from, end, f, &entries[i])
			continue
		}
		if end < len(b.facts) {
			if !b.compare(from, end, f.fact) {
				return nil, ordinal // What follows would differ for the same reason.
			}
		} else {
			if len(b.segments) == 0 || b.segments[len(b.segments)-1].by != from {
				b.segments = append(b.segments, segment{end, from})
			}
			b.extend(from, f.fact)
		}
		end++
	}
	if len(page) > 0 && (len(b.spots) == 0 || b.spots[len(b.spots)-1].ordinal < end) {
		b.spots = append(b.spots, spot{end, next})
	}
	return page, end
}

// compare holds a fact against the one that is known. b.mu is held.
func (b *book) compare(from place, o int, f fact) bool {
	known := &b.facts[o]
	if known.ref != f.ref || known.number != f.number || known.stream != f.stream || known.shape != f.shape {
		by := b.definer(o)
		kind := kindPrefix
		if by.node != from.node {
			kind = kindDivergence
		}
		detail := ""
		if known.ref == f.ref && known.number == f.number && known.stream == f.stream {
			detail = " (type or time differ)"
		}
		b.find.add(kind, "event %d of the log: %s shows %s, but %s showed %s%s", o, from, b.say(f), by, b.say(*known), detail)
		return false
	}
	switch {
	case f.after < 0 || known.after == f.after:
	case known.after < 0:
		known.after = f.after
	default:
		b.find.add(kindDivergence, "event %d of the log, %s: %s says that it ends at position %d, another reading said %d",
			o, b.say(f), from, f.after, known.after)
		return false
	}
	return true
}

// extend adds the next fact to the log. b.mu is held.
func (b *book) extend(from place, f fact) {
	o := len(b.facts)
	if o > 0 && f.after >= 0 {
		for before := o - 1; before >= max(0, o-64); before-- {
			if after := b.facts[before].after; after >= f.after {
				b.find.add(kindOrder, "event %d of the log ends at position %d, event %d before it at %d (%s)", o, f.after, before, after, from)
				break
			}
		}
	}
	b.facts = append(b.facts, f)
	s := b.stream(f.stream)
	if !s.own {
		// The last number of all is what a hard delete leaves.
		if s.next >= 0 && f.number != s.next && f.number != math.MaxInt64 {
			b.find.add(kindGap, "event %d of the log: %s follows number %d of its stream (%s)", o, b.say(f), s.next-1, from)
		}
		if f.number != math.MaxInt64 {
			s.next = f.number + 1
		}
		return
	}
	if !s.room(f.number) {
		b.find.add(kindGap, "event %d of the log: %s has a number far from the %d known ones of its stream (%s)", o, b.say(f), len(s.refs), from)
		return
	}
	if at := s.ordinals[f.number]; at >= 0 {
		b.find.add(kindDuplicate, "event %d of the log: %s has the number of event %d, %s (%s)", o, b.say(f), at, b.say(b.facts[at]), from)
		return
	}
	if f.number > 0 && s.ordinals[f.number-1] < 0 {
		b.find.add(kindGap, "event %d of the log: %s comes though the log has no %d@%s before it (%s)",
			o, b.say(f), f.number-1, b.names.name(f.stream), from)
	}
	if known := s.refs[f.number]; known != 0 && known != f.ref {
		b.find.add(kindDivergence, "event %d of the log: %s shows %s, but a reading of the stream showed id %s there",
			o, from, b.say(f), b.ids.id(known))
	}
	s.refs[f.number], s.ordinals[f.number] = f.ref, int32(o)
}

// logBackward takes a page of the log that was read downwards from the position
// of an ordinal. A node that lags begins at its own end, which lies further down;
// from there on nothing that stays may be missing.
func (b *book) logBackward(from place, below int, entries []entry, full bool) {
	page := b.see(entries, from)
	top := -1 // not known before the first event that stays
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, f := range page {
		switch {
		case f.fluid && top >= 0:
			b.flow(from, top, f, &entries[i])
			continue
		case f.fluid:
			continue // How far this node has come is not known yet.
		}
		if top < 0 {
			for top = below; top > 0 && !b.facts[top-1].same(f.fact); top-- {
			}
			if top == 0 && b.origin > 0 && f.ref.isForeign() {
				return // It was there before this run began to read.
			}
			if top == 0 {
				b.find.add(kindPrefix, "%s: read backward from behind event %d of the log, it shows %s, which is not in the log before that",
					from, below-1, b.say(f.fact))
				return
			}
		}
		if top == 0 {
			if b.origin == 0 {
				b.find.add(kindPrefix, "%s: read backward, it shows %s before the first event of the log", from, b.say(f.fact))
			}
			return
		}
		if !b.compare(from, top-1, f.fact) {
			return
		}
		top--
	}
	if len(page) > 0 && !full && b.origin == 0 && top > 0 {
		b.find.add(kindGap, "%s: read backward, the page ends at event %d of the log as if it were the first", from, top)
	}
}

func (f fact) same(g fact) bool {
	return f.ref == g.ref && f.number == g.number && f.stream == g.stream
}

// streamPage takes events of one own stream, oldest first, of which the first must have the number wanted.
func (b *book) streamPage(from place, stream uint32, first int64, entries []entry) {
	read := make([]fact, len(entries))
	for i := range entries {
		read[i] = b.read(&entries[i], from)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stream(stream)
	for i, f := range read {
		want := first + int64(i)
		if f.number != want || f.stream != stream {
			b.find.add(kindGap, "%s: %s where number %d of %s should be", from, b.say(f), want, b.names.name(stream))
			return
		}
		if !s.room(want) {
			b.find.add(kindGap, "%s: %s has a number far from the %d known ones of its stream", from, b.say(f), len(s.refs))
			return
		}
		switch known := s.refs[want]; known {
		case f.ref:
		case 0:
			s.refs[want] = f.ref
		default:
			b.find.add(kindDivergence, "%s shows %s, another reading showed id %s there", from, b.say(f), b.ids.id(known))
			return
		}
	}
}

// spot is a place in the log from which a reader can go on.
type spot struct {
	ordinal  int
	position int64
}

// start is where the log begins for this run.
func (b *book) start() spot { return spot{0, b.origin} }

// near returns the last known spot at or below an ordinal.
func (b *book) near(ordinal int) spot {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, found := slices.BinarySearchFunc(b.spots, ordinal, func(s spot, o int) int { return s.ordinal - o })
	switch {
	case found:
		return b.spots[i]
	case i == 0:
		return b.start()
	}
	return b.spots[i-1]
}

// last returns the highest number known of an own stream, -1 if there is none.
func (b *book) last(stream uint32) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(b.stream(stream).refs)) - 1
}
