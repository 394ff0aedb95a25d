package run

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// memStore is a store in memory, by the rules of the real one.
type memStore struct {
	mu      sync.Mutex
	streams map[string]*memStream
	records []event.Record // by position
	moved   chan struct{}  // closed when anything is written
	writes  int
	reads   int
	fixed   bool // ids of what clients write are made of stream and number

	// fault says what becomes of a write, called with mu held: before keeps it from being
	// done, after comes although it was done.
	fault func(n int, w *event.Write) (before, after error)
	// readFault keeps a read from being done.
	readFault func(stream string) error
}

type memStream struct {
	events  []event.Record // never removed, the index is the number
	deleted bool
	gone    map[int64]bool // scavenged, or too old
}

func newStore() *memStore {
	return &memStore{streams: map[string]*memStream{}, moved: make(chan struct{})}
}

func (s *memStore) stream(name string) *memStream {
	if s.streams[name] == nil {
		s.streams[name] = &memStream{gone: map[int64]bool{}}
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
	return s.infoLocked(name), s.readErrLocked(name)
}

func (s *memStore) readErrLocked(name string) error {
	s.reads++
	if s.readFault == nil {
		return nil
	}
	return s.readFault(name)
}

func (s *memStore) hidden(st *memStream, i *event.StreamInfo, n int64) bool {
	return n < i.Metadata.MinVisible(i.Last) || st.gone[n]
}

func visible(i *event.StreamInfo) error {
	switch {
	case i.HardDeleted:
		return event.ErrStreamDeleted
	case !i.Exists():
		return event.ErrStreamNotFound
	}
	return nil
}

func (s *memStore) ReadStream(ctx context.Context, r event.StreamRead) (page event.StreamPage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readErrLocked(r.Stream); err != nil {
		return page, err
	}
	i := s.infoLocked(r.Stream)
	if err := visible(&i); err != nil {
		return page, err
	}
	st := s.streams[r.Stream]
	page = event.StreamPage{Stream: r.Stream, From: r.From, Last: i.Last, Min: i.Metadata.MinVisible(i.Last), Metadata: i.Metadata}
	defer func() { page.SetNext(&r) }()
	left := r.MaxPayload
	add := func(n int64) {
		if n < 0 || n > i.Last || s.hidden(st, &i, n) {
			return
		}
		e := st.events[n]
		if left -= len(e.Data) + len(e.Metadata); left < 0 && r.MaxPayload > 0 {
			e.Data, e.Metadata, e.Bare, left = nil, nil, true, 0
		}
		res := event.Resolved{Record: e}
		if r.Links != nil {
			res = s.resolveLocked(&e)
		}
		page.Events = append(page.Events, res)
	}
	if r.Backward {
		if page.From == event.Head {
			page.From = i.Last
		}
		lowest := page.From - int64(r.Count) + 1
		for n := page.From; n >= lowest; n-- {
			add(n)
		}
		k := len(page.Events)
		isGone := lowest <= page.Last && (k == 0 || page.Events[k-1].Number != lowest)
		page.End = lowest <= page.Min || page.From < page.Min || isGone
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

func (s *memStore) ReadEvent(ctx context.Context, stream string, number int64, _ event.LinkReader) (event.Resolved, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readErrLocked(stream); err != nil {
		return event.Resolved{}, err
	}
	i := s.infoLocked(stream)
	if err := visible(&i); err != nil {
		return event.Resolved{}, err
	}
	st := s.streams[stream]
	if number == event.Head {
		for number = i.Last; number >= 0 && st.gone[number]; number-- {
		}
	}
	if number < 0 || number > i.Last || s.hidden(st, &i, number) {
		return event.Resolved{}, event.ErrEventNotFound
	}
	return event.Resolved{Record: st.events[number]}, nil
}

func (s *memStore) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var before, after error
	if s.fault != nil {
		before, after = s.fault(s.writes, w)
	}
	s.writes++
	if before != nil {
		return event.Written{}, before
	}
	written, err := s.writeLocked(w)
	if err == nil {
		err = after
	}
	return written, err
}

func (s *memStore) writeLocked(w *event.Write) (done event.Written, err error) {
	i := s.infoLocked(w.Stream)
	if i.HardDeleted {
		return done, event.ErrStreamDeleted
	}
	wrong := &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: i.Last}
	st := s.stream(w.Stream)
	switch w.Kind {
	case event.SoftDelete:
		if i.Last < 0 && i.MetaLast < 0 {
			return done, wrong
		}
		if !i.Metadata.SoftDeleted() {
			s.metaLocked(w.Stream, event.WithTruncateBefore(nil, event.TombstoneNumber))
		}
		return event.Written{First: i.Last, Last: i.Last}, nil
	case event.HardDelete:
		s.addLocked(w.Stream, event.Proposed{ID: event.ID(uuid.New()), Type: event.TypeStreamDeleted, Flags: event.FlagDeleted})
		return done, nil
	}
	soft := i.Metadata.SoftDeleted()
	switch expected := w.ExpectedVersion; {
	case expected == event.AnyVersion:
		first := slices.IndexFunc(st.events, func(r event.Record) bool { return r.ID == w.Events[0].ID })
		if first >= 0 {
			return event.Written{First: int64(first), Last: int64(first + len(w.Events) - 1), Idempotent: true}, nil
		}
	case expected < event.NoStream || expected > i.Last:
		return done, wrong
	case expected < i.Last:
		for k := range w.Events {
			n := expected + 1 + int64(k)
			if n <= i.Last && st.events[n].ID == w.Events[k].ID {
				continue
			}
			if k > 0 || expected != event.NoStream || !soft {
				return done, wrong
			}
			break
		}
		if !soft || expected != event.NoStream || st.events[0].ID == w.Events[0].ID {
			return event.Written{First: expected + 1, Last: expected + int64(len(w.Events)), Idempotent: true}, nil
		}
	}
	if soft {
		meta := s.streams[event.MetaStreamOf(w.Stream)].events
		s.metaLocked(w.Stream, event.WithTruncateBefore(meta[len(meta)-1].Data, i.Last+1))
	}
	done = event.Written{First: i.Last + 1, Last: i.Last + int64(len(w.Events))}
	of := event.OriginalOf(w.Stream)
	was := event.Metadata{}
	if event.IsMetaStream(w.Stream) {
		was = s.infoLocked(of).Metadata
	}
	for k := range w.Events {
		s.addLocked(w.Stream, w.Events[k])
	}
	if event.IsMetaStream(w.Stream) {
		posted := w.Events[len(w.Events)-1].Data
		if m := event.ParseMetadata(posted); was.SoftDeleted() && !m.SoftDeleted() {
			s.metaLocked(of, event.WithTruncateBefore(posted, int64(len(s.stream(of).events))))
		}
	}
	return done, nil
}

func (s *memStore) metaLocked(stream string, data []byte) {
	s.addLocked(event.MetaStreamOf(stream), event.Proposed{ID: event.ID(uuid.New()), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: data})
}

func (s *memStore) addLocked(stream string, p event.Proposed) {
	st := s.stream(stream)
	at := s.endLocked()
	r := event.Record{Position: at, Next: at + int64(20+len(stream)+len(p.Type)+len(p.Data)+len(p.Metadata)),
		Stream: stream, Number: int64(len(st.events)), ID: p.ID, Type: p.Type, Flags: p.Flags, Data: slices.Clone(p.Data), Metadata: slices.Clone(p.Metadata)}
	if p.Flags&event.FlagDeleted != 0 {
		st.deleted = true
		r.Number = event.TombstoneNumber
	} else {
		st.events = append(st.events, r)
	}
	s.records = append(s.records, r)
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *memStore) endLocked() int64 {
	if n := len(s.records); n > 0 {
		return s.records[n-1].Next
	}
	return 0
}

func (s *memStore) LogEnd() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endLocked()
}

func (s *memStore) resolveLocked(r *event.Record) event.Resolved {
	res := event.Resolved{Record: *r}
	number, stream, ok := event.ParseLink(r.Data)
	if r.Type != event.TypeLink || !ok {
		return res
	}
	res.Link, res.TargetStream, res.TargetNumber = event.LinkDead, stream, number
	i := s.infoLocked(stream)
	if i.Exists() && number <= i.Last && !s.hidden(s.streams[stream], &i, number) {
		target := s.streams[stream].events[number]
		res.Link, res.Target = event.LinkResolved, &target
	}
	return res
}

func (s *memStore) ReadAll(_ context.Context, r event.AllRead) (page event.AllPage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readErrLocked(event.AllStream); err != nil {
		return page, err
	}
	page = event.AllPage{From: r.From, Next: r.From, Last: -1, LogEnd: s.endLocked()}
	first, _ := slices.BinarySearchFunc(s.records, r.From, func(e event.Record, at int64) int { return int(e.Position - at) })
	looked := 0
	for _, e := range s.records[first:] {
		if len(page.Events) == r.Count || r.MaxScan > 0 && looked == r.MaxScan {
			page.More = true
			return page, nil
		}
		isChosen, err := r.Chooses(e.Stream, e.Type)
		if err != nil {
			page.Failed, page.More = err, true
			return page, nil
		}
		looked++
		page.Last, page.Next = e.Position, e.Next
		if isChosen {
			page.Events = append(page.Events, event.Resolved{Record: e})
		}
	}
	page.Next = max(page.LogEnd, r.From)
	return page, nil
}

// wait waits until holds, which is called with mu held.
func (s *memStore) wait(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		ok, moved := holds(), s.moved
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *memStore) WaitLog(ctx context.Context, position int64) error {
	return s.wait(ctx, func() bool { return s.endLocked() > position })
}

func (s *memStore) WaitStreams(ctx context.Context, streams []string, after []int64) error {
	return s.wait(ctx, func() bool {
		for i, name := range streams {
			if info := s.infoLocked(name); info.Last > after[i] || info.HardDeleted {
				return true
			}
		}
		return false
	})
}

func (s *memStore) put(w event.Write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.writeLocked(&w); err != nil {
		panic(err)
	}
}

func (s *memStore) setMetadata(stream, document string) {
	s.put(event.Write{Stream: event.MetaStreamOf(stream), ExpectedVersion: event.AnyVersion,
		Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: []byte(document)}}})
}

func (s *memStore) append(stream, eventType, data, metadata string) {
	id := event.ID(uuid.New())
	if s.fixed {
		id = event.ID(uuid.NewSHA1(uuid.Nil, fmt.Append(nil, stream, s.last(stream))))
	}
	s.put(event.Write{Stream: stream, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{
		{ID: id, Type: eventType, Flags: event.FlagJSON, Data: []byte(data), Metadata: []byte(metadata)}}})
}

func (s *memStore) seen(stream string) (all []event.Record) {
	page, err := s.ReadStream(context.Background(), event.StreamRead{Stream: stream, Count: 1 << 20})
	if err != nil {
		return nil
	}
	for _, e := range page.Events {
		all = append(all, e.Record)
	}
	return all
}

// all returns what readers see of every stream but those of metadata.
func (s *memStore) all() map[string][]string {
	s.mu.Lock()
	names := make([]string, 0, len(s.streams))
	for name := range s.streams {
		if !event.IsMetaStream(name) {
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	all := map[string][]string{}
	for _, name := range names {
		for _, e := range s.seen(name) {
			all[name] = append(all[name], fmt.Sprintf("%d %s %s %s", e.Number, e.Type, e.Data, e.Metadata))
		}
	}
	return all
}
