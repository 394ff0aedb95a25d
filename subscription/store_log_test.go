package subscription_test

import (
	"context"
	"slices"

	"github.com/annalsdb/annals/event"
)

// memLog is all records of a memStore in the order of writing.
type memLog struct {
	records []event.Record
	end     int64
	settled int64 // how far reads of streams see; 0: they see all
	scanned int   // records looked at
}

func (l *memLog) add(r *event.Record) {
	r.Position, r.Next = l.end, l.end+20+int64(len(r.Data))
	l.end = r.Next
	l.records = append(l.records, *r)
}

func (s *memStore) LogEnd() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.settledEnd()
}

func (l *memLog) settledEnd() int64 {
	if l.settled > 0 {
		return min(l.settled, l.end)
	}
	return l.end
}

func (s *memStore) WaitLog(ctx context.Context, position int64) error {
	return s.await(ctx, func() bool { return s.log.settledEnd() > position })
}

// settle sets how far reads of streams see the log; 0: all of it.
func (s *memStore) settle(end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.settled = end
	s.wakeLocked()
}

// scavenge removes events for good.
func (s *memStore) scavenge(stream string, numbers ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stream(stream)
	if st.gone == nil {
		st.gone = map[int64]bool{}
	}
	for _, n := range numbers {
		st.gone[n] = true
	}
}

func (s *memStore) ReadAll(ctx context.Context, r event.AllRead) (page event.AllPage, err error) {
	if err := s.beforeReadAll.call(ctx, r); err != nil {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	page = event.AllPage{From: r.From, Last: -1, LogEnd: s.log.end}
	if r.From == event.End {
		page.From = s.log.end
	}
	page.Next = page.From
	at, found := slices.BinarySearchFunc(s.log.records, page.From, func(e event.Record, position int64) int { return int(e.Position - position) })
	if page.From < 0 || !found && page.From < s.log.end {
		return page, event.ErrBadPosition
	}
	left := r.MaxPayload
	for looked := 0; ; {
		if r.Backward {
			at--
		}
		if at < 0 || at == len(s.log.records) {
			page.Next = max(page.From, s.log.end)
			return page, nil
		}
		if len(page.Events) == r.Count || r.MaxScan > 0 && looked == r.MaxScan {
			page.More = true
			return page, nil
		}
		e := s.log.records[at]
		if !r.Backward {
			at++
		}
		page.Next = e.Next
		if s.streams[e.Stream].gone[e.Number] {
			continue
		}
		looked++
		s.log.scanned++
		page.Last = e.Position
		if r.Filter != nil && !r.Filter(e.Stream, e.Type) {
			continue
		}
		if left -= len(e.Data); left < 0 && r.MaxPayload > 0 {
			e.Strip()
		}
		page.Events = append(page.Events, s.resolveLocked(e, r.Links != nil))
	}
}
