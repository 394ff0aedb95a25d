package source_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/testkit/memdb"
)

// errIdle is what a store that does not wait answers instead.
var errIdle = errors.New("nothing more now")

// store is a database whose waits do not wait, and a table of all that was written to it. It
// belongs to one goroutine.
type store struct {
	*memdb.DB
	records []event.Record // by position, see log
	next    int64          // where those begin that records has not
	streams map[string][]int
	gone    map[int64]bool // positions that a scavenge removed
	// When above 0, the log shows a commit from here on, and not all streams do yet.
	commit int64
	wait   func(ctx context.Context) error
}

func newStore(t memdb.T) *store {
	return &store{DB: memdb.Open(t, memdb.Options{}), gone: map[int64]bool{}, streams: map[string][]int{},
		wait: func(context.Context) error { return errIdle }}
}

// once makes the next call fail.
func once[A any](h *memdb.Hook[A], err error) {
	h.Set(func(context.Context, A) error { h.Set(nil); return err })
}

// log is every record that was ever written.
func (s *store) log() []event.Record {
	s.BeforeReadAll.Set(nil)
	page, err := s.ReadAll(context.Background(), event.AllRead{From: s.next, Count: 1 << 20})
	if err != nil {
		panic(err)
	}
	for i := range page.Events {
		r := page.Events[i].Record
		if r.Number != event.TombstoneNumber {
			s.streams[r.Stream] = append(s.streams[r.Stream], len(s.records))
		}
		s.records = append(s.records, r)
	}
	s.next = page.Next
	return s.records
}

// append returns what it has written.
func (s *store) append(stream, eventType, data, metadata string) *event.Record {
	s.Append(stream, eventType, data, metadata)
	all := s.log()
	return &all[len(all)-1]
}

func (s *store) link(stream string, to *event.Record, metadata string) *event.Record {
	return s.append(stream, event.TypeLink, fmt.Sprintf("%d@%s", to.Number, to.Stream), metadata)
}

func (s *store) softDelete(stream string) { s.SetMetadata(stream, `{"$tb":9223372036854775807}`) }
func (s *store) hardDelete(stream string) { s.Delete(event.HardDelete, stream) }

// at returns an event as readers of its stream see it; nil: not at all.
func (s *store) at(stream string, number int64) *event.Record {
	i := s.Info(stream)
	if !i.Exists() || number < i.Metadata.MinVisible(i.Last) || number > i.Last {
		return nil
	}
	r := &s.log()[s.streams[stream][number]]
	if s.gone[r.Position] {
		return nil
	}
	return r
}

// resolve returns an event with its link resolved.
func (s *store) resolve(r *event.Record) event.Resolved {
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

func (s *store) WaitStreams(ctx context.Context, streams []string, after []int64) error {
	for i, name := range streams {
		if info := s.Info(name); info.Last > after[i] || info.HardDeleted {
			s.commit = 0
			return nil
		}
	}
	return s.wait(ctx)
}

func (s *store) WaitLog(ctx context.Context, position int64) error {
	if s.LogEnd() > position {
		return nil
	}
	return s.wait(ctx)
}

func (s *store) LogEnd() int64 {
	if s.commit > 0 {
		return s.commit
	}
	return s.DB.LogEnd()
}

// remove removes records for good.
func (s *store) remove(goes func(r *event.Record) bool) {
	s.log()
	s.Scavenge(func(r *event.Record) bool {
		isGone := goes(r)
		s.gone[r.Position] = s.gone[r.Position] || isGone
		return isGone
	})
}

// scavenge removes for good the events of streams that no one can see, but the last.
func (s *store) scavenge() {
	s.remove(func(r *event.Record) bool {
		switch last := int64(len(s.streams[r.Stream])) - 1; {
		case event.IsMetaStream(r.Stream):
			return r.Number < last || s.Info(event.OriginalOf(r.Stream)).HardDeleted
		case r.Number == event.TombstoneNumber:
			return false
		default:
			return s.Info(r.Stream).HardDeleted || r.Number < last && s.at(r.Stream, r.Number) == nil
		}
	})
}

func isSystem(stream string) bool { return strings.HasPrefix(stream, "$") }
