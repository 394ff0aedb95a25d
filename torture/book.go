package torture

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"sync"

	"github.com/annalsdb/annals/client"
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

// stream is one stream of the run or of the server. There is one of each name.
type stream struct {
	name string
	// own streams begin in this run, so all their numbers are seen.
	own bool
	// fluid streams may lose events by a scavenge. The log is counted without these: only the other
	// events are shown to every reader at all times. Most streams of the server are fluid, as they
	// have limits. On a given cluster all streams of other clients are fluid too, as their limits
	// are not known.
	fluid bool
	plain bool  // never deleted, so that readers may visit it; load.mu guards it
	shed  *shed // what the one client that writes to it knows, of a stream that it limits

	// The rest is what readers saw, by event numbers. The mutex of the book guards it.
	shown    []ref   // 0 where nothing was seen yet
	acked    []ref   // likewise, of appends to an own stream that were acknowledged
	ordinals []int32 // in the log, -1 where the log was not read yet
	next     int64   // of a stream that is not ours, -1 before its first event
}

// book is the order of events as readers saw it. The ordinal of an event is its place in the log,
// counted from where the run began to read and without the events that a scavenge may remove. The
// first reader of an ordinal defines it. Events that may be removed have their own book, and a
// place between two ordinals. Any goroutine may call all methods. The locks of streams and
// findings nest within mu.
type book struct {
	ids    identity
	find   *findings
	prefix string
	origin int64 // the position of ordinal 0

	streamMu sync.RWMutex // guards byName and all
	byName   map[string]*stream
	all      []*stream // in the order in which they came up

	mu       sync.Mutex
	facts    []fact
	segments []segment
	spots    []spot       // where pages ended, rising
	kept     []*fluidFact // those with an entry
	fluids   map[fluidKey]*fluidFact
	// events of deciders, in the order of the log, once they were read
	decided     []client.Found
	decidedRead bool
	// refs of events with a request to redact them: any node may have fetched the chunk from a node
	// that did
	blank sync.Map
}

func newBook(ids identity, find *findings, prefix string, origin int64) *book {
	return &book{ids: ids, find: find, prefix: prefix, origin: origin, byName: map[string]*stream{}, fluids: map[fluidKey]*fluidFact{}}
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

// stream returns the stream of a name. It needs no lock.
func (b *book) stream(name string) *stream {
	b.streamMu.RLock()
	s := b.byName[name]
	b.streamMu.RUnlock()
	if s != nil {
		return s
	}
	b.streamMu.Lock()
	defer b.streamMu.Unlock()
	if s := b.byName[name]; s != nil {
		return s
	}
	own, isOwn := strings.CutPrefix(name, b.prefix)
	// Metadata belong to their stream.
	s = &stream{name: name, own: strings.HasPrefix(strings.TrimPrefix(name, "$$"), b.prefix), next: -1}
	s.fluid = strings.HasPrefix(name, "$") || isOwn && strings.HasPrefix(own, shedStream) || !isOwn && b.origin > 0
	b.byName[name], b.all = s, append(b.all, s)
	return s
}

// room makes place for a number of an own stream, at most so far above what is
// known: a wild number from a server must not cost memory.
func (s *stream) room(number int64) bool {
	if number < 0 || number > int64(len(s.shown))+1<<20 {
		return false
	}
	for int64(len(s.shown)) <= number {
		s.shown = append(s.shown, 0)
		s.ordinals = append(s.ordinals, -1)
	}
	return true
}

// acknowledge notes the events that an answer gave the numbers from one on.
func (b *book) acknowledge(s *stream, number int64, first ref, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range count {
		n, r := number+int64(i), first+ref(i)
		missing := n + 1 - int64(len(s.acked))
		if n < 0 || missing > 1<<20 {
			return // A wild number, which the checks find in the end.
		}
		s.acked = append(s.acked, make([]ref, max(0, missing))...)
		if other := s.acked[n]; other != 0 && other != r {
			b.find.add(kindDuplicate, "number %d of %s was given to %s and then to %s", n, s.name, b.ids.id(other), b.ids.id(r))
		}
		s.acked[n] = r
	}
}

// acknowledged returns the ids of the events of a stream that were acknowledged, by number.
func (b *book) acknowledged(s *stream) map[int64]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := map[int64]string{}
	for n, r := range s.acked {
		if r != 0 {
			ids[int64(n)] = b.ids.id(r).String()
		}
	}
	return ids
}

// know notes which event has a number of an own stream. One that another reading showed differently
// is reported. b.mu is held.
func (b *book) know(from place, f fact) bool {
	s := f.stream
	if !s.room(f.number) {
		b.find.add(kindGap, "%s: %s has a number far from the %d known ones of its stream", from, b.say(f), len(s.shown))
		return false
	}
	if known := s.shown[f.number]; known != 0 && known != f.ref {
		b.find.add(kindDivergence, "%s shows %s, another reading showed id %s there", from, b.say(f), b.ids.id(known))
		return false
	}
	s.shown[f.number] = f.ref
	return true
}

// say describes a fact for people. It needs no lock.
func (b *book) say(f fact) string {
	name := fmt.Sprintf("%d@%s", f.number, f.stream.name)
	if f.ref.isForeign() {
		return name + " (not written by this run)"
	}
	return fmt.Sprintf("%s id %s", name, b.ids.id(f.ref))
}

// definer says who showed an ordinal first. b.mu is held.
func (b *book) definer(ordinal int) place {
	behind := sort.Search(len(b.segments), func(i int) bool { return b.segments[i].from > ordinal })
	return b.segments[behind-1].by
}

// logForward takes a page of the log that begins at an ordinal, and returns the events that it
// shows and the ordinal after it. next is the position after the page; full says whether it held as
// many events as were asked for.
func (b *book) logForward(from place, ordinal int, entries []entry, next int64, full bool) ([]seen, int) {
	page := b.see(entries, from)
	b.rising(from, page)
	if n := len(page); n > 0 && full {
		// A page that is not full ends where the node's log ends. That is past the last event by
		// all that the node writes between events.
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
		if f.stream.fluid {
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
	s := f.stream
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
	if f.number >= 0 && f.number < int64(len(s.ordinals)) && s.ordinals[f.number] >= 0 {
		at := s.ordinals[f.number]
		b.find.add(kindDuplicate, "event %d of the log: %s has the number of event %d, %s (%s)", o, b.say(f), at, b.say(b.facts[at]), from)
		return
	}
	if !b.know(from, f) {
		return
	}
	if f.number > 0 && s.ordinals[f.number-1] < 0 {
		b.find.add(kindGap, "event %d of the log: %s comes though the log has no %d@%s before it (%s)", o, b.say(f), f.number-1, s.name, from)
	}
	s.ordinals[f.number] = int32(o)
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
		case f.stream.fluid && top >= 0:
			b.flow(from, top, f, &entries[i])
			continue
		case f.stream.fluid:
			continue // How far this node has come is not known yet.
		}
		if top < 0 {
			for top = below; top > 0 && !b.facts[top-1].same(f.fact); top-- {
			}
			if top == 0 && b.origin > 0 && f.ref.isForeign() {
				return // It was there before this run began to read.
			}
			if top == 0 {
				b.find.add(kindPrefix, "%s: read backward from after event %d of the log, it shows %s, which is not in the log before that",
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

// streamPage takes events of one own stream, oldest first, of which the first must have the number
// wanted.
func (b *book) streamPage(from place, of *stream, first int64, entries []entry) {
	read := make([]fact, len(entries))
	for i := range entries {
		read[i] = b.read(&entries[i], from)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, f := range read {
		want := first + int64(i)
		if f.number != want || f.stream != of {
			b.find.add(kindGap, "%s: %s where number %d of %s should be", from, b.say(f), want, of.name)
			return
		}
		if !b.know(from, f) {
			return
		}
	}
}

// spot is a place in the log from which a reader can continue.
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
	behind := sort.Search(len(b.spots), func(i int) bool { return b.spots[i].ordinal > ordinal })
	if behind == 0 {
		return b.start()
	}
	return b.spots[behind-1]
}

// before returns how many events of a stream are known to lie before a position of the log.
func (b *book) before(of *stream, position int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	after := sort.Search(len(b.spots), func(i int) bool { return b.spots[i].position > position })
	if after == 0 {
		return 0
	}
	ordinal, n := int32(b.spots[after-1].ordinal), len(of.ordinals)
	for n > 0 && (of.ordinals[n-1] < 0 || of.ordinals[n-1] >= ordinal) {
		n--
	}
	return int64(n)
}

// last returns the highest number known of an own stream, -1 if there is none.
func (b *book) last(of *stream) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int64(len(of.shown)) - 1
}
