package projection_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/run"
)

// memStore is a store in memory, by the rules of the real one.
type memStore struct {
	run.Store // panics if a method is called that is not below
	mu        sync.Mutex
	streams   map[string]*memStream
	moved     chan struct{} // closed when anything is written
	writes    int
	reads     int
	waiting   int

	// What goes wrong, asked without mu. beforeWrite's error keeps a write from
	// happening, afterWrite's comes although it happened.
	beforeWrite, afterWrite hook[*event.Write]
	beforeRead              hook[event.StreamRead]
}

// hook is a function that a test sets while others call it; without one nothing goes wrong.
type hook[A any] struct {
	mu sync.Mutex
	f  func(ctx context.Context, of A) error
}

func (h *hook[A]) set(f func(ctx context.Context, of A) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f = f
}

func (h *hook[A]) call(ctx context.Context, of A) error {
	h.mu.Lock()
	f := h.f
	h.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, of)
}

type memStream struct {
	events  []event.Record // never removed, the index is the number
	deleted bool
	gone    map[int64]bool // scavenged
}

func newStore() *memStore {
	return &memStore{streams: map[string]*memStream{}, moved: make(chan struct{})}
}

func (s *memStore) stream(name string) *memStream {
	if s.streams[name] == nil {
		s.streams[name] = &memStream{}
	}
	return s.streams[name]
}

func (s *memStore) infoLocked(name string) event.StreamInfo {
	i := event.StreamInfo{Last: -1, MetaLast: -1}
	if st := s.streams[name]; st != nil {
		i.Last, i.HardDeleted = int64(len(st.events))-1, st.deleted
	}
	if event.IsMetaStream(name) {
		i.Metadata.MaxCount = 1
		return i
	}
	if meta := s.streams[event.MetaStreamOf(name)]; meta != nil && len(meta.events) > 0 {
		i.MetaLast = int64(len(meta.events)) - 1
		i.Metadata = event.ParseMetadata(meta.events[i.MetaLast].Data)
	}
	return i
}

func (s *memStore) StreamInfo(ctx context.Context, name string) (event.StreamInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.infoLocked(name), nil
}

func (s *memStore) hidden(st *memStream, i *event.StreamInfo, n int64) bool {
	old := i.Metadata.MaxAge > 0 && st.events[n].Time < time.Now().Add(-i.Metadata.MaxAge).UnixNano()
	return n < i.Metadata.MinVisible(i.Last) || st.gone[n] || old
}

func (s *memStore) ReadStream(ctx context.Context, r event.StreamRead) (page event.StreamPage, err error) {
	if err := s.beforeRead.call(ctx, r); err != nil {
		return event.StreamPage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	i := s.infoLocked(r.Stream)
	switch {
	case i.HardDeleted:
		return event.StreamPage{}, event.ErrStreamDeleted
	case !i.Exists():
		return event.StreamPage{}, event.ErrStreamNotFound
	}
	st := s.streams[r.Stream]
	page = event.StreamPage{Stream: r.Stream, From: r.From, Last: i.Last, Min: i.Metadata.MinVisible(i.Last), Metadata: i.Metadata}
	defer func() { page.SetNext(&r) }()
	left := r.MaxPayload
	isBeyond := func(of *event.Record) bool {
		left -= len(of.Data) + len(of.Metadata)
		return left < 0 && r.MaxPayload > 0
	}
	defer func() {
		for i := range page.Events {
			e := &page.Events[i]
			if isBeyond(&e.Record) {
				e.Data, e.Metadata, e.Bare, left = nil, nil, true, 0
			}
			if e.Target != nil && isBeyond(e.Target) {
				target := *e.Target
				target.Data, target.Metadata, target.Bare, left = nil, nil, true, 0
				e.Target = &target
			}
		}
	}()
	add := func(n int64) {
		if n >= 0 && n <= i.Last && !s.hidden(st, &i, n) {
			page.Events = append(page.Events, s.resolveLocked(st.events[n], r.Links != nil))
		}
	}
	if r.Backward {
		if page.From == event.Head {
			page.From = i.Last
		}
		for n := page.From; n > page.From-int64(r.Count); n-- {
			add(n)
		}
		return page, nil
	}
	highest := r.From + int64(r.Count) - 1
	for n := r.From; n <= min(highest, i.Last); n++ {
		add(n)
	}
	page.End = highest >= page.Min && (highest >= i.Last || len(page.Events) == 0 && s.hidden(st, &i, i.Last))
	return page, nil
}

func (s *memStore) ReadPayload(_ context.Context, r *event.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[r.Stream]
	if st.gone[r.Number] {
		return event.ErrEventNotFound
	}
	full := &st.events[r.Number]
	r.Data, r.Metadata, r.Bare = full.Data, full.Metadata, false
	return nil
}

func (s *memStore) resolveLocked(rec event.Record, links bool) event.Resolved {
	r := event.Resolved{Record: rec}
	if !links || rec.Type != event.TypeLink {
		return r
	}
	r.Link = event.LinkDead
	n, stream, ok := event.ParseLink(rec.Data)
	if !ok {
		return r
	}
	r.TargetStream, r.TargetNumber = stream, n
	i := s.infoLocked(stream)
	if i.Exists() && n <= i.Last && !s.hidden(s.streams[stream], &i, n) {
		r.Link, r.Target = event.LinkResolved, &s.streams[stream].events[n]
	}
	return r
}

func (s *memStore) ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.infoLocked(stream)
	switch {
	case i.HardDeleted:
		return event.Resolved{}, event.ErrStreamDeleted
	case !i.Exists():
		return event.Resolved{}, event.ErrStreamNotFound
	}
	if number == event.Head {
		number = i.Last
	}
	if number > i.Last || s.hidden(s.streams[stream], &i, number) {
		return event.Resolved{}, event.ErrEventNotFound
	}
	return s.resolveLocked(s.streams[stream].events[number], links != nil), nil
}

func (s *memStore) WaitStream(ctx context.Context, stream string, after int64) error {
	for {
		s.mu.Lock()
		i, moved := s.infoLocked(stream), s.moved
		if i.Last > after || i.HardDeleted {
			s.mu.Unlock()
			return nil
		}
		s.waiting++
		s.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
		}
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (s *memStore) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	if err := s.beforeWrite.call(ctx, w); err != nil {
		return event.Written{}, err
	}
	s.mu.Lock()
	written, err := s.writeLocked(w)
	s.mu.Unlock()
	if err != nil {
		return event.Written{}, err
	}
	return written, s.afterWrite.call(ctx, w)
}

func (s *memStore) writeLocked(w *event.Write) (event.Written, error) {
	s.writes++
	i := s.infoLocked(w.Stream)
	if i.HardDeleted {
		return event.Written{}, event.ErrStreamDeleted
	}
	wrong := &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: i.Last}
	st := s.stream(w.Stream)
	defer func() {
		close(s.moved)
		s.moved = make(chan struct{})
	}()
	switch w.Kind {
	case event.SoftDelete:
		if i.Last < 0 && i.MetaLast < 0 {
			return event.Written{}, wrong
		}
		s.metaLocked(w.Stream, event.WithTruncateBefore(nil, event.TombstoneNumber))
		return event.Written{First: i.Last, Last: i.Last}, nil
	case event.HardDelete:
		st.deleted = true
		return event.Written{}, nil
	}
	soft := i.Metadata.SoftDeleted()
	if e := w.ExpectedVersion; e != event.AnyVersion && e != i.Last && !(e == event.NoStream && soft) {
		return event.Written{}, wrong
	}
	if w.ExpectedVersion == event.AnyVersion {
		first := slices.IndexFunc(st.events, func(r event.Record) bool { return r.ID == w.Events[0].ID })
		if first >= 0 {
			return event.Written{First: int64(first), Last: int64(first + len(w.Events) - 1), Idempotent: true}, nil
		}
	}
	if soft {
		meta := s.streams[event.MetaStreamOf(w.Stream)].events
		s.metaLocked(w.Stream, event.WithTruncateBefore(meta[len(meta)-1].Data, i.Last+1))
	}
	first := int64(len(st.events))
	for k := range w.Events {
		s.addLocked(w.Stream, w.Events[k])
	}
	if of := event.OriginalOf(w.Stream); event.IsMetaStream(w.Stream) {
		was := event.Metadata{}
		if first > 0 {
			was = event.ParseMetadata(st.events[first-1].Data)
		}
		posted := w.Events[len(w.Events)-1].Data
		if m := event.ParseMetadata(posted); was.SoftDeleted() && !m.SoftDeleted() {
			s.metaLocked(of, event.WithTruncateBefore(posted, int64(len(s.stream(of).events))))
		}
	}
	return event.Written{First: first, Last: first + int64(len(w.Events)) - 1}, nil
}

func (s *memStore) metaLocked(stream string, data []byte) {
	s.addLocked(event.MetaStreamOf(stream), event.Proposed{ID: event.ID(uuid.New()), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: data})
}

func (s *memStore) addLocked(stream string, p event.Proposed) {
	st := s.stream(stream)
	st.events = append(st.events, event.Record{
		Stream: stream, Number: int64(len(st.events)), ID: p.ID, Type: p.Type, Time: time.Now().UnixNano(), Flags: p.Flags,
		Data: p.Data, Metadata: p.Metadata,
	})
}

func (s *memStore) put(w event.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.writeLocked(&w); err != nil {
		panic(err)
	}
}

// all returns all events of a stream, those that are hidden too.
func (s *memStore) all(stream string) []event.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[stream] == nil {
		return nil
	}
	return slices.Clone(s.streams[stream].events)
}

var errInjected = fmt.Errorf("injected: %w", event.ErrOutcomeUnknown)
