package fsm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
)

// EntryLimit is the size that entries are kept below, unless one write alone is larger.
const EntryLimit = 1 << 20

// Log is what the decider needs of the event log. All answers are about what is applied.
type Log interface {
	Tail() event.Tail
	StreamInfo(stream string) (event.StreamInfo, error)
	FindID(stream string, id event.ID) (number int64, ok bool, err error)
	EventID(stream string, number int64) (id event.ID, ok bool, err error)
	LastRecord(stream string) (event.Record, error)
}

// Decider turns writes into entries on the leader. It decides each write
// against what is applied and everything it decided before. It is used by one
// goroutine at a time.
type Decider struct {
	log Log
	now func() time.Time

	over   *overlay
	tail   event.Tail // behind the last sealed entry, or of what is applied
	time   int64      // of the newest record decided
	number uint64     // of the entry being built, counted by the decider alone
	sealed []uint64   // entries not applied yet, oldest first

	buf       []byte // of the entry being built: room for its head, then records
	first     int64  // position of its first record
	completes bool   // it holds a scavenge point and takes nothing more
	guess     int    // capacity for the next buffer
}

// NewDecider returns a decider over the given log. Reset must be called before the first decision.
func NewDecider(log Log, now func() time.Time) *Decider {
	return &Decider{log: log, now: now, over: newOverlay(), guess: 4 << 10}
}

// Reset forgets everything decided and not applied; decisions go on from the applied state.
func (d *Decider) Reset() error {
	// The end and the chain are captured before any fact is read.
	d.tail = d.log.Tail()
	d.time = d.tail.Time
	d.over.reset()
	d.sealed = d.sealed[:0]
	d.drop()
	return nil
}

func (d *Decider) drop() {
	d.number++
	d.buf, d.completes = nil, false
}

// Seal ends the entry being built and returns its bytes, nil when nothing was written to it.
func (d *Decider) Seal() []byte {
	if d.buf == nil {
		return nil
	}
	b := d.buf
	records := b[entryHead:]
	e := entry{completes: d.completes, end: d.tail.End, chain: d.tail.Chain, first: d.first, applied: d.log.Tail().End}
	e.seal(b)
	d.tail.Chain = eventlog.NextChain(d.tail.Chain, d.first, records)
	d.tail.End = eventlog.EndBehind(d.first, len(records), d.completes)
	d.guess = max(4<<10, min(len(b)+len(b)/4, EntryLimit+EntryLimit/8))
	d.sealed = append(d.sealed, d.number)
	d.drop()
	return b
}

// Applied says that the oldest sealed entry was applied: its facts are in the log now.
func (d *Decider) Applied() {
	if len(d.sealed) == 0 {
		return
	}
	d.over.applied(d.sealed[0])
	d.sealed = append(d.sealed[:0], d.sealed[1:]...)
}

// Decide decides a write and, if it is to be done, adds its records to the entry being built.
func (d *Decider) Decide(w *event.Write) event.Decision {
	f, err := d.facts(w.Stream)
	if err == nil && f.HardDeleted {
		err = event.ErrStreamDeleted
	}
	if err == nil && len(w.Stream) > event.MaxNameBytes {
		err = fmt.Errorf("stream name of %d bytes: %w", len(w.Stream), event.ErrTooLarge)
	}
	if err != nil {
		return event.Decision{Err: err}
	}
	switch w.Kind {
	case event.SoftDelete:
		return d.softDelete(w, f)
	case event.HardDelete:
		return d.hardDelete(w, f)
	}
	if len(w.Events) == 0 {
		return event.Decision{Err: errors.New("nothing to append")}
	}
	done, ok, err := d.check(w, f)
	if err != nil {
		return event.Decision{Err: err}
	}
	if !ok {
		done.Idempotent = true
		return event.Decision{Written: done}
	}
	if event.IsMetaStream(w.Stream) {
		return d.appendMetadata(w, f)
	}
	return d.append(w, f)
}

// facts returns what is known of a stream. The caller may change them if it then touches the stream.
func (d *Decider) facts(stream string) (*facts, error) {
	f := d.over.streams[stream]
	if f == nil {
		info, err := d.log.StreamInfo(stream)
		if err != nil {
			return nil, err
		}
		f = &facts{StreamInfo: info}
	}
	if event.IsMetaStream(stream) {
		// What was decided about the original concerns its metadata stream too.
		original := event.OriginalOf(stream)
		if o := d.over.streams[original]; o != nil {
			f.HardDeleted = f.HardDeleted || o.HardDeleted
			if !event.IsMetaStream(original) {
				f.Last = o.MetaLast
			}
		}
	}
	return f, nil
}

// append adds the events of a write to an ordinary stream. On a soft-deleted
// one it also writes the metadata that make them, and only them, visible.
func (d *Decider) append(w *event.Write, f *facts) event.Decision {
	first := f.Last + 1
	var meta []event.Proposed
	if f.Metadata.SoftDeleted() {
		document, err := d.metadata(w.Stream, f)
		if err != nil {
			return event.Decision{Err: err}
		}
		meta = []event.Proposed{metadataEvent(event.WithTruncateBefore(document, first))}
	}
	if full, err := d.begin(part{w.Stream, w.Events}, part{event.MetaStreamOf(w.Stream), meta}); full || err != nil {
		return event.Decision{Full: full, Err: err}
	}
	d.add(w.Stream, first, 0, w.Events)
	f.Last += int64(len(w.Events))
	d.over.addIDs(d.number, w.Stream, f, first, w.Events)
	d.addMetadata(w.Stream, f, meta)
	d.over.touch(d.number, w.Stream, f)
	if w.Stream == event.ScavengePointsStream && w.Events[len(w.Events)-1].Type == event.TypeScavengePoint {
		d.completes = true
	}
	return event.Decision{Written: event.Written{First: first, Last: f.Last}}
}

// appendMetadata adds events to a metadata stream. If that revives a
// soft-deleted stream, what was there before stays hidden.
func (d *Decider) appendMetadata(w *event.Write, m *facts) event.Decision {
	name := event.OriginalOf(w.Stream)
	f, err := d.facts(name)
	if err != nil {
		return event.Decision{Err: err}
	}
	first := m.Last + 1
	posted := w.Events[len(w.Events)-1].Data
	parsed := event.ParseMetadata(posted)
	var revival []event.Proposed
	if f.Metadata.SoftDeleted() && !parsed.SoftDeleted() && !event.IsMetaStream(name) {
		revival = []event.Proposed{metadataEvent(event.WithTruncateBefore(posted, f.Last+1))}
	}
	if full, err := d.begin(part{w.Stream, w.Events}, part{w.Stream, revival}); full || err != nil {
		return event.Decision{Full: full, Err: err}
	}
	d.add(w.Stream, first, 0, w.Events)
	last := m.Last + int64(len(w.Events))
	d.add(w.Stream, last+1, 0, revival)
	m.Last = last + int64(len(revival))
	d.over.addIDs(d.number, w.Stream, m, first, append(w.Events[:len(w.Events):len(w.Events)], revival...))
	d.over.touch(d.number, w.Stream, m)
	// Nothing that is said about a metadata stream has any effect.
	if !event.IsMetaStream(name) {
		f.setMetadata(w.Events)
		f.setMetadata(revival)
		d.over.touch(d.number, name, f)
	}
	return event.Decision{Written: event.Written{First: first, Last: last}}
}

func (d *Decider) softDelete(w *event.Write, f *facts) event.Decision {
	if f.Last < 0 && f.MetaLast < 0 {
		return event.Decision{Err: wrongVersion(w, f)}
	}
	if err := checkDelete(w, f); err != nil {
		return event.Decision{Err: err}
	}
	done := event.Written{First: f.Last, Last: f.Last}
	if f.Metadata.SoftDeleted() {
		done.Idempotent = true
		return event.Decision{Written: done}
	}
	stream := event.MetaStreamOf(w.Stream)
	meta := []event.Proposed{metadataEvent(event.WithTruncateBefore(nil, event.TombstoneNumber))}
	if full, err := d.begin(part{stream, meta}); full || err != nil {
		return event.Decision{Full: full, Err: err}
	}
	d.addMetadata(w.Stream, f, meta)
	d.over.touch(d.number, w.Stream, f)
	return event.Decision{Written: done}
}

func (d *Decider) hardDelete(w *event.Write, f *facts) event.Decision {
	if err := checkDelete(w, f); err != nil {
		return event.Decision{Err: err}
	}
	tombstone := []event.Proposed{{ID: newID(), Type: event.TypeStreamDeleted}}
	if full, err := d.begin(part{w.Stream, tombstone}); full || err != nil {
		return event.Decision{Full: full, Err: err}
	}
	d.add(w.Stream, event.TombstoneNumber, event.FlagDeleted, tombstone)
	f.HardDeleted = true
	d.over.touch(d.number, w.Stream, f)
	return event.Decision{Written: event.Written{First: event.TombstoneNumber, Last: event.TombstoneNumber}}
}

// addMetadata adds metadata events that the database itself writes for a stream.
func (d *Decider) addMetadata(stream string, f *facts, events []event.Proposed) {
	if len(events) == 0 {
		return
	}
	name := event.MetaStreamOf(stream)
	first := f.MetaLast + 1
	d.add(name, first, 0, events)
	f.setMetadata(events)
	if m := d.over.streams[name]; m != nil {
		d.over.addIDs(d.number, name, m, first, events)
		m.Last = f.MetaLast
		d.over.touch(d.number, name, m)
	}
}

// setMetadata makes the last of the events what is known of the stream's metadata.
func (f *facts) setMetadata(events []event.Proposed) {
	if len(events) == 0 {
		return
	}
	f.MetaLast += int64(len(events))
	f.metadata = events[len(events)-1].Data
	f.Metadata = event.ParseMetadata(f.metadata)
}

// metadata returns the metadata document of a stream.
func (d *Decider) metadata(stream string, f *facts) ([]byte, error) {
	if f.metadata != nil {
		return f.metadata, nil
	}
	rec, err := d.log.LastRecord(event.MetaStreamOf(stream))
	return rec.Data, err
}

// part is a run of events of one stream within an entry.
type part struct {
	stream string
	events []event.Proposed
}

// begin makes room for the parts of a write in the entry being built; full says
// that they must wait for the next one.
func (d *Decider) begin(parts ...part) (full bool, err error) {
	size := 0
	for _, p := range parts {
		for i := range p.events {
			e := &p.events[i]
			if len(e.Type) > event.MaxNameBytes || len(e.Data)+len(e.Metadata) > eventlog.MaxFrameBytes {
				return false, event.ErrTooLarge
			}
			size += eventlog.RecordSize(p.stream, e)
		}
	}
	if size > eventlog.MaxFrameBytes {
		return false, fmt.Errorf("the events take %d bytes together, at most %d are written at once: %w", size, eventlog.MaxFrameBytes, event.ErrTooLarge)
	}
	if d.buf == nil {
		d.first = eventlog.Place(d.tail.End, size)
		d.buf = make([]byte, entryHead, max(d.guess, entryHead+size))
		return false, nil
	}
	// The frame must not move to the next chunk any more: its positions are given.
	records := len(d.buf) - entryHead
	return d.completes || records+size > EntryLimit || eventlog.Place(d.first, records+size) != d.first, nil
}

// add encodes events of one stream behind what the entry holds.
func (d *Decider) add(stream string, number int64, flags event.Flags, events []event.Proposed) {
	if len(events) == 0 {
		return
	}
	d.time = max(d.time, d.now().UnixNano())
	for i := range events {
		e := &events[i]
		position := d.first + int64(len(d.buf)-entryHead)
		d.buf = eventlog.AppendRecord(d.buf, position, stream, number+int64(i), d.time, flags|e.Flags, e)
	}
}

func metadataEvent(document []byte) event.Proposed {
	return event.Proposed{ID: newID(), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: document}
}

func newID() event.ID {
	var id event.ID
	rand.Read(id[:]) // Never fails: crypto/rand ends the program instead.
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return id
}
