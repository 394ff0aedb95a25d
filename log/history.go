package eventlog

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// ChainAt returns the chain of the log at a position at which a frame ends; ok is false where none
// does. A frame that completes its chunk ends both after its trailer and at the start of the next
// chunk. Elsewhere in the void after the last frame of a chunk, and inside an item, nothing ends.
// An error says that the data there cannot be read: it is then not known whether a frame ends
// there.
func (s *state) ChainAt(position int64) (chain event.Chain, ok bool, err error) {
	err = s.read(func(v view) error {
		t, err := v.frameEndingAt(position, s.cluster)
		if ok = t != nil; ok {
			chain = t.Chain
		}
		return err
	})
	return chain, ok, err
}

// frameEndingAt returns the trailer of the frame that ends at a position, as ChainAt
// understands it; nil when none does. At 0 the chain is that of the empty log.
func (v view) frameEndingAt(position int64, cluster event.ID) (_ *chunkfile.Trailer, err error) {
	defer chunkfile.GuardFaults(&err)()
	switch {
	case position < 0 || position > v.tail.End:
		return nil, nil
	case position == 0:
		return &chunkfile.Trailer{Chain: chunkfile.GenesisChain(cluster)}, nil
	case position == v.tail.End:
		return &chunkfile.Trailer{Index: v.tail.Index, Term: v.tail.Term, Time: v.tail.Time, Chain: v.tail.Chain}, nil
	}
	t, end, err := v.frameBefore(position)
	if err != nil {
		err = v.explain(position, true, err)
		if errors.Is(err, event.ErrBadPosition) {
			return nil, nil
		}
		return nil, fmt.Errorf("frame that ends at %d: %w", position, err)
	}
	if t != nil && (end == position || t.Completes && chunkfile.NextChunk(end) == position) {
		return t, nil
	}
	return nil, nil
}

// tailBefore returns the tail of a log that ends with the last frame that ends
// at or before a position.
func (v view) tailBefore(position int64, cluster event.ID) (event.Tail, error) {
	t, end, err := v.frameBefore(position)
	if err != nil || t == nil {
		return event.Tail{Chain: chunkfile.GenesisChain(cluster)}, err
	}
	if t.Completes {
		end = chunkfile.NextChunk(end)
	}
	return event.Tail{End: end, Chain: t.Chain, Index: t.Index, Term: t.Term, Time: t.Time}, nil
}

// frameBefore returns the trailer of the last frame that ends at or before a position, and where it
// ends.
func (v view) frameBefore(position int64) (_ *chunkfile.Trailer, end int64, err error) {
	defer chunkfile.GuardFaults(&err)()
	cu := cursor{v: v}
	if err := cu.seekBackward(position); err != nil {
		return nil, 0, err
	}
	for {
		it, _, err := cu.prev()
		if err != nil || it == nil {
			return nil, 0, err
		}
		if it.IsTrailer() {
			t := it.Trailer()
			return &t, t.End(), nil
		}
	}
}

// Snapshot says what the log holds, for a Raft snapshot. Call Sync before relying on it.
func (l *Log) Snapshot() (m event.Snapshot, err error) {
	err = l.read(func(v view) error {
		m.Tail = v.tail
		for _, c := range v.set.chunks {
			if c.Complete {
				m.Chunks = append(m.Chunks, event.SnapshotChunk{
					First: c.Header.First, Last: c.Header.Last, Version: c.Version, Checksum: hex.EncodeToString(c.Footer.Checksum[:]),
				})
			}
		}
		return nil
	})
	return m, err
}
