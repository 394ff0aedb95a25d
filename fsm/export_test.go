package fsm

import "github.com/annalsdb/annals/event"

// Entry is an entry taken apart, for tests that look into one or make their own.
type Entry struct {
	Completes bool
	End       int64
	Chain     event.Chain
	First     int64
	Applied   int64
	Records   []byte
}

// ParseEntry takes an entry apart.
func ParseEntry(b []byte) (Entry, error) {
	e, err := parseEntry(b)
	return Entry{e.completes, e.end, e.chain, e.first, e.applied, e.records}, err
}

// Bytes puts an entry together.
func (e Entry) Bytes() []byte {
	b := append(make([]byte, entryHead), e.Records...)
	(&entry{completes: e.Completes, end: e.End, chain: e.Chain, first: e.First, applied: e.Applied}).seal(b)
	return b
}

// EntryHead is the length of an entry's head.
const EntryHead = entryHead

// Pending is how many streams and event ids a decider holds for entries not applied.
func (d *Decider) Pending() (streams, ids int) {
	for _, f := range d.over.streams {
		ids += max(len(f.ids), len(f.byID))
	}
	return len(d.over.streams), ids
}

// Building is where the entry being built begins, and its records.
func Building(d *Decider) (first int64, records []byte) {
	if !d.building {
		return 0, nil
	}
	return d.first, d.buf[entryHead:]
}

// End is where the records decided so far end.
func (d *Decider) End() int64 { return d.end() }
