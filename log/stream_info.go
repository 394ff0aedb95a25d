package eventlog

import (
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// streamFacts says what is known of streams as it is applied now. The cache is never older than
// what is applied: the appender writes through it, and what a reader found in a view stays in it
// only if nothing was applied since before that view was taken.
type streamFacts struct {
	lookup
	streams *streamCache
}

// StreamInfo returns what is known of a stream as it is applied now.
func (f *streamFacts) StreamInfo(stream string) (event.StreamInfo, error) {
	hash := chunkfile.HashStream(stream)
	s, known, changes := f.streams.get(hash, stream)
	if known && s.metaKnown {
		return s.info(), nil
	}
	// The view must be taken after the count of changes. Otherwise facts from an old view would be
	// cached as if they were the newest.
	v, err := f.view()
	if err != nil {
		return event.StreamInfo{}, err
	}
	defer v.release()
	if err := f.complete(v, hash, stream, &s, known); err != nil {
		return event.StreamInfo{}, err
	}
	// A metadata stream is deleted with its original, whose changes this shard does not count.
	if !event.IsMetaStream(stream) {
		f.streams.put(hash, s, changes)
	}
	return s.info(), nil
}

func (s *cachedStream) info() event.StreamInfo {
	i := event.StreamInfo{Last: s.last, HardDeleted: s.deleted, MetaLast: s.metaLast}
	if s.metadata != nil {
		i.Metadata = *s.metadata
	}
	return i
}

// complete looks up the unknown facts of a stream; s holds the known ones.
func (f *streamFacts) complete(v view, hash uint64, stream string, s *cachedStream, known bool) (err error) {
	defer f.met(&err)
	defer chunkfile.GuardFaults(&err)()
	if !known {
		s.name = strings.Clone(stream)
		if s.last, s.deleted, err = f.lastOf(v, hash, stream); err != nil {
			return fmt.Errorf("last event of stream %q: %w", stream, err)
		}
	}
	if event.IsMetaStream(stream) {
		err = f.metaStreamFacts(v, stream, s)
	} else {
		err = f.metadataFacts(v, stream, s)
	}
	if err != nil {
		return fmt.Errorf("metadata of stream %q: %w", stream, err)
	}
	s.metaKnown = true
	return nil
}

// metaStreamFacts: only the last event of a metadata stream counts, whatever is
// said elsewhere, and it is gone when the stream at the root of it is. Metadata
// streams have no tombstones of their own, so that those between need no look.
func (f *streamFacts) metaStreamFacts(v view, stream string, s *cachedStream) error {
	s.metaLast = -1
	s.metadata = &event.Metadata{Retention: event.Retention{MaxCount: 1}}
	root := event.RootOf(stream)
	hash := chunkfile.HashStream(root)
	if o, ok, _ := f.streams.get(hash, root); ok {
		s.deleted = o.deleted
		return nil
	}
	var err error
	_, s.deleted, err = f.lastOf(v, hash, root)
	return err
}

func (f *streamFacts) metadataFacts(v view, stream string, s *cachedStream) error {
	s.metaLast, s.metadata = -1, nil
	hash := hashMetaStream(stream)
	if !f.index.MayExist(hash) {
		return nil
	}
	name := event.MetaStreamOf(stream)
	find := f.lastOf
	if s.deleted {
		find = f.lastBeforeTombstone
	}
	last, _, err := find(v, hash, name)
	if err != nil || last < 0 {
		return err
	}
	s.metaLast = last
	it, _, err := f.certainRecordOf(v, name, last, new([]byte))
	if err != nil || it == nil {
		return err
	}
	m := event.ParseMetadata(it.Data())
	s.metadata = &m
	return nil
}

// lastOf returns the number of the last ordinary event of a stream, -1 when there is none, and
// whether it has a tombstone.
func (f *streamFacts) lastOf(v view, hash uint64, stream string) (last int64, deleted bool, err error) {
	if !f.index.MayExist(hash) {
		return -1, false, nil
	}
	var scratch []byte
	e, ok, err := f.index.Last(hash)
	if err != nil {
		return 0, false, err
	}
	if ok && e.Number != event.TombstoneNumber {
		if it, err := f.confirm(v, e, stream, &scratch); err != nil || it != nil {
			return e.Number, false, err
		}
	}
	// A tombstone, a collision, or an event that readers do not see yet: look further down.
	for e, err := range f.index.Down(hash, event.TombstoneNumber, 0) {
		if err != nil {
			return 0, false, err
		}
		it, err := f.confirm(v, e, stream, &scratch)
		if err != nil {
			return 0, false, err
		}
		switch {
		case it == nil:
		case e.Number != event.TombstoneNumber:
			return e.Number, deleted, nil
		default:
			deleted = true
		}
	}
	return -1, deleted, nil
}

// lastBeforeTombstone is lastOf for the metadata stream of a stream that has a tombstone. Metadata
// that was appended after the tombstone (see event.IsLate) has no effect.
func (f *streamFacts) lastBeforeTombstone(v view, hash uint64, meta string) (last int64, deleted bool, err error) {
	var scratch []byte
	first := func(hash uint64, stream string, from, to int64) (index.Entry, bool, error) {
		for e, err := range f.index.Down(hash, from, to) {
			if err != nil {
				return e, false, err
			}
			if it, err := f.confirm(v, e, stream, &scratch); it != nil || err != nil {
				return e, err == nil, err
			}
		}
		return index.Entry{}, false, nil
	}
	stream := event.OriginalOf(meta)
	tombstone, ok, err := first(chunkfile.HashStream(stream), stream, event.TombstoneNumber, event.TombstoneNumber)
	if err != nil || !ok {
		return -1, true, err
	}
	e, ok, err := first(hash, meta, tombstone.Position-1, 0)
	if err != nil || !ok {
		return -1, true, err
	}
	return e.Number, true, nil
}

func hashMetaStream(name string) uint64 {
	var buf [256]byte
	return xxh3.Hash(append(append(buf[:0], "$$"...), name...))
}
