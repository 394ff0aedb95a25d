package torture

import (
	"math"
	"strings"
)

// shedStream begins the names of streams that lose events, behind the prefix of the run.
const shedStream = "shed-"

// isFluid says whether events of a stream may be removed by a scavenge. The log
// is counted without them: what every reader is shown whenever it reads is only
// the rest. Streams of the server are among them, as most have limits, and all
// streams of others, of whose limits nothing is known, when somebody else runs the nodes.
func (b *book) isFluid(stream string) bool {
	if strings.HasPrefix(stream, "$") {
		return true
	}
	own, isOwn := strings.CutPrefix(stream, b.prefix)
	if !isOwn {
		return b.origin > 0
	}
	return strings.HasPrefix(own, shedStream)
}

// fluidKey names an event for ever.
type fluidKey struct {
	stream uint32
	number int64
}

// fluidFact is what readers of the log saw of an event that may be removed.
type fluidFact struct {
	fact
	ordinal int // of the event in the log that comes next, of those that stay
	time    string
	by      place
}

// seen is one event of the log as one node showed it.
type seen struct {
	fact
	fluid bool
	time  string
}

// flow takes an event that may be removed, in front of an ordinal. It reports
// whether it agrees with what others showed. b.mu is held.
func (b *book) flow(from place, ordinal int, one seen, e *entry) bool {
	key := fluidKey{one.stream, one.number}
	if known := b.fluids[key]; known != nil {
		switch {
		case known.ref != one.ref || known.shape != one.shape:
			b.find.add(kindDivergence, "%s shows %s in the log, but %s showed %s", from, b.say(one.fact), known.by, b.say(known.fact))
			return false
		case known.ordinal != ordinal:
			b.find.add(kindOrder, "%s shows %s before event %d of the log, but %s showed it before event %d",
				from, b.say(one.fact), ordinal, known.by, known.ordinal)
			return false
		}
		return true
	}
	b.fluids[key] = &fluidFact{fact: one.fact, ordinal: ordinal, time: one.time, by: from}
	if strings.HasPrefix(e.Stream, groupPrefix(b.prefix)) {
		b.kept = append(b.kept, keptEntry{ordinal: ordinal, at: from.at, entry: *e})
	}
	s := b.stream(one.stream)
	if !s.own || one.number == math.MaxInt64 || one.ref.isForeign() {
		return true
	}
	if !s.room(one.number) {
		b.find.add(kindGap, "%s: %s has a number far from the %d known ones of its stream", from, b.say(one.fact), len(s.refs))
		return false
	}
	if known := s.refs[one.number]; known != 0 && known != one.ref {
		b.find.add(kindDivergence, "%s shows %s in the log, but a reading of the stream showed id %s there", from, b.say(one.fact), b.ids.id(known))
		return false
	}
	s.refs[one.number] = one.ref
	return true
}

// rising finds events of one page, of those that may be removed, whose streams do not rise.
func (b *book) rising(from place, page []seen) {
	last := map[uint32]int64{}
	for _, one := range page {
		if !one.fluid {
			continue // Where these belong is known.
		}
		if before, ok := last[one.stream]; ok && one.number <= before {
			b.find.add(kindOrder, "%s: %s comes behind number %d of its stream", from, b.say(one.fact), before)
		}
		last[one.stream] = one.number
	}
}

// see reads the entries of a page, oldest first.
func (b *book) see(entries []entry, from place) []seen {
	page := make([]seen, len(entries))
	for i := range entries {
		page[i] = seen{fact: b.read(&entries[i], from), fluid: b.isFluid(entries[i].Stream), time: entries[i].Updated}
	}
	return page
}

// fluid returns what readers of the log saw of an event that may be removed, nil if nobody saw it.
func (b *book) fluid(stream uint32, number int64) *fluidFact {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fluids[fluidKey{stream, number}]
}

// everSeen counts the events that readers of the log saw, whether they stay or not.
func (b *book) everSeen() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.facts) + len(b.fluids)
}

// showsEvent takes one event that a reading of an own stream showed.
func (b *book) showsEvent(from place, stream uint32, e *entry) (ref, bool) {
	f := b.read(e, from)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stream(stream)
	if f.stream != stream || !s.room(f.number) {
		b.find.add(kindGap, "%s: %s in a reading of %s", from, b.say(f), b.names.name(stream))
		return 0, false
	}
	if known := s.refs[f.number]; known != 0 && known != f.ref {
		b.find.add(kindDivergence, "%s shows %s, another reading showed id %s there", from, b.say(f), b.ids.id(known))
		return 0, false
	}
	s.refs[f.number] = f.ref
	return f.ref, true
}
