package memdb

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
)

// Do does a write without the hooks.
func (db *DB) Do(w *event.Write) (event.Written, error) {
	db.leader.mu.Lock()
	defer db.leader.mu.Unlock()
	return db.leader.write(w)
}

// Put does a write that must succeed, without the hooks.
func (db *DB) Put(w event.Write) {
	if _, err := db.Do(&w); err != nil {
		db.t.Helper()
		db.t.Fatalf("write to %s: %v", w.Stream, err)
	}
}

// Append puts one event at the end of a stream and returns its id.
func (db *DB) Append(stream, eventType, data, metadata string) event.ID {
	p := event.Proposed{ID: event.ID(uuid.New()), Type: eventType, Data: []byte(data), Metadata: []byte(metadata)}
	db.Put(event.Write{Stream: stream, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{p}})
	return p.ID
}

// SetMetadata puts a document in the place of a stream's metadata.
func (db *DB) SetMetadata(stream, document string) {
	p := event.Proposed{ID: event.ID(uuid.New()), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: []byte(document)}
	db.Put(event.Write{Stream: event.MetaStreamOf(stream), ExpectedVersion: event.AnyVersion, Events: []event.Proposed{p}})
}

// Delete deletes a stream, softly or for good.
func (db *DB) Delete(kind event.WriteKind, stream string) {
	db.Put(event.Write{Kind: kind, Stream: stream, ExpectedVersion: event.AnyVersion})
}

// Metadata is the document of a stream's metadata, empty if there is none.
func (db *DB) Metadata(stream string) string {
	all := db.All(event.MetaStreamOf(stream))
	if len(all) == 0 {
		return ""
	}
	return string(all[len(all)-1].Data)
}

// Info is StreamInfo without the hooks.
func (db *DB) Info(stream string) event.StreamInfo {
	info, err := db.log.Reads.StreamInfo(stream)
	if err != nil {
		db.t.Errorf("%s: %v", stream, err)
	}
	return info
}

// Log is every record that was ever written, in that order.
func (db *DB) Log() []event.Record {
	db.leader.mu.Lock()
	defer db.leader.mu.Unlock()
	all := append(db.present(), db.removed...)
	slices.SortFunc(all, func(a, b event.Record) int { return cmp.Compare(a.Position, b.Position) })
	return all
}

// present is every record that is still there, those that no reader sees too.
func (db *DB) present() (all []event.Record) {
	err := db.log.Chunks.Scan(context.Background(), 0, db.log.Tail().End, func(s *eventlog.Stored) error {
		all = append(all, event.Record{
			Position: s.Position, Next: s.Position + int64(s.Size), Stream: string(s.Stream), Number: s.Number, ID: s.ID, Type: string(s.Type),
			Time: s.Time, Flags: s.Flags, Data: bytes.Clone(s.Data), Metadata: bytes.Clone(s.Metadata),
		})
		return nil
	})
	if err != nil {
		db.t.Fatalf("read the log: %v", err)
	}
	return all
}

// Positions is where in the log every record lies that was ever written.
func (db *DB) Positions() []int64 {
	db.leader.mu.Lock()
	defer db.leader.mu.Unlock()
	if end := db.log.Tail().End; end > db.placed {
		err := db.log.Chunks.Scan(context.Background(), db.placed, end, func(s *eventlog.Stored) error {
			db.places = append(db.places, s.Position)
			return nil
		})
		if err != nil {
			db.t.Fatalf("read the log: %v", err)
		}
		db.placed = end
	}
	return slices.Clip(db.places)
}

// All is every event of a stream, hidden ones and those that were removed too.
func (db *DB) All(stream string) []event.Record {
	return slices.DeleteFunc(db.Log(), func(r event.Record) bool { return r.Stream != stream })
}

// Seen is the events of a stream that readers see.
func (db *DB) Seen(stream string) (all []event.Record) {
	page, err := db.log.Reads.ReadStream(event.StreamRead{Stream: stream, Count: 1 << 20})
	if err != nil {
		return nil
	}
	for i := range page.Events {
		all = append(all, page.Events[i].Record)
	}
	return all
}

// Data is the data of the events of a stream that readers see.
func (db *DB) Data(stream string) (all []string) {
	for _, r := range db.Seen(stream) {
		all = append(all, string(r.Data))
	}
	return all
}

// Lines is the events of a stream that readers see, one a line: number, type, data.
func (db *DB) Lines(stream string) (all []string) {
	for _, r := range db.Seen(stream) {
		all = append(all, fmt.Sprintf("%d %s %s", r.Number, r.Type, r.Data))
	}
	return all
}

// Dump is what readers see of every stream but those of metadata: lines of number, type, data,
// metadata.
func (db *DB) Dump() map[string][]string {
	all := map[string][]string{}
	for _, r := range db.Log() {
		if all[r.Stream] != nil || event.IsMetaStream(r.Stream) {
			continue
		}
		for _, e := range db.Seen(r.Stream) {
			all[r.Stream] = append(all[r.Stream], fmt.Sprintf("%d %s %s %s", e.Number, e.Type, e.Data, e.Metadata))
		}
	}
	return all
}

// Scavenge removes records for good, as a scavenge does. Like one it begins with a scavenge point.
func (db *DB) Scavenge(goes func(*event.Record) bool) {
	gone := map[int64]bool{}
	db.rewrite(func(r *event.Record) {
		if r.Type != event.TypeScavengePoint && goes(r) {
			gone[r.Position] = true
			db.removed = append(db.removed, *r)
		}
	}, eventlog.Rewrite{Keep: func(s *eventlog.Stored) bool { return !gone[s.Position] }})
}

// Redact blanks the data of an event.
func (db *DB) Redact(stream string, number int64) {
	var blank [1]int64
	db.rewrite(func(r *event.Record) {
		if r.Stream == stream && r.Number == number {
			blank[0] = r.Position
		}
	}, eventlog.Rewrite{Redact: blank[:]})
}

// rewrite completes the chunk that is written to, shows all that there is, and rewrites it.
func (db *DB) rewrite(show func(*event.Record), how eventlog.Rewrite) {
	db.Append(event.ScavengePointsStream, event.TypeScavengePoint, "{}", "")
	db.leader.mu.Lock()
	defer db.leader.mu.Unlock()
	for _, r := range db.present() {
		show(&r)
	}
	files, err := db.log.Chunks.List()
	if err != nil {
		db.t.Fatalf("%v", err)
	}
	last := files[len(files)-1]
	if !last.Complete {
		last = files[len(files)-2]
	}
	how.Last, how.IDsFrom = last.Last, last.End
	if _, err := db.log.Chunks.Rewrite(context.Background(), how); err != nil {
		db.t.Fatalf("%v", err)
	}
}
