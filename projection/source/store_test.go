package source_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
)

// errIdle is what a store that does not wait answers instead.
var errIdle = errors.New("nothing more now")

// memStore is a store in memory, by the rules of the real one. It belongs to one goroutine.
type memStore struct {
	records   []event.Record // by position
	gone      map[int64]bool // positions that a scavenge removed
	isMapped  bool           // any position may be read from, as in a scavenged chunk
	end       int64
	starts    map[int64]bool // where reading may begin
	streams   map[string][]int
	deleted   map[string]bool
	meta      map[string]event.Metadata
	ids       uint64
	writes    int
	failRead  error // of the next read
	failWrite error // of the next write
	lateFail  error // the next write is done and fails all the same
	reads     int
	payloads  int
	commit    int64 // when above 0: the log shows a commit from here on, and not all streams do yet
	wait      func(ctx context.Context) error
}

func newStore() *memStore {
	return &memStore{gone: map[int64]bool{}, starts: map[int64]bool{0: true}, streams: map[string][]int{},
		deleted: map[string]bool{}, meta: map[string]event.Metadata{}, wait: func(context.Context) error { return errIdle }}
}

func (s *memStore) fail() (err error) {
	err, s.failRead = s.failRead, nil
	return err
}

// add appends a record; a frame's trailer follows.
func (s *memStore) add(stream, eventType string, flags event.Flags, data, metadata string) *event.Record {
	number := int64(len(s.streams[stream]))
	if flags&event.FlagDeleted != 0 {
		number = event.TombstoneNumber
		s.deleted[stream] = true
	}
	s.ids++
	r := event.Record{Position: s.end, Stream: stream, Number: number, Type: eventType, Flags: flags, Data: []byte(data), Metadata: []byte(metadata)}
	r.ID[0], r.ID[1], r.ID[2] = byte(s.ids), byte(s.ids>>8), byte(s.ids>>16)
	r.Next = r.Position + int64(20+len(stream)+len(eventType)+len(data)+len(metadata))
	s.end = r.Next + 9
	s.starts[r.Position], s.starts[r.Next], s.starts[s.end] = true, true, true
	if number != event.TombstoneNumber {
		s.streams[stream] = append(s.streams[stream], len(s.records))
	}
	s.records = append(s.records, r)
	if event.IsMetaStream(stream) {
		s.meta[event.OriginalOf(stream)] = event.ParseMetadata(r.Data)
	}
	return &s.records[len(s.records)-1]
}

func (s *memStore) setMeta(stream, document string) {
	s.add(event.MetaStreamOf(stream), event.TypeMetadata, event.FlagJSON, document, "")
}

// append is what a client does: it brings a soft-deleted stream back.
func (s *memStore) append(stream, eventType, data, metadata string) *event.Record {
	if m := s.meta[stream]; m.SoftDeleted() {
		s.setMeta(stream, fmt.Sprintf(`{"$tb":%d}`, len(s.streams[stream])))
	}
	return s.add(stream, eventType, event.FlagJSON, data, metadata)
}

func (s *memStore) link(stream string, to *event.Record, metadata string) *event.Record {
	return s.append(stream, event.TypeLink, fmt.Sprintf("%d@%s", to.Number, to.Stream), metadata)
}

func (s *memStore) softDelete(stream string) { s.setMeta(stream, `{"$tb":9223372036854775807}`) }
func (s *memStore) hardDelete(stream string) {
	s.add(stream, event.TypeStreamDeleted, event.FlagDeleted, "", "")
}

func (s *memStore) info(stream string) event.StreamInfo {
	i := event.StreamInfo{Last: int64(len(s.streams[stream])) - 1, HardDeleted: s.deleted[stream], MetaLast: -1}
	if event.IsMetaStream(stream) {
		i.Metadata.MaxCount, i.HardDeleted = 1, s.deleted[event.OriginalOf(stream)]
		return i
	}
	i.MetaLast = int64(len(s.streams[event.MetaStreamOf(stream)])) - 1
	i.Metadata = s.meta[stream]
	return i
}

func (s *memStore) StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error) {
	return s.info(stream), ctx.Err()
}

// at returns an event as readers of its stream see it; nil: not at all.
func (s *memStore) at(stream string, number int64) *event.Record {
	i := s.info(stream)
	if !i.Exists() || number < i.Metadata.MinVisible(i.Last) || number > i.Last {
		return nil
	}
	r := &s.records[s.streams[stream][number]]
	if s.gone[r.Position] {
		return nil
	}
	return r
}

// resolve returns an event with its link resolved.
func (s *memStore) resolve(r *event.Record) event.Resolved {
	res := event.Resolved{Record: *r}
	number, stream, ok := event.ParseLink(r.Data)
	if r.Type != event.TypeLink || !ok {
		return res
	}
	res.Link, res.TargetStream, res.TargetNumber = event.LinkDead, stream, number
	if t := s.at(stream, number); t != nil {
		target := *t
		res.Link, res.Target = event.LinkResolved, &target
	}
	return res
}

type budget struct{ left, max int }

func (b *budget) take(r *event.Record) {
	if n := len(r.Data) + len(r.Metadata); b.max > 0 && n > b.left {
		r.Data, r.Metadata, r.Bare, b.left = nil, nil, true, 0
	} else {
		b.left -= n
	}
}

func (s *memStore) ReadStream(ctx context.Context, r event.StreamRead) (page event.StreamPage, err error) {
	if err := errors.Join(ctx.Err(), s.fail()); err != nil {
		return page, err
	}
	s.reads++
	i := s.info(r.Stream)
	switch {
	case i.HardDeleted:
		return page, event.ErrStreamDeleted
	case !i.Exists():
		return page, event.ErrStreamNotFound
	}
	page = event.StreamPage{Stream: r.Stream, From: r.From, Last: i.Last, Min: i.Metadata.MinVisible(i.Last), Metadata: i.Metadata}
	defer func() { page.SetNext(&r) }()
	b := budget{r.MaxPayload, r.MaxPayload}
	lowest, highest := r.From, r.From+r.Span()-1
	if r.Backward {
		lowest, highest = r.From-r.Span()+1, r.From
	}
	for n := max(lowest, page.Min); n <= min(highest, i.Last); n++ {
		rec := s.at(r.Stream, n)
		if rec == nil {
			continue
		}
		res := event.Resolved{Record: *rec}
		if i := s.info(rec.Stream); r.Links != nil && rec.Type == event.TypeLink {
			res = s.resolve(rec)
			i = s.info(res.TargetStream)
			if may, _ := r.Links.MayRead(res.TargetStream, &i); !may {
				res = *res.Unresolved()
			}
		}
		b.take(&res.Record)
		if res.Target != nil {
			b.take(res.Target)
		}
		if page.Events = append(page.Events, res); len(page.Events) == r.Count && !r.Backward {
			highest = n
		}
	}
	if page.End = highest >= i.Last; r.Backward {
		slices.Reverse(page.Events)
		page.End = lowest <= page.Min
	} else if highest < page.Min {
		page.End = false
	}
	return page, nil
}

func (s *memStore) ReadAll(ctx context.Context, r event.AllRead) (page event.AllPage, err error) {
	if err := errors.Join(ctx.Err(), s.fail()); err != nil {
		return page, err
	}
	s.reads++
	if !s.isMapped && !s.starts[r.From] && r.From < s.end {
		return page, event.ErrBadPosition
	}
	page = event.AllPage{From: r.From, Next: r.From, Last: -1, LogEnd: s.end}
	b := budget{r.MaxPayload, r.MaxPayload}
	first, _ := slices.BinarySearchFunc(s.records, r.From, func(e event.Record, at int64) int { return int(e.Position - at) })
	looked := 0
	for i := first; ; i++ {
		if len(page.Events) == r.Count || r.MaxScan > 0 && looked == r.MaxScan {
			page.More = true
			return page, nil
		}
		if i >= len(s.records) {
			page.Next = max(s.end, r.From)
			return page, nil
		}
		e := s.records[i]
		if s.gone[e.Position] {
			continue
		}
		if r.After && e.Position == r.From {
			page.Next = e.Next
			continue
		}
		isChosen, err := r.Chooses(e.Stream, e.Type)
		if err != nil {
			page.Failed, page.More = err, true
			return page, nil
		}
		looked++
		page.Last, page.Next = e.Position, e.Next
		if !isChosen {
			continue
		}
		b.take(&e)
		page.Events = append(page.Events, event.Resolved{Record: e})
	}
}

func (s *memStore) ReadPayload(_ context.Context, r *event.Record) error {
	s.payloads++
	i, ok := slices.BinarySearchFunc(s.records, r.Position, func(e event.Record, at int64) int { return int(e.Position - at) })
	if !ok || s.gone[r.Position] {
		return event.ErrEventNotFound
	}
	r.Data, r.Metadata, r.Bare = s.records[i].Data, s.records[i].Metadata, false
	return nil
}

func (s *memStore) WaitStreams(ctx context.Context, streams []string, after []int64) error {
	for i, name := range streams {
		if info := s.info(name); info.Last > after[i] || info.HardDeleted {
			s.commit = 0
			return nil
		}
	}
	return s.wait(ctx)
}

func (s *memStore) WaitLog(ctx context.Context, position int64) error {
	if s.end > position {
		return nil
	}
	return s.wait(ctx)
}

func (s *memStore) LogEnd() int64 {
	if s.commit > 0 {
		return s.commit
	}
	return s.end
}

func (s *memStore) Write(_ context.Context, w *event.Write) (event.Written, error) {
	if err := s.failWrite; err != nil {
		s.failWrite = nil
		return event.Written{}, err
	}
	s.writes++
	last := int64(len(s.streams[w.Stream])) - 1
	if s.deleted[w.Stream] {
		return event.Written{}, event.ErrStreamDeleted
	}
	done := event.Written{First: w.ExpectedVersion + 1, Last: w.ExpectedVersion + int64(len(w.Events))}
	if w.ExpectedVersion != last {
		for i := range w.Events {
			n := w.ExpectedVersion + 1 + int64(i)
			if n < 0 || n > last || s.records[s.streams[w.Stream][n]].ID != w.Events[i].ID {
				return event.Written{}, &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: last}
			}
		}
		done.Idempotent = true
		return done, nil
	}
	for _, e := range w.Events {
		s.append(w.Stream, e.Type, string(e.Data), string(e.Metadata)).ID = e.ID
	}
	err := s.lateFail
	s.lateFail = nil
	return done, err
}

// scavenge removes for good the events of streams that no one can see, and of some streams all
// hidden events.
func (s *memStore) scavenge() {
	s.isMapped = true
	for i := range s.records {
		r := &s.records[i]
		switch {
		case event.IsMetaStream(r.Stream):
			if r.Number < int64(len(s.streams[r.Stream]))-1 || s.deleted[event.OriginalOf(r.Stream)] {
				s.gone[r.Position] = true
			}
		case r.Number == event.TombstoneNumber:
		case s.deleted[r.Stream] || s.at(r.Stream, r.Number) == nil:
			s.gone[r.Position] = true
		}
	}
}

func isSystem(stream string) bool { return strings.HasPrefix(stream, "$") }
