package fsm

import (
	"iter"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/log/chunkfile"
)

// pendingLog finds events of entries that are not applied by what they say of themselves. Nothing
// is looked at before the first condition asks: writes without conditions pay for none of it.
type pendingLog struct {
	sealed   []*pendingRecords // oldest first
	building *pendingRecords   // nil: no condition has asked for it
	reader   label.Reader
	labels   []label.Label
	spare    offsets // memory of the next one
}

// pendingRecords are those of one entry.
type pendingRecords struct {
	first   int64 // position
	records []byte
	known   int // so many bytes of them are in at and withdrawn
	at      offsets

	withdrawn []label.Withdrawn // by these records
}

// offsets are those of the records that have a label, by its hash. The zero value has none.
type offsets struct {
	lists map[uint64]offsetList
	all   []linkedOffset
}

type offsetList struct{ count, first, last int32 } // first and last are places in all

type linkedOffset struct{ offset, next int32 }

func (o *offsets) add(hash uint64, offset int32) {
	list, place := o.lists[hash], int32(len(o.all))
	if o.all = append(o.all, linkedOffset{offset: offset}); list.count == 0 {
		list.first = place
	} else {
		o.all[list.last].next = place
	}
	o.lists[hash] = offsetList{list.count + 1, list.first, place}
}

// of gives the offsets of a hash, the lowest first.
func (o *offsets) of(hash uint64) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		list := o.lists[hash]
		for at := list.first; list.count > 0 && yield(o.all[at].offset); list.count-- {
			at = o.all[at].next
		}
	}
}

// build has the records be looked at, so far as there are, of the entry that is being built.
func (p *pendingLog) build(first int64, records []byte) {
	if p.building == nil {
		p.building = &pendingRecords{}
	}
	p.building.first, p.building.records = first, records
}

func (p *pendingLog) seal(first int64, records []byte) {
	p.build(first, records)
	p.sealed, p.building = append(p.sealed, p.building), nil
}

func (p *pendingLog) applied() {
	if at := p.sealed[0].at; at.lists != nil {
		clear(at.lists)
		p.spare = offsets{at.lists, at.all[:0]}
	}
	p.sealed = slices.Delete(p.sealed, 0, 1)
}

func (p *pendingLog) reset() {
	clear(p.sealed)
	p.sealed, p.building = p.sealed[:0], nil
}

// itemAt returns the record that begins at an offset.
func (r *pendingRecords) itemAt(offset int) chunkfile.Item {
	return chunkfile.Item(r.records[offset : offset+int(chunkfile.Order.Uint32(r.records[offset:]))])
}

// learn notes the labels of the records that were added since.
func (p *pendingLog) learn(r *pendingRecords) {
	if r.at.lists == nil {
		if r.at, p.spare = p.spare, (offsets{}); r.at.lists == nil {
			r.at.lists = map[uint64]offsetList{}
		}
	}
	for r.known < len(r.records) {
		it := r.itemAt(r.known)
		facts, _ := p.reader.Read(chunkfile.String(it.Stream()), chunkfile.String(it.EventType()), it.Metadata())
		p.labels = label.Append(p.labels[:0], &facts)
		for _, l := range p.labels {
			r.at.add(l.Hash(), int32(r.known))
		}
		r.withdrawn = append(r.withdrawn, label.ReadWithdrawn(it.Stream(), it.EventType(), it.Data())...)
		r.known += len(it)
	}
}

// entries are all of them, the oldest first.
func (p *pendingLog) entries() []*pendingRecords {
	if p.building == nil {
		return p.sealed
	}
	return append(p.sealed[:len(p.sealed):len(p.sealed)], p.building)
}

// withdraws reports whether a redaction that is not applied yet takes the labels of an event away.
func (p *pendingLog) withdraws(hit *event.Hit) bool {
	for _, r := range p.entries() {
		if p.learn(r); slices.Contains(r.withdrawn, label.Withdrawn{Position: hit.Position, ID: hit.ID}) {
			return true
		}
	}
	return false
}

// first returns the event with the lowest position above one that a query asks for and that shows
// reports true for; nil: there is none.
func (p *pendingLog) first(q *event.Query, after int64, shows func(*event.Hit) (bool, error)) (found *event.Hit, err error) {
	alternatives := label.Alternatives(q, false)
	for _, r := range p.entries() {
		if p.learn(r); r.first+int64(len(r.records)) <= after {
			continue
		}
		look := func(offset int) error {
			it := r.itemAt(offset)
			position := r.first + int64(offset)
			if position <= after || found != nil && position >= found.Position {
				return nil
			}
			facts, _ := p.reader.Read(chunkfile.String(it.Stream()), chunkfile.String(it.EventType()), it.Metadata())
			if !q.Matches(&facts) {
				return nil
			}
			facts.Tags, facts.Correlation = nil, ""
			hit := &event.Hit{Position: position, Stream: string(it.Stream()), Number: it.Number(), ID: it.Id(), Type: string(it.EventType()), Time: it.Time(),
				ByLabels: !q.Matches(&facts)}
			if shown, err := shows(hit); err != nil || !shown {
				return err
			}
			found = hit
			return nil
		}
		if q.All {
			for offset := 0; offset < len(r.records) && err == nil; offset += len(r.itemAt(offset)) {
				err = look(offset)
			}
		}
		for _, all := range alternatives {
			for _, hash := range r.rarest(all) {
				for offset := range r.at.of(hash) {
					// All that follow are higher.
					if err != nil || found != nil && found.Position <= r.first+int64(offset) {
						break
					}
					err = look(int(offset))
				}
			}
		}
		if err != nil || found != nil {
			return found, err
		}
	}
	return nil, nil
}

// rarest returns those of lists of hashes of which the entry has the fewest events.
func (r *pendingRecords) rarest(lists [][]uint64) (rarest []uint64) {
	fewest := -1
	for _, hashes := range lists {
		n := 0
		for _, hash := range hashes {
			n += int(r.at.lists[hash].count)
		}
		if fewest < 0 || n < fewest {
			rarest, fewest = hashes, n
		}
	}
	return rarest
}
