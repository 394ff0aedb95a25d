package access_test

import (
	"context"
	"sync"
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// now is the time of every event.
const now = 1_600_000_000_123_456_789

// store is a small event store in memory with the rules that matter here.
type store struct {
	mu     sync.Mutex
	events map[string][]event.Record
	ids    map[event.ID]bool
	gone   map[string]bool // deleted for good

	readErr  error               // of LastEvent and StreamInfo
	onRead   func(stream string) // called by LastEvent with what it returns already fixed
	writeErr func(*event.Write) error
	writes   []event.Write // those that appended something
	lasts    int           // calls of LastEvent
	pages    int           // calls of ReadStream
}

func newStore() *store {
	return &store{events: map[string][]event.Record{}, ids: map[event.ID]bool{}, gone: map[string]bool{}}
}

func (s *store) StreamInfo(_ context.Context, stream string) (event.StreamInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readErr != nil {
		return event.StreamInfo{}, s.readErr
	}
	return s.info(stream), nil
}

func (s *store) info(stream string) event.StreamInfo {
	info := event.StreamInfo{Last: int64(len(s.events[stream])) - 1, MetaLast: -1, HardDeleted: s.gone[stream]}
	if meta := s.events[event.MetaStreamOf(stream)]; len(meta) > 0 {
		info.MetaLast = int64(len(meta)) - 1
		info.Metadata = event.ParseMetadata(meta[len(meta)-1].Data)
	}
	return info
}

func (s *store) LastEvent(ctx context.Context, stream string) (event.Record, error) {
	s.mu.Lock()
	s.lasts++
	err := s.readErr
	var r event.Record
	if info := s.info(stream); err == nil {
		if err = exists(&info); err == nil {
			if info.Last < info.Metadata.MinVisible(info.Last) {
				err = event.ErrEventNotFound
			} else {
				r = s.events[stream][info.Last]
			}
		}
	}
	onRead := s.onRead
	s.mu.Unlock()
	if onRead != nil {
		onRead(stream)
	}
	if err == nil {
		err = ctx.Err()
	}
	return r, err
}

func exists(info *event.StreamInfo) error {
	switch {
	case info.HardDeleted:
		return event.ErrStreamDeleted
	case !info.Exists():
		return event.ErrStreamNotFound
	}
	return nil
}

func (s *store) ReadStream(_ context.Context, r event.StreamRead) (page event.StreamPage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages++
	if s.readErr != nil {
		return page, s.readErr
	}
	info := s.info(r.Stream)
	if err := exists(&info); err != nil {
		return page, err
	}
	page = event.StreamPage{Stream: r.Stream, From: r.From, Last: info.Last, Min: info.Metadata.MinVisible(info.Last), Metadata: info.Metadata}
	defer func() { page.SetNext(&r) }()
	step, n := int64(1), r.From
	if r.Backward {
		step = -1
		if r.From == event.Head {
			page.From = info.Last
		}
		n = page.From
	}
	for range r.Count {
		if n >= page.Min && n <= page.Last {
			page.Events = append(page.Events, event.Resolved{Record: s.events[r.Stream][n]})
		}
		n += step
	}
	page.End = !r.Backward && n > page.Last || r.Backward && n < page.Min
	return page, nil
}

// Write follows the rules of the database, except that ids are remembered across streams.
func (s *store) Write(_ context.Context, w *event.Write) (event.Written, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		if err := s.writeErr(w); err != nil {
			return event.Written{}, err
		}
	}
	return s.write(w)
}

// write is Write with the lock held.
func (s *store) write(w *event.Write) (event.Written, error) {
	info := s.info(w.Stream)
	if info.HardDeleted {
		return event.Written{}, event.ErrStreamDeleted
	}
	for _, e := range w.Events {
		if s.ids[e.ID] {
			return event.Written{Idempotent: true}, nil
		}
	}
	holds := w.ExpectedVersion == event.AnyVersion || w.ExpectedVersion == info.Last ||
		w.ExpectedVersion == event.NoStream && info.Metadata.SoftDeleted()
	if !holds {
		return event.Written{}, &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: info.Last}
	}
	s.writes = append(s.writes, *w)
	meta := event.MetaStreamOf(w.Stream)
	if w.Kind == event.SoftDelete {
		s.append(meta, event.Record{Type: event.TypeMetadata, Data: event.WithTruncateBefore(nil, event.TombstoneNumber)})
		return event.Written{First: info.Last, Last: info.Last}, nil
	}
	for _, e := range w.Events {
		s.ids[e.ID] = true
		s.append(w.Stream, event.Record{ID: e.ID, Type: e.Type, Flags: e.Flags, Data: e.Data})
	}
	if info.Metadata.SoftDeleted() {
		s.append(meta, event.Record{Type: event.TypeMetadata, Data: event.WithTruncateBefore(nil, info.Last+1)})
	}
	return event.Written{First: info.Last + 1, Last: info.Last + int64(len(w.Events))}, nil
}

func (s *store) append(stream string, r event.Record) {
	r.Stream, r.Number, r.Time = stream, int64(len(s.events[stream])), now
	s.events[stream] = append(s.events[stream], r)
}

// set appends an event with the given data.
func (s *store) set(stream, data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(stream, event.Record{Data: []byte(data)})
}

// setMetadata appends to the stream's metadata stream.
func (s *store) setMetadata(stream, data string) { s.set(event.MetaStreamOf(stream), data) }

// hardDelete deletes for good.
func (s *store) hardDelete(stream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[stream] = true
}

// softDelete hides what the stream holds.
func (s *store) softDelete(stream string) { s.setMetadata(stream, `{"$tb":9223372036854775807}`) }

// setUser stores a user with a cheap hash.
func (s *store) setUser(t testing.TB, login, password string, disabled bool, groups ...string) {
	t.Helper()
	h := access.NewHasher(access.HasherOptions{Iterations: 1})
	creds := check.Value(h.Hash(context.Background(), login, password)).Must(t)
	u := access.User{LoginName: login, FullName: "Full Name", Groups: groups, Disabled: disabled}
	u.SetPassword(creds)
	data := check.Value(access.EncodeUser(&u)).Must(t)
	s.set(access.UserStream(login), string(data))
}
