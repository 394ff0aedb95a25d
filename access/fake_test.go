package access_test

import (
	"context"
	"sync"
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
)

// store is a small event store in memory with the rules that matter here.
type store struct {
	mu     sync.Mutex
	events map[string][]event.Record
	ids    map[event.ID]bool

	readErr  error               // of LastEvent and StreamInfo
	onRead   func(stream string) // called by LastEvent with what it returns already fixed
	writeErr func(*event.Write) error
	writes   []event.Write // those that appended something
	lasts    int           // calls of LastEvent
}

func newStore() *store {
	return &store{events: map[string][]event.Record{}, ids: map[event.ID]bool{}}
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
	info := event.StreamInfo{Last: int64(len(s.events[stream])) - 1, MetaLast: -1}
	if meta := s.events[event.MetaStreamOf(stream)]; len(meta) > 0 {
		info.MetaLast = int64(len(meta)) - 1
		info.Metadata = event.ParseMetadata(meta[len(meta)-1].Data)
	}
	return info
}

func (s *store) LastEvent(_ context.Context, stream string) (event.Record, error) {
	s.mu.Lock()
	s.lasts++
	err := s.readErr
	var r event.Record
	if info := s.info(stream); err == nil && info.Exists() {
		r = s.events[stream][info.Last]
	} else if err == nil {
		err = event.ErrStreamNotFound
	}
	onRead := s.onRead
	s.mu.Unlock()
	if onRead != nil {
		onRead(stream)
	}
	return r, err
}

func (s *store) Write(_ context.Context, w *event.Write) (event.Written, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writeErr != nil {
		if err := s.writeErr(w); err != nil {
			return event.Written{}, err
		}
	}
	info := s.info(w.Stream)
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
	for _, e := range w.Events {
		s.ids[e.ID] = true
		s.append(w.Stream, event.Record{ID: e.ID, Type: e.Type, Flags: e.Flags, Data: e.Data})
	}
	s.writes = append(s.writes, *w)
	return event.Written{First: info.Last + 1, Last: info.Last + int64(len(w.Events))}, nil
}

func (s *store) append(stream string, r event.Record) {
	r.Stream, r.Number = stream, int64(len(s.events[stream]))
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

// softDelete hides what the stream holds.
func (s *store) softDelete(stream string) { s.setMetadata(stream, `{"$tb":9223372036854775807}`) }

// setUser stores a user with a cheap hash.
func (s *store) setUser(t testing.TB, login, password string, disabled bool, groups ...string) {
	t.Helper()
	h := access.NewHasher(access.HasherOptions{Iterations: 1})
	creds, err := h.Hash(context.Background(), password)
	if err != nil {
		t.Fatal(err)
	}
	u := access.User{LoginName: login, FullName: "Full Name", Groups: groups, Disabled: disabled}
	u.SetPassword(creds)
	data, err := access.EncodeUser(&u)
	if err != nil {
		t.Fatal(err)
	}
	s.set(access.UserStream(login), string(data))
}
