package httpapi_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// memStore is a whole store in memory: small, slow and by the rules.
type memStore struct {
	api.Store
	mu      sync.Mutex
	now     int64 // time of the next record
	log     []event.Record
	streams map[string][]int   // places in the log
	moved   chan struct{}      // closed when the log grows
	waiting int                // long polls that wait
	idle    *sync.Cond         // signaled when waiting changes
	fail    error              // what every call returns, when set
	block   bool               // every call waits for its context
	gone    map[event.ID]error // payloads that were removed after their page was read
	alone   int                // payloads that were read alone
}

// recordSize is the distance of positions.
const recordSize = 100

func newStore() *memStore {
	s := &memStore{
		now:     time.Date(2024, 2, 3, 10, 11, 12, 345678900, time.UTC).UnixNano(),
		streams: map[string][]int{},
		moved:   make(chan struct{}),
	}
	s.idle = sync.NewCond(&s.mu)
	return s
}

func (s *memStore) enter(ctx context.Context) error {
	s.mu.Lock()
	fail, block := s.fail, s.block
	s.mu.Unlock()
	if block {
		<-ctx.Done()
		return ctx.Err()
	}
	return fail
}

func (s *memStore) set(fail error, block bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.block = fail, block
}

func (s *memStore) append(stream string, number int64, p event.Proposed) {
	at := int64(len(s.log)) * recordSize
	s.log = append(s.log, event.Record{
		Position: at, Next: at + recordSize, Stream: stream, Number: number, ID: p.ID, Type: p.Type,
		Time: s.now, Flags: p.Flags, Data: slices.Clone(p.Data), Metadata: slices.Clone(p.Metadata),
	})
	s.now += int64(time.Second)
	s.streams[stream] = append(s.streams[stream], len(s.log)-1)
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *memStore) last(stream string) int64 {
	places := s.streams[stream]
	if len(places) == 0 {
		return -1
	}
	if r := &s.log[places[len(places)-1]]; r.Number != event.TombstoneNumber {
		return r.Number
	}
	return int64(len(places)) - 2
}

func (s *memStore) hardDeleted(stream string) bool {
	if event.IsMetaStream(stream) {
		stream = event.OriginalOf(stream)
	}
	places := s.streams[stream]
	return len(places) > 0 && s.log[places[len(places)-1]].Number == event.TombstoneNumber
}

func (s *memStore) metadata(stream string) event.Metadata {
	if event.IsMetaStream(stream) {
		return event.Metadata{Retention: event.Retention{MaxCount: 1}}
	}
	places := s.streams[event.MetaStreamOf(stream)]
	if len(places) == 0 {
		return event.Metadata{}
	}
	return event.ParseMetadata(s.log[places[len(places)-1]].Data)
}

func (s *memStore) info(stream string) event.StreamInfo {
	return event.StreamInfo{
		Last: s.last(stream), HardDeleted: s.hardDeleted(stream),
		MetaLast: s.last(event.MetaStreamOf(stream)), Metadata: s.metadata(stream),
	}
}

func (s *memStore) PositionAt(ctx context.Context, time int64) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.log {
		if s.log[i].Time >= time {
			return s.log[i].Position, nil
		}
	}
	return s.end(), nil
}

// Names knows the streams of the log, without deleted ones, as if there were one page.
func (s *memStore) Names(ctx context.Context, r event.NamesRead) (page event.NamesPage, err error) {
	if err := s.enter(ctx); err != nil {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for i := range s.log {
		if name := s.log[i].Stream; strings.HasPrefix(name, r.Prefix) && !event.IsMetaStream(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Reverse(names)
	if !r.Created {
		slices.Sort(names)
	}
	if at := slices.Index(names, r.After); at >= 0 {
		names = names[at+1:]
	}
	for i, name := range names {
		if i == r.Count {
			page.Next = names[i-1]
			break
		}
		info := s.info(name)
		page.Streams = append(page.Streams, event.NamedStream{Name: name, Last: info.Last, HardDeleted: info.HardDeleted, SoftDeleted: info.Metadata.SoftDeleted()})
	}
	return page, nil
}

func (s *memStore) StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error) {
	if err := s.enter(ctx); err != nil {
		return event.StreamInfo{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info(stream), nil
}

func (s *memStore) LogEnd() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end()
}

func (s *memStore) end() int64 { return int64(len(s.log)) * recordSize }

func (s *memStore) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	if err := s.enter(ctx); err != nil {
		return event.Written{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hardDeleted(w.Stream) {
		if w.Late && event.IsMetaStream(w.Stream) {
			return s.appendLate(w)
		}
		return event.Written{}, event.ErrStreamDeleted
	}
	info := s.info(w.Stream)
	soft := info.Metadata.SoftDeleted() && info.MetaLast >= 0
	if w.ExpectedVersion == event.StreamExists && soft {
		return event.Written{}, event.ErrStreamDeleted
	}
	if done, err := s.decide(w, &info, soft); done != nil || err != nil {
		return *done, err
	}
	first := info.Last + 1
	switch w.Kind {
	case event.SoftDelete:
		s.append(event.MetaStreamOf(w.Stream), info.MetaLast+1, event.Proposed{
			Type: event.TypeMetadata, Flags: event.FlagJSON, Data: []byte(`{"$tb":9223372036854775807}`),
		})
		return event.Written{First: first, Last: first}, nil
	case event.HardDelete:
		s.append(w.Stream, event.TombstoneNumber, event.Proposed{Type: event.TypeStreamDeleted})
		return event.Written{First: first, Last: first}, nil
	}
	if soft {
		s.append(event.MetaStreamOf(w.Stream), info.MetaLast+1, event.Proposed{
			Type: event.TypeMetadata, Flags: event.FlagJSON, Data: event.WithTruncateBefore(nil, first),
		})
	}
	if original := event.OriginalOf(w.Stream); event.IsMetaStream(w.Stream) {
		of := s.info(original)
		for i := range w.Events {
			m := event.ParseMetadata(w.Events[i].Data)
			if of.Metadata.SoftDeleted() && !m.SoftDeleted() {
				w.Events[i].Data = event.WithTruncateBefore(w.Events[i].Data, of.Last+1)
			}
		}
	}
	for i, e := range w.Events {
		s.append(w.Stream, first+int64(i), e)
	}
	return event.Written{First: first, Last: first + int64(len(w.Events)) - 1}, nil
}

// appendLate adds metadata after a tombstone.
func (s *memStore) appendLate(w *event.Write) (done event.Written, err error) {
	if w.ExpectedVersion == -3 {
		return done, &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: -1}
	}
	for _, place := range s.streams[w.Stream] {
		if e := &s.log[place]; e.ID == w.Events[0].ID {
			return event.Written{First: e.Number, Last: e.Number, Idempotent: true}, nil
		}
	}
	done.First = s.end()
	for _, e := range w.Events {
		done.Last = s.end()
		s.append(w.Stream, done.Last, e)
	}
	return done, nil
}

// decide is the decision of the contract's section 13: an answer, or nil when the write is to be
// done.
func (s *memStore) decide(w *event.Write, info *event.StreamInfo, soft bool) (*event.Written, error) {
	current := info.Last
	wrong := &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: current}
	none := &event.Written{}
	idAt := map[event.ID]int64{}
	for _, place := range s.streams[w.Stream] {
		idAt[s.log[place].ID] = s.log[place].Number
	}
	if w.Kind != event.Append {
		exists := current >= 0 || info.MetaLast >= 0
		switch v := w.ExpectedVersion; {
		case w.Kind == event.SoftDelete && !exists, v >= 0 && v != current, v == -3, v == event.NoStream && current >= 0 && !soft:
			return none, wrong
		}
		return nil, nil
	}
	switch v := w.ExpectedVersion; {
	case v == -3, v == event.StreamExists && current < 0 && info.MetaLast < 0, v > current:
		return none, wrong
	case v == event.AnyVersion, v == event.StreamExists:
		first, ok := idAt[w.Events[0].ID]
		if !ok {
			return nil, nil
		}
		for _, e := range w.Events {
			if _, ok := idAt[e.ID]; !ok {
				return none, wrong
			}
		}
		return &event.Written{First: first, Last: first + int64(len(w.Events)) - 1, Idempotent: true}, nil
	case v == current:
		return nil, nil
	default:
		for i, e := range w.Events {
			at, ok := idAt[e.ID]
			if ok && at == v+1+int64(i) {
				continue
			}
			if i == 0 && v == event.NoStream && soft {
				return nil, nil
			}
			return none, wrong
		}
		return &event.Written{First: v + 1, Last: v + int64(len(w.Events)), Idempotent: true}, nil
	}
}

// visible returns the event with a number, as far as reads may see it.
func (s *memStore) visible(stream string, number int64) *event.Record {
	for _, place := range s.streams[stream] {
		r := &s.log[place]
		if r.Number != number {
			continue
		}
		m := s.metadata(stream)
		if number < m.MinVisible(s.last(stream)) || m.MaxAge > 0 && s.now-r.Time > int64(m.MaxAge) {
			return nil
		}
		return r
	}
	return nil
}

func (s *memStore) resolve(r *event.Record, links event.LinkReader) event.Resolved {
	e := event.Resolved{Record: *r}
	if links == nil || r.Type != event.TypeLink {
		return e
	}
	n, stream, ok := event.ParseLink(r.Data)
	if !ok {
		return e
	}
	e.Link, e.TargetNumber, e.TargetStream = event.LinkDead, n, stream
	info := s.info(stream)
	if may, err := links.MayRead(stream, &info); err != nil || !may {
		return e
	}
	if target := s.visible(stream, n); target != nil && info.Exists() {
		e.Link, e.Target = event.LinkResolved, target
	}
	return e
}

func (s *memStore) readable(stream string) (event.StreamInfo, error) {
	info := s.info(stream)
	switch {
	case info.HardDeleted:
		return info, event.ErrStreamDeleted
	case !info.Exists():
		return info, event.ErrStreamNotFound
	}
	return info, nil
}

func (s *memStore) ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error) {
	if err := s.enter(ctx); err != nil {
		return event.Resolved{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := s.readable(stream)
	if err != nil {
		return event.Resolved{}, err
	}
	if number == event.Head {
		number = info.Last
	}
	r := s.visible(stream, number)
	if r == nil {
		return event.Resolved{}, event.ErrEventNotFound
	}
	return s.resolve(r, links), nil
}

func (s *memStore) ReadEventUpTo(ctx context.Context, stream string, number int64, maxPayload int, links event.LinkReader) (event.Resolved, error) {
	e, err := s.ReadEvent(ctx, stream, number, links)
	if e.PayloadBytes() > maxPayload {
		e.Strip()
	}
	return e, err
}

func (s *memStore) ReadStream(ctx context.Context, q event.StreamRead) (event.StreamPage, error) {
	if err := s.enter(ctx); err != nil {
		return event.StreamPage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := s.readable(q.Stream)
	if err != nil {
		return event.StreamPage{}, err
	}
	p := event.StreamPage{
		Stream: q.Stream, From: q.From, Last: info.Last, Metadata: info.Metadata, Min: info.Metadata.MinVisible(info.Last),
	}
	count := q.Span()
	if q.Backward {
		if q.From == event.Head {
			p.From = info.Last
		}
		for n := min(p.From, p.Last); n >= 0 && n > p.From-count && len(p.Events) < q.Count; n-- {
			if r := s.visible(q.Stream, n); r != nil {
				p.Events = append(p.Events, s.resolve(r, q.Links))
			}
		}
		low := p.From - count + 1
		if n := len(p.Events); n == q.Count {
			low = p.Events[n-1].Number
		}
		s.bare(p.Events, q.MaxPayload)
		p.End = low <= p.Min || p.From < p.Min || low <= p.Last && q.MaxScan == 0 && s.visible(q.Stream, low) == nil
		p.SetNext(&q)
		return p, nil
	}
	for n := q.From; n <= p.Last && n-q.From < count && len(p.Events) < q.Count; n++ {
		if r := s.visible(q.Stream, n); r != nil {
			p.Events = append(p.Events, s.resolve(r, q.Links))
		}
	}
	s.bare(p.Events, q.MaxPayload)
	if n := len(p.Events); n == q.Count {
		count = p.Events[n-1].Number - q.From + 1
	}
	p.End = q.From > p.Last-count
	if !p.End {
		alive := false
		for n := q.From; n <= p.Last; n++ {
			alive = alive || s.visible(q.Stream, n) != nil
		}
		p.End = !alive
	}
	if q.From < p.Min && count < p.Min-q.From+1 {
		p.End = false
	}
	p.SetNext(&q)
	return p, nil
}

// bare takes away the payloads of a page beyond a bound.
func (s *memStore) bare(events []event.Resolved, bound int) {
	if bound <= 0 {
		return
	}
	take := func(r *event.Record) {
		if bound -= len(r.Data) + len(r.Metadata); bound < 0 {
			r.Strip()
			bound = 0
		}
	}
	for i := range events {
		take(&events[i].Record)
		if events[i].Target != nil {
			target := *events[i].Target
			take(&target)
			events[i].Target = &target
		}
	}
}

func (s *memStore) ReadPayload(_ context.Context, r *event.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alone++
	at := r.Position / recordSize
	if err := s.gone[r.ID]; err != nil {
		return err
	}
	if at >= int64(len(s.log)) {
		return event.ErrEventNotFound
	}
	r.Data, r.Metadata, r.Bare, r.LeftOut = s.log[at].Data, s.log[at].Metadata, false, 0
	return nil
}

func (s *memStore) ReadAll(ctx context.Context, q event.AllRead) (event.AllPage, error) {
	if err := s.enter(ctx); err != nil {
		return event.AllPage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.From == event.End || q.Backward && q.From > s.end() {
		q.From = s.end()
	}
	if q.From%recordSize != 0 {
		return event.AllPage{}, event.ErrBadPosition
	}
	p := event.AllPage{From: q.From, Next: q.From, Last: -1, LogEnd: s.end()}
	step, at := 1, int(q.From/recordSize)
	if q.Backward {
		step, at = -1, at-1
	}
	scanned := 0
	for ; at >= 0 && at < len(s.log) && len(p.Events) < q.Count; at += step {
		if q.MaxScan > 0 && scanned == q.MaxScan {
			break
		}
		r := &s.log[at]
		if q.After && r.Position == q.From {
			p.Next = r.Next
			continue
		}
		isChosen, err := q.Chooses(r.Stream, r.Type)
		if p.Failed = err; err != nil {
			break
		}
		scanned++
		p.Next, p.Last = r.Next, r.Position
		if q.Backward {
			p.Next = r.Position
		}
		if isChosen {
			p.Events = append(p.Events, s.resolve(r, q.Links))
		}
	}
	s.bare(p.Events, q.MaxPayload)
	p.More = at >= 0 && at < len(s.log)
	return p, nil
}

func (s *memStore) WaitStream(ctx context.Context, stream string, after int64) error {
	return s.wait(ctx, func() bool { return s.last(stream) > after || s.hardDeleted(stream) })
}

func (s *memStore) WaitLog(ctx context.Context, position int64) error {
	return s.wait(ctx, func() bool { return s.end() > position })
}

func (s *memStore) wait(ctx context.Context, done func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !done() {
		moved := s.moved
		s.waiting++
		s.idle.Broadcast()
		s.mu.Unlock()
		var err error
		select {
		case <-moved:
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		s.waiting--
		s.idle.Broadcast()
		if err != nil {
			return err
		}
	}
	return nil
}

// awaitWaiting returns when so many long polls wait.
func (s *memStore) awaitWaiting(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting != n {
		s.idle.Wait()
	}
}
