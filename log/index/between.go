package index

import "github.com/annalsdb/annals/event"

// Between returns all entries with positions from one up to another, in any order. It reads all
// tables that may have some.
func Between(x *Index, from, to int64) ([]Entry, error) {
	s := x.acquire()
	if s == nil {
		return nil, event.ErrClosed
	}
	defer s.release()
	var found []Entry
	add := func(e Entry) {
		if from <= e.Position && e.Position < to {
			found = append(found, e)
		}
	}
	for _, m := range s.mems {
		for i := range m.shown.Load() {
			add(m.ref(uint32(i + 1)).entry())
		}
	}
	for _, t := range s.tables {
		if t.maxPos < from || t.minPos >= to {
			continue
		}
		in := newScanner(t)
		for in.next() {
			add(in.entry)
		}
		if in.err != nil {
			if event.IsCorruption(in.err) {
				x.ofTable(in.err)
			}
			return nil, in.err
		}
	}
	return found, nil
}
