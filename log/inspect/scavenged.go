package inspect

import (
	"bytes"
	"math"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// A scavenge takes entries out of the index up to the discard point of each stream,
// also where the records stay because their chunk was passed over. It takes away the
// first events of a stream and never the last one, and it does so from the oldest table on:
// the records of a stream from the first one that the index names must all be named.
// The one exception are metadata streams of deleted streams, which go as a whole.

// scavengeDatabase is the file, in the folder of the index, in which a scavenge keeps its state.
var scavengeDatabase = filepath.Join("scavenging", "scavenging.db")

// wasScavenged says that the index may lack entries of records that are there. A scavenge removes
// those of chunks that it passes over as well, and a copy is without its database; but there is
// none without a point in the log.
func (r *indexCheck) wasScavenged() bool {
	if r.n.sum.Scavenged > 0 || r.names.named(event.ScavengePointsStream) != nil {
		return true
	}
	_, err := r.n.o.FS.Stat(filepath.Join(r.n.o.IndexDir, scavengeDatabase))
	return err == nil
}

// coverage knows for each hash, by the slots of streamNumbers, from which event on
// the index names the events of its streams.
type coverage struct {
	// first has the number of the first entry; its complement as long as no entry of
	// the hash has been met whose record must be there.
	first []int64

	hash  uint64 // of the entry before
	place int    // its slot
	begun bool
	lost  bool // it was reported
}

// noEntry is said of a hash without any entry.
const noEntry = math.MinInt64

func (v *coverage) init(slots int) {
	v.first = make([]int64, slots)
	for i := range v.first {
		v.first[i] = noEntry
	}
}

// from returns the lowest number that the index must name, the highest number of
// all when it names none. dropped says that lower ones may have been taken out.
func (v *coverage) from(place int) (number int64, dropped bool) {
	if number = v.first[place]; number < 0 {
		return ^number, false
	}
	return number, true
}

// noteEntry takes the next entry of the index. exists says that its record must be in the log.
func (r *indexCheck) noteEntry(e index.Entry, exists bool) {
	v := &r.covered
	exists = exists || r.n.unreadable(e.Position)
	if !v.begun || e.Hash != v.hash {
		v.begun, v.hash, v.place, v.lost = true, e.Hash, r.names.streams.place(e.Hash), false
	}
	if r.names.streams.slots[v.place].at != 0 && e.Number >= 0 {
		first := &v.first[v.place]
		if *first == noEntry {
			*first = ^e.Number
		}
		if exists && *first < 0 {
			*first = ^*first
		}
	}
	if !exists && !v.lost && r.isLost(e) {
		v.lost = true
		r.n.find(Problem, FindIndex, r.n.o.IndexDir, -1, e.Position, "event %d of the stream with hash %016x is gone from the log with all that may have followed it, but the newest event of a stream is never removed", e.Number, e.Hash)
	}
}

// isLost says of an entry without its record that the record cannot have been
// removed by a scavenge: it was the last of its stream.
func (r *indexCheck) isLost(e index.Entry) bool {
	if len(r.n.damaged) > 0 || r.n.unsure || e.Position >= r.n.tail.End || r.n.chunkAt(e.Position) == nil {
		return false // It cannot be read, or is reported as something else.
	}
	s := r.names.streams.slots[r.covered.place]
	if s.at != 0 {
		last := s.last
		for _, own := range r.names.streams.shared[e.Hash] {
			last = max(last, own.last)
		}
		if e.Number <= last {
			return false
		}
	}
	if r.voided == nil {
		r.findVoided()
	}
	return !r.voided[e.Hash]
}

// findVoided finds the metadata streams of deleted streams, by their hashes.
func (r *indexCheck) findVoided() {
	r.voided = make(map[uint64]bool)
	void := func(s *streamSlot) {
		if s.at == 0 || s.last != event.TombstoneNumber {
			return
		}
		if name, ok := r.names.nameAt(s.at - 1); ok {
			r.voided[chunkfile.HashStream(event.MetaStreamOf(string(name)))] = true
		}
	}
	for i := range r.names.streams.slots {
		void(&r.names.streams.slots[i])
	}
	for _, names := range r.names.streams.shared {
		for _, s := range names {
			void(s)
		}
	}
}

// sumNamed sums the records that the index of a scavenged folder must name, in a
// second walk through the log. It reports false when one is missing whose place in its stream
// does not allow that.
func (r *indexCheck) sumNamed() (sum entrySum, allowed bool, err error) {
	allowed = true
	err = r.eachRecord(func(_ *chunkfile.Chunk, _ int64, it chunkfile.Item) error {
		if r.n.unreadable(it.Position()) {
			return nil
		}
		hash, number := it.StreamHash(), it.Number()
		if r.names.streams.shared[hash] != nil {
			named, err := r.isNamed(hash, it)
			if named {
				sum.add(hash, number, it.Position())
			} else if err == nil && allowed {
				allowed, err = r.mayBeUnnamed(hash, it)
			}
			return err
		}
		from, dropped := r.covered.from(r.names.streams.place(hash))
		if number >= from {
			sum.add(hash, number, it.Position())
		} else if !dropped {
			allowed = allowed && r.isVoid(it.Stream())
		}
		return nil
	})
	return sum, allowed, err
}

// isVoid says that a stream has the metadata of a deleted one.
func (r *indexCheck) isVoid(stream []byte) bool {
	name := chunkfile.String(stream)
	return event.IsMetaStream(name) && r.names.hasTombstone(event.OriginalOf(name))
}

// IsNamed says that the index has the entry of a record.
func (r *indexCheck) isNamed(hash uint64, it chunkfile.Item) (_ bool, err error) {
	r.entries, err = r.index.Get(r.entries[:0], hash, it.Number())
	return slices.ContainsFunc(r.entries, func(e index.Entry) bool { return e.Position == it.Position() }), err
}

// MayBeUnnamed says of a record without entry that a scavenge may have taken that
// out: the index names a later event of the stream, unless all may be gone, and none before.
func (r *indexCheck) mayBeUnnamed(hash uint64, it chunkfile.Item) (bool, error) {
	stream := it.Stream()
	later := r.isVoid(stream)
	for e, err := range r.index.Down(hash, math.MaxInt64, it.Number()) {
		if err != nil {
			return false, err
		}
		if later || e.Number == it.Number() {
			break
		}
		name, ok := r.names.nameAt(e.Position)
		later = ok && bytes.Equal(name, stream) || r.n.unreadable(e.Position)
	}
	if !later {
		return false, nil
	}
	for e, err := range r.index.Down(hash, it.Number(), 0) {
		if err != nil {
			return false, err
		}
		// What names no record at all stands for one of this stream.
		name, ok := r.names.nameAt(e.Position)
		if ok && bytes.Equal(name, stream) || !ok && !r.n.unreadable(e.Position) {
			return false, nil
		}
	}
	return true, nil
}
