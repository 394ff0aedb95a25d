package fsm

import (
	"slices"

	"github.com/annalsdb/annals/event"
)

// facts are the basis of a decision about a stream: the applied state, and the later decisions on
// top of it.
type facts struct {
	event.StreamInfo
	name string
	// The document that soft-deletes the stream, and where it lies, if that was decided since; else
	// nil.
	metadata   []byte
	metadataAt int64

	entry uint64 // number of the newest entry that changed them; 0: they are not in the overlay
	at    int    // their place in that entry's list

	// The events that are not applied. Those that the database wrote to a metadata stream without
	// other writes are left out: no client can retry them.
	ids  []pendingEvent
	from int64              // number of the event that ids begins with
	byID map[event.ID]int64 // the same as ids, made when a long list is searched

	// the number, which is the position, of late metadata events that are not applied
	late map[event.ID]int64
}

// pendingEvent is an event that is not applied yet.
type pendingEvent struct {
	id       event.ID
	position int64
}

// overlay holds the facts of the streams that entries not yet applied change.
//
// Entries are numbered in the order of being built. The facts of a stream leave
// the overlay when the newest entry that changed them was applied: from then on
// the log says the same.
type overlay struct {
	streams map[string]*facts
	entries []pendingEntry // sealed ones, oldest first, and at last the one being built
	loose   []*facts       // handed out since the last settle
	spare   []*facts
	lists   [][]touched // spare memory of entries
}

// pendingEntry lists the streams that one entry changes, each of them once.
type pendingEntry struct {
	number  uint64
	streams []touched
}

type touched struct {
	f    *facts
	last int64 // number of the stream's last event after this entry
}

const (
	searchable = 24   // ids that are searched one by one; a map costs more than it saves below
	maxSpare   = 8192 // facts kept for reuse, about 300 bytes each
)

func newOverlay() *overlay { return &overlay{streams: make(map[string]*facts)} }

// fresh returns facts for a stream that is not in the overlay. They are the
// caller's until settle, or until they are touched.
func (o *overlay) fresh(name string) *facts {
	var f *facts
	if n := len(o.spare); n > 0 {
		f = o.spare[n-1]
		o.spare = o.spare[:n-1]
	} else {
		f = new(facts)
	}
	f.name = name
	o.loose = append(o.loose, f)
	return f
}

// settle takes back facts that were handed out and not touched.
func (o *overlay) settle() {
	for _, f := range o.loose {
		if f.entry == 0 {
			o.recycle(f)
		}
	}
	o.loose = o.loose[:0]
}

func (o *overlay) recycle(f *facts) {
	if len(o.spare) == maxSpare {
		return
	}
	ids := f.ids[:0]
	if cap(ids) > 64 {
		ids = nil
	}
	*f = facts{ids: ids}
	o.spare = append(o.spare, f)
}

// touch says that an entry, the one being built, changed what is known of a stream.
func (o *overlay) touch(entry uint64, f *facts) {
	n := len(o.entries)
	if n == 0 || o.entries[n-1].number != entry {
		e := pendingEntry{number: entry}
		if k := len(o.lists); k > 0 {
			e.streams = o.lists[k-1]
			o.lists = o.lists[:k-1]
		}
		o.entries = append(o.entries, e)
		n++
	}
	e := &o.entries[n-1]
	if f.entry == entry {
		e.streams[f.at].last = f.Last
		return
	}
	if f.entry == 0 {
		o.streams[f.name] = f
	}
	f.entry, f.at = entry, len(e.streams)
	e.streams = append(e.streams, touched{f: f, last: f.Last})
}

// makeRoom makes room for events that are appended from number first on. A nil f notes none.
func (f *facts) makeRoom(first int64, events int) {
	if f == nil {
		return
	}
	if len(f.ids) == 0 {
		f.from = first
	}
	f.ids = slices.Grow(f.ids, events)
}

// addID remembers an event, the next one. A nil f notes none.
func (f *facts) addID(id event.ID, number, position int64) {
	if f == nil {
		return
	}
	f.ids = append(f.ids, pendingEvent{id, position})
	if f.byID != nil {
		f.byID[id] = number
	}
}

// pending returns an event that is decided and not applied yet, nil when it is none of these.
func (f *facts) pending(number int64) *pendingEvent {
	if i := number - f.from; i >= 0 && i < int64(len(f.ids)) {
		return &f.ids[i]
	}
	return nil
}

// find returns the number under which an id was last decided, if that is not applied yet.
func (f *facts) find(id event.ID) (number int64, ok bool) {
	if len(f.ids) <= searchable {
		for i := len(f.ids) - 1; i >= 0; i-- {
			if f.ids[i].id == id {
				return f.from + int64(i), true
			}
		}
		return 0, false
	}
	if f.byID == nil {
		f.byID = make(map[event.ID]int64, 2*len(f.ids))
		for i := range f.ids {
			f.byID[f.ids[i].id] = f.from + int64(i)
		}
	}
	number, ok = f.byID[id]
	return number, ok
}

// forget drops the ids of the events up to number last, which are applied.
func (f *facts) forget(last int64) {
	for id, number := range f.late {
		if number <= last {
			delete(f.late, id)
		}
	}
	n := min(last-f.from+1, int64(len(f.ids)))
	if n <= 0 {
		return
	}
	if f.byID != nil {
		for i := range f.ids[:n] {
			if id := f.ids[i].id; f.byID[id] == f.from+int64(i) {
				delete(f.byID, id)
			}
		}
	}
	f.ids = append(f.ids[:0], f.ids[n:]...)
	f.from += n
}

// applied forgets what the oldest entry changed, as far as no later one did too.
func (o *overlay) applied(entry uint64) {
	if len(o.entries) == 0 || o.entries[0].number != entry {
		return
	}
	o.settle()
	done := o.entries[0].streams
	for _, t := range done {
		if t.f.entry == entry {
			delete(o.streams, t.f.name)
			o.recycle(t.f)
		} else {
			t.f.forget(t.last)
		}
	}
	clear(done)
	o.lists = append(o.lists, done[:0])
	n := copy(o.entries, o.entries[1:])
	o.entries[n] = pendingEntry{}
	o.entries = o.entries[:n]
}

// reset forgets everything.
func (o *overlay) reset() {
	o.settle()
	for _, f := range o.streams {
		o.recycle(f)
	}
	clear(o.streams)
	clear(o.entries)
	o.entries = o.entries[:0]
}
