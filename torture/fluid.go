package torture

import (
	"math"
	"strings"
	"time"
)

// shedStream begins the names of streams that lose events, after the prefix of the run.
const shedStream = "shed-"

// fluidKey names an event for ever.
type fluidKey struct {
	stream *stream
	number int64
}

// fluidFact is what readers of the log saw of an event that may be removed.
type fluidFact struct {
	fact
	ordinal int // of the event in the log that comes next, of those that stay
	time    time.Time
	by      place
	// entry is the shown entry, only for the streams in which a server keeps the groups of this
	// run. Some of them have limits.
	entry *entry
}

// seen is one event of the log as one node showed it.
type seen struct {
	fact
	time time.Time
}

// flow takes an event that may be removed, in front of an ordinal, and compares it with what other
// readers saw. b.mu is held.
func (b *book) flow(from place, ordinal int, one seen, e *entry) {
	key := fluidKey{one.stream, one.number}
	if known := b.fluids[key]; known != nil {
		if known.ref != one.ref || known.shape != one.shape {
			b.find.add(kindDivergence, "%s shows %s in the log, but %s showed %s", from, b.say(one.fact), known.by, b.say(known.fact))
		} else if known.ordinal != ordinal {
			b.find.add(kindOrder, "%s shows %s before event %d of the log, but %s showed it before event %d",
				from, b.say(one.fact), ordinal, known.by, known.ordinal)
		}
		return
	}
	f := &fluidFact{fact: one.fact, ordinal: ordinal, time: one.time, by: from}
	b.fluids[key] = f
	if strings.HasPrefix(e.Stream, groupPrefix(b.prefix)) {
		kept := *e // Not the page that it is of.
		f.entry = &kept
		b.kept = append(b.kept, f)
	}
	if !one.stream.own || one.number == math.MaxInt64 || one.ref.isForeign() {
		return
	}
	b.know(from, one.fact)
}

// rising finds events of one page, of those that may be removed, whose streams do not rise.
func (b *book) rising(from place, page []seen) {
	last := map[*stream]int64{}
	for _, one := range page {
		if !one.stream.fluid {
			continue // Where these belong is known.
		}
		if before, ok := last[one.stream]; ok && one.number <= before {
			b.find.add(kindOrder, "%s: %s comes after number %d of its stream", from, b.say(one.fact), before)
		}
		last[one.stream] = one.number
	}
}

// see reads the entries of a page, oldest first.
func (b *book) see(entries []entry, from place) []seen {
	page := make([]seen, len(entries))
	for i := range entries {
		page[i] = seen{b.read(&entries[i], from), entries[i].Time}
	}
	return page
}

// fluid returns what readers of the log saw of an event that may be removed, nil if none saw it.
func (b *book) fluid(of *stream, number int64) *fluidFact {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fluids[fluidKey{of, number}]
}

// everSeen counts the events that readers of the log saw, whether they stay or not.
func (b *book) everSeen() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.facts) + len(b.fluids)
}

// showsEvent takes one event that a reading of an own stream showed.
func (b *book) showsEvent(from place, of *stream, e *entry) (ref, bool) {
	f := b.read(e, from)
	b.mu.Lock()
	defer b.mu.Unlock()
	if f.stream != of {
		b.find.add(kindGap, "%s: %s in a reading of %s", from, b.say(f), of.name)
		return 0, false
	}
	return f.ref, b.know(from, f)
}
