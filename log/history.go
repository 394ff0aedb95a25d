package eventlog

import (
	"encoding/hex"

	"github.com/annalsdb/annals/event"
)

// ChainAt returns the chain of the log at a position at which a frame ends; ok
// is false where none does. A frame that completes its chunk ends both behind
// its trailer and at the start of the next chunk.
func (l *Log) ChainAt(position int64) (chain event.Chain, ok bool) {
	v, err := l.view()
	if err != nil {
		return chain, false
	}
	defer v.release()
	if position == v.tail.End {
		return v.tail.Chain, true
	}
	if position == 0 {
		return GenesisChain(l.cluster), true
	}
	if position < 0 || position > v.tail.End {
		return chain, false
	}
	t, end, err := v.frameBefore(position)
	if err != nil || t == nil {
		return chain, false
	}
	if end == position || t.completes && nextChunk(end) == position {
		return t.chain, true
	}
	return chain, false
}

// frameBefore returns the trailer of the last frame that ends at or before a position, and where it ends.
func (v view) frameBefore(position int64) (_ *trailer, end int64, err error) {
	defer guardFaults(&err)()
	cu := cursor{v: v}
	if err := cu.seekBackward(position); err != nil {
		return nil, 0, err
	}
	for {
		it, _, err := cu.prev()
		if err != nil || it == nil {
			return nil, 0, err
		}
		if !it.isRecord() {
			t := it.trailer()
			return &t, t.end(), nil
		}
	}
}

// Manifest describes what the log holds, for a snapshot. Call Sync before relying on it.
func (l *Log) Manifest() (event.Manifest, error) {
	v, err := l.view()
	if err != nil {
		return event.Manifest{}, err
	}
	defer v.release()
	m := event.Manifest{Tail: v.tail}
	for _, c := range v.set.chunks {
		if c.complete {
			m.Chunks = append(m.Chunks, event.ManifestChunk{
				First: c.header.first, Last: c.header.last, Version: c.version, Checksum: hex.EncodeToString(c.footer.checksum[:]),
			})
		}
	}
	return m, nil
}
