package fsm

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// EntryLimit is the size that the records of an entry are kept below, unless one write alone is
// larger.
const EntryLimit = 1 << 20

// MaxRecords is how many bytes of records one write may take: with its head, the
// entry is then as large as a frame of the log and an entry of Raft may be.
const MaxRecords = chunkfile.MaxFrameBytes - entryHead

// maxKeptBuffer is the capacity of the buffer that is kept from one entry to the next.
const maxKeptBuffer = 2 * EntryLimit

// Log is what the decider needs of the event log. All answers are about what is applied.
type Log interface {
	Tail() event.Tail
	StreamInfo(stream string) (event.StreamInfo, error)
	FindID(stream string, id event.ID) (number int64, ok bool, err error)
	// HasID reports whether the event with a number, which the stream has, has an id;
	// false also when that is not known any more.
	HasID(stream string, number int64, id event.ID) (bool, error)
	LastRecord(stream string) (event.Record, error)
	// PositionOf returns the position of an event, hidden or not, -1 when it was removed.
	PositionOf(stream string, number int64) (int64, error)
	// FirstMatch returns the event with the lowest position, from one on, that a query asks for and
	// that shows reports true for; nil: there is none.
	FirstMatch(q *event.Query, from int64, shows func(*event.Hit) (bool, error)) (*event.Hit, error)
	// Around returns the record at a position, so many before it and so many after it, fewer where
	// the log ends or some are gone.
	Around(position int64, before, after int) ([]event.Hit, error)
}

// Decider turns writes into entries on the leader. It decides each write
// against what is applied and everything it decided before. It is used by one
// goroutine at a time.
type Decider struct {
	log Log
	now func() time.Time

	over   *overlay
	tail   event.Tail // at the end of the last sealed entry, or of what is applied
	time   int64      // of the newest record decided
	number uint64     // of the entry being built, counted by the decider alone
	sealed []uint64   // entries not applied yet, oldest first

	pending pendingLog

	building  bool   // something was written to the entry being built
	buf       []byte // its bytes: room for the head, then records; the memory is used again
	first     int64  // position of its first record
	completes bool   // it holds a scavenge point and takes nothing more

	many many

	metrics *conditionMetrics // nil: nothing is counted
}

// NewDecider returns a decider over the given log. Reset must be called before the first decision.
func NewDecider(log Log, now func() time.Time) *Decider {
	return &Decider{log: log, now: now, over: newOverlay(), number: 1, many: many{facts: map[string]*facts{}, places: map[string]int{}}}
}

// Reset forgets everything decided and not applied; decisions continue from the applied state.
func (d *Decider) Reset() error {
	// The end and the chain are captured before any fact is read.
	d.tail = d.log.Tail()
	d.time = d.tail.Time
	d.over.reset()
	d.sealed = d.sealed[:0]
	d.pending.reset()
	d.drop()
	return nil
}

func (d *Decider) drop() {
	d.number++
	d.building, d.completes = false, false
	if cap(d.buf) > maxKeptBuffer {
		d.buf = nil
	}
}

// Seal ends the entry being built and returns its bytes, nil when nothing was
// written to it. They are the caller's for good.
func (d *Decider) Seal() []byte {
	if !d.building {
		return nil
	}
	b := append([]byte(nil), d.buf...)
	records := b[entryHead:]
	e := entry{completes: d.completes, end: d.tail.End, chain: d.tail.Chain, first: d.first, applied: d.log.Tail().End}
	e.seal(b)
	d.tail.Chain = chunkfile.NextChain(d.tail.Chain, d.first, records)
	d.tail.End = chunkfile.EndBehind(d.first, len(records), d.completes)
	d.sealed = append(d.sealed, d.number)
	d.pending.seal(d.first, records)
	d.drop()
	return b
}

// Applied says that the oldest sealed entry was applied: its facts are in the log now.
func (d *Decider) Applied() {
	if len(d.sealed) == 0 {
		return
	}
	d.over.applied(d.sealed[0])
	d.sealed = slices.Delete(d.sealed, 0, 1)
	d.pending.applied()
}

// Decide decides a write and, if it is to be done, adds its records to the
// entry being built. Of w it keeps nothing but the stream's name.
func (d *Decider) Decide(w *event.Write) event.Decision {
	d.over.settle()
	if w.Kind == event.AppendMany {
		return d.appendMany(w)
	}
	if err := allowed(w.Kind, w.Stream); err != nil {
		return event.Decision{Err: err}
	}
	f, err := d.facts(w.Stream)
	if err != nil {
		return event.Decision{Err: err}
	}
	if f.HardDeleted {
		if w.Late && event.IsMetaStream(w.Stream) {
			return d.appendLate(w, f)
		}
		return event.Decision{Err: event.ErrStreamDeleted}
	}
	switch w.Kind {
	case event.SoftDelete:
		return d.softDelete(w, f)
	case event.HardDelete:
		return d.hardDelete(w, f)
	}
	done, ok, err := d.check(w, f)
	switch {
	case err != nil:
		return event.Decision{Err: err}
	case len(w.Events) == 0:
		return event.Decision{Written: event.Written{First: f.Last + 1, Last: f.Last, Idempotent: true, Position: -1}}
	case !ok:
		done.Idempotent = true
		if done.Position, err = d.positionOf(w.Stream, f, done.Last); err != nil {
			return event.Decision{Err: err}
		}
		return event.Decision{Written: done}
	}
	return d.append(w, f)
}

// allowed refuses what no stream's state could make right.
func allowed(kind event.WriteKind, stream string) error {
	switch {
	case kind > event.AppendMany:
		return fmt.Errorf("unknown kind of write %d", kind)
	case stream == event.AllStream:
		return fmt.Errorf("stream %s is only read: %w", stream, event.ErrNotAuthorized)
	case kind != event.Append && event.IsMetaStream(stream):
		// It lives and dies with its original; a tombstone of its own would be in the way of that.
		return fmt.Errorf("a metadata stream is not deleted: %w", event.ErrNotAuthorized)
	case len(event.OriginalOf(stream)) > event.MaxNameBytes:
		return fmt.Errorf("stream name of %d bytes: %w", len(stream), event.ErrTooLarge)
	}
	return nil
}

// facts returns the facts of a stream. The caller may change them if it then touches them.
func (d *Decider) facts(stream string) (*facts, error) {
	f := d.over.streams[stream]
	if f == nil {
		info, err := d.log.StreamInfo(stream)
		if err != nil {
			return nil, err
		}
		f = d.over.fresh(stream)
		f.StreamInfo = info
	}
	if event.IsMetaStream(stream) {
		d.addOriginal(f, stream)
	}
	return f, nil
}

// addOriginal adds to the facts of a metadata stream what was decided about its
// original: the number of its last metadata, and whether all of them are deleted.
func (d *Decider) addOriginal(f *facts, stream string) {
	original := event.OriginalOf(stream)
	if !event.IsMetaStream(original) {
		if o := d.over.streams[original]; o != nil {
			f.Last = o.MetaLast
			f.HardDeleted = f.HardDeleted || o.HardDeleted
		}
		return
	}
	// The metadata stream of a metadata stream: only what it all goes back to can be deleted.
	if o := d.over.streams[event.RootOf(original)]; o != nil {
		f.HardDeleted = f.HardDeleted || o.HardDeleted
	}
}

// append adds the events of a write to one stream.
func (d *Decider) append(w *event.Write, f *facts) event.Decision {
	m := &d.many
	defer m.forget()
	m.written = append(m.written, writtenStream{facts: f, events: w.Events})
	m.parts = append(m.parts, part{w.Stream, w.Events, f})
	position, full, err := d.write()
	span := m.written[0].span
	return event.Decision{Full: full, Err: err, Written: event.Written{First: span.First, Last: span.Last, Position: position}}
}

func isScavengePoint(e event.Proposed) bool { return e.Type == event.TypeScavengePoint }

// withClock notes the clock in scavenge points where the log's time runs ahead of it. The clock
// decides which events are too old: readers do the same.
func (d *Decider) withClock(events []event.Proposed) []event.Proposed {
	now := d.now()
	if now.UnixNano() >= d.time {
		return events
	}
	events = slices.Clone(events)
	for i := range events {
		if isScavengePoint(events[i]) {
			events[i].Metadata = fmt.Appendf(nil, `{"%s":"%s"}`, event.KeyEffectiveNow, now.UTC().Format(time.RFC3339Nano))
		}
	}
	return events
}

// revivalOf returns the metadata event that makes a soft-deleted stream visible
// from number first on, and keeps the other keys of a document. Where those
// would make the whole document count as empty, and so would show what was
// deleted, they are left out.
func revivalOf(document []byte, first int64) []event.Proposed {
	revived := event.WithTruncateBefore(document, first)
	if m := event.ParseMetadata(revived); m.TruncateBefore != first {
		revived = event.WithTruncateBefore(nil, first)
	}
	return metadataEvent(revived)
}

func (d *Decider) softDelete(w *event.Write, f *facts) event.Decision {
	if f.Last < 0 && f.MetaLast < 0 {
		return event.Decision{Err: wrongVersion(w, f)}
	}
	if err := holds(w, f); err != nil {
		return event.Decision{Err: err}
	}
	done := event.Written{First: f.Last, Last: f.Last}
	if f.Metadata.SoftDeleted() {
		position, err := d.hiddenBy(w.Stream, f)
		if err != nil {
			return event.Decision{Err: err}
		}
		done.Idempotent, done.Position = true, position
		return event.Decision{Written: done}
	}
	meta := part{event.MetaStreamOf(w.Stream), metadataEvent(event.WithTruncateBefore(nil, event.TombstoneNumber)), f}
	if full, err := d.begin(meta); full || err != nil {
		return event.Decision{Full: full, Err: err}
	}
	done.Position = d.addMetadata(meta)
	return event.Decision{Written: done}
}

func (d *Decider) hardDelete(w *event.Write, f *facts) event.Decision {
	if err := holds(w, f); err != nil {
		return event.Decision{Err: err}
	}
	tombstone := []event.Proposed{{ID: event.ID(uuid.New()), Type: event.TypeStreamDeleted}}
	if full, err := d.begin(part{w.Stream, tombstone, f}); full || err != nil {
		return event.Decision{Full: full, Err: err}
	}
	position := d.add(w.Stream, event.TombstoneNumber, event.FlagDeleted, tombstone, nil)
	f.HardDeleted = true
	d.over.touch(d.number, f)
	return event.Decision{Written: event.Written{First: event.TombstoneNumber, Last: event.TombstoneNumber, Position: position}}
}

// addMetadata adds metadata events that the database itself writes for a stream, whose facts meta
// has, and returns the position of the last.
func (d *Decider) addMetadata(meta part) (position int64) {
	m, f := d.over.streams[meta.stream], meta.of
	position = d.add(meta.stream, f.MetaLast+1, 0, meta.events, m)
	f.setMetadata(meta.events, position)
	if m != nil {
		m.Last = f.MetaLast
		d.over.touch(d.number, m)
	}
	d.over.touch(d.number, f)
	return position
}

// setMetadata makes the last of the events, which lies at a position, what is known of the stream's
// metadata.
func (f *facts) setMetadata(events []event.Proposed, position int64) {
	document := events[len(events)-1].Data
	f.MetaLast += int64(len(events))
	f.Metadata = event.ParseMetadata(document)
	f.metadata = nil
	if f.Metadata.SoftDeleted() {
		f.metadata, f.metadataAt = bytes.Clone(document), position
	}
}

// metadata returns the metadata document of a soft-deleted stream.
func (d *Decider) metadata(stream string, f *facts) ([]byte, error) {
	if f.metadata != nil {
		return f.metadata, nil
	}
	rec, err := d.log.LastRecord(event.MetaStreamOf(stream))
	if err != nil {
		return nil, fmt.Errorf("metadata of stream %q: %w", stream, err)
	}
	return rec.Data, nil
}

// hiddenBy returns the position of the metadata event that soft-deleted a stream.
func (d *Decider) hiddenBy(stream string, f *facts) (int64, error) {
	if f.metadata != nil {
		return f.metadataAt, nil
	}
	return d.log.PositionOf(event.MetaStreamOf(stream), f.MetaLast)
}

// part is a run of events of one stream within an entry.
type part struct {
	stream string
	events []event.Proposed
	of     *facts // of the stream; where the database adds metadata, of the one that they describe
}

// begin makes room for the parts of a write in the entry being built, and looks at the clock, for
// all of them; full says that they must wait for the next one.
func (d *Decider) begin(parts ...part) (full bool, err error) {
	size := 0
	for _, p := range parts {
		for i := range p.events {
			e := &p.events[i]
			if len(e.Type) > event.MaxNameBytes {
				return false, fmt.Errorf("event type of %d bytes: %w", len(e.Type), event.ErrTooLarge)
			}
			size += chunkfile.RecordSize(p.stream, e)
		}
	}
	if size > MaxRecords {
		return false, fmt.Errorf("the events take %d bytes together, at most %d are written at once: %w", size, MaxRecords, event.ErrTooLarge)
	}
	if !d.building {
		d.building = true
		d.first = chunkfile.Place(d.tail.End, size)
		d.buf = append(d.buf[:0], make([]byte, entryHead)...)
	} else if records := len(d.buf) - entryHead; d.completes || records+size > EntryLimit || chunkfile.Place(d.first, records+size) != d.first {
		// The frame must not move to the next chunk any more: its positions are given.
		return true, nil
	}
	d.buf = slices.Grow(d.buf, size)
	d.time = max(d.time, d.now().UnixNano())
	return false, nil
}

// end is where the records decided so far end.
func (d *Decider) end() int64 {
	if d.building {
		return d.first + int64(len(d.buf)-entryHead)
	}
	return d.tail.End
}

// add encodes events of one stream at the end of the entry, notes their ids in f unless f is nil,
// and returns the position of the last event, -1 when there is none.
func (d *Decider) add(stream string, number int64, flags event.Flags, events []event.Proposed, f *facts) (position int64) {
	if len(events) == 0 {
		return -1
	}
	f.makeRoom(number, len(events))
	for i := range events {
		e := &events[i]
		position = d.first + int64(len(d.buf)-entryHead)
		f.addID(e.ID, number+int64(i), position)
		d.buf = chunkfile.AppendRecord(d.buf, position, stream, number+int64(i), d.time, flags|e.Flags&event.FlagJSON, e)
	}
	return position
}

func metadataEvent(document []byte) []event.Proposed {
	return []event.Proposed{{ID: event.ID(uuid.New()), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: document}}
}
