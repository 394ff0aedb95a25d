package fsm

import (
	"slices"

	"github.com/annalsdb/annals/event"
)

// facts are what a decision about a stream rests on: what is applied, and on
// top of it what was decided since.
type facts struct {
	event.StreamInfo
	metadata []byte // the document, where it was decided since; else nil

	entry uint64 // number of the newest entry that changed them
	ids   []event.ID
	from  int64 // number of the event that ids begins with
}

// overlay holds the facts of the streams that entries not yet applied change.
type overlay struct {
	streams map[string]*facts
	ids     map[pendingID]pendingNumber
	entries []pendingEntry // sealed ones, oldest first, and at last the one being built
}

type pendingID struct {
	stream string
	id     event.ID
}

type pendingNumber struct {
	number int64
	entry  uint64
}

// pendingEntry lists what one entry changes.
type pendingEntry struct {
	number  uint64
	streams []touched
	ids     []pendingID
}

type touched struct {
	name string
	last int64 // number of its last event behind this entry
}

func newOverlay() *overlay {
	return &overlay{streams: make(map[string]*facts), ids: make(map[pendingID]pendingNumber)}
}

// building returns the entry that is being built, beginning it if need be.
func (o *overlay) building(number uint64) *pendingEntry {
	if n := len(o.entries); n > 0 && o.entries[n-1].number == number {
		return &o.entries[n-1]
	}
	o.entries = append(o.entries, pendingEntry{number: number})
	return &o.entries[len(o.entries)-1]
}

// touch makes f what is known of a stream from now on.
func (o *overlay) touch(entry uint64, name string, f *facts) {
	e := o.building(entry)
	f.entry = entry
	o.streams[name] = f
	e.streams = append(e.streams, touched{name: name, last: f.Last})
}

// addIDs remembers the events that an entry appends to a stream from number first on.
func (o *overlay) addIDs(entry uint64, name string, f *facts, first int64, events []event.Proposed) {
	e := o.building(entry)
	if len(f.ids) == 0 {
		f.from = first
	}
	for i := range events {
		id := pendingID{stream: name, id: events[i].ID}
		o.ids[id] = pendingNumber{number: first + int64(i), entry: entry}
		e.ids = append(e.ids, id)
		f.ids = append(f.ids, events[i].ID)
	}
}

// idOf returns the id of an event that is not applied yet.
func (f *facts) idOf(number int64) (event.ID, bool) {
	if i := number - f.from; i >= 0 && i < int64(len(f.ids)) {
		return f.ids[i], true
	}
	return event.ID{}, false
}

// applied forgets what the oldest entry changed, as far as no later one did too.
func (o *overlay) applied(entry uint64) {
	if len(o.entries) == 0 || o.entries[0].number != entry {
		return
	}
	done := o.entries[0]
	o.entries = slices.Delete(o.entries, 0, 1)
	for _, t := range done.streams {
		f := o.streams[t.name]
		if f == nil {
			continue
		}
		if f.entry == entry {
			delete(o.streams, t.name)
			continue
		}
		if n := t.last - f.from + 1; len(f.ids) > 0 && n > 0 {
			f.ids = slices.Delete(f.ids, 0, int(min(n, int64(len(f.ids)))))
			f.from = t.last + 1
		}
	}
	for _, id := range done.ids {
		if o.ids[id].entry == entry {
			delete(o.ids, id)
		}
	}
}

func (o *overlay) reset() {
	clear(o.streams)
	clear(o.ids)
	o.entries = o.entries[:0]
}
