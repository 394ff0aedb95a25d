package eventlog

import (
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
)

// endFrame judges the frame that a trailer closes and takes its records. done
// says that the walk through the file is over.
func (k *walker) endFrame(w *walk, it item, tip bool) (done bool) {
	t := it.trailer()
	offset := w.at
	position := t.end() - trailerSize
	faults := k.frameFaults(w, &t, offset)
	if len(faults) > 0 {
		if k.ended = k.torn(w, tip, errors.New(faults[0].detail)); k.ended {
			return true
		}
		for _, f := range faults {
			k.n.find(Problem, f.kind, w.c.name, int64(offset), position, "%s", f.detail)
		}
	}
	k.noteRecords(w, &t)
	if w.first == 0 {
		w.first = t.index
	}
	k.n.sum.Frames++
	w.at = offset + trailerSize
	w.frame, w.footed, w.last = w.at, true, t
	k.n.tail = event.Tail{End: t.end(), Chain: t.chain, Index: max(t.index, k.n.tail.Index), Term: max(t.term, k.n.tail.Term), Time: max(t.time, k.n.tail.Time)}
	k.whole = true
	if !t.completes {
		return false
	}
	merged := w.c.header.mapped && chunkNumber(t.end()-1) < w.c.header.last
	if left := len(w.data) - w.at; left > 0 && !merged {
		severity, kind := Problem, FindFrame
		if !w.c.complete && k.n.optional(k.n.tail.End) {
			severity, kind = Notice, FindTorn // What there is of the footer: it is made again.
		}
		k.n.find(severity, kind, w.c.name, int64(w.at), -1, "%d bytes follow the frame that completes the chunk", left)
	}
	if merged {
		k.n.tail.End = nextChunk(k.n.tail.End)
		return false
	}
	return true
}

// fault is one thing wrong with a frame.
type fault struct {
	kind   FindingKind
	detail string
}

func faultf(kind FindingKind, format string, args ...any) fault {
	return fault{kind, fmt.Sprintf(format, args...)}
}

func (k *walker) frameFaults(w *walk, t *trailer, offset int) (faults []fault) {
	// Whether all of the frame is there and nothing is missing between it and the one before.
	intact := !w.c.header.mapped && w.hole <= w.frame
	if intact && (t.length != offset-w.frame || t.length == 0) {
		faults = append(faults, faultf(FindFrame, "the frame has %d bytes of records, its trailer says %d", offset-w.frame, t.length))
		intact = false
	}
	if want := Place(k.n.tail.End, t.length); k.whole && t.first != want && (intact || w.c.header.mapped) {
		faults = append(faults, faultf(FindFrame, "the frame begins at %d, but belongs at %d", t.first, want))
	}
	if t.index <= k.n.tail.Index {
		faults = append(faults, faultf(FindFrame, "Raft index %d follows %d", t.index, k.n.tail.Index))
	}
	if t.term < k.n.tail.Term {
		faults = append(faults, faultf(FindFrame, "Raft term %d follows %d", t.term, k.n.tail.Term))
	}
	if t.time < k.n.tail.Time {
		faults = append(faults, faultf(FindFrame, "time %d follows %d", t.time, k.n.tail.Time))
	}
	redacted := false
	for _, at := range k.records {
		r := item(w.data[at:])
		redacted = redacted || r.isRecord() && event.Flags(r.flags())&event.FlagRedacted != 0
		if p := r.position(); w.c.header.mapped && w.hole <= w.frame && (p < t.first || p >= t.first+int64(t.length)) {
			faults = append(faults, faultf(FindFrame, "the record at position %d does not lie in its frame, %d to %d", p, t.first, t.first+int64(t.length)))
		}
	}
	// The chain is over what was written: it cannot be computed from what a redaction left.
	if intact && k.whole && !redacted && t.chain != NextChain(k.n.tail.Chain, t.first, w.data[w.frame:offset]) {
		faults = append(faults, faultf(FindChain, "the chain behind the frame does not follow from the one before it"))
	}
	return faults
}

// noteRecords takes the records of a frame, or those without one when t is nil.
func (k *walker) noteRecords(w *walk, t *trailer) {
	// Most of the time goes into waiting for the slots of streams to come from
	// memory: all of a frame's are asked for before the first is needed.
	k.hashes = k.hashes[:0]
	for _, at := range k.records {
		hash := item(w.data[at:]).streamHash()
		k.hashes = append(k.hashes, hash)
		k.names.streams.touch(hash)
	}
	for i, at := range k.records {
		it := item(w.data[at : at+int(order.Uint32(w.data[at:]))])
		hash := k.hashes[i]
		position := it.position()
		time := it.time()
		if time < k.time || t != nil && time > t.time {
			k.n.find(Problem, FindItem, w.c.name, int64(at), position, "time %d does not lie between that of the record before, %d, and that of the frame", time, k.time)
		}
		k.time = max(k.time, time)
		if it.isStub() {
			k.noteStub(w, int64(at), it)
			continue
		}
		w.items++
		if position < k.index.checkpoint && !k.n.unreadable(position) {
			k.index.logSum.add(hash, it.number(), position)
		}
		if event.Flags(it.flags())&event.FlagRedacted != 0 {
			k.n.sum.Redacted++
		}
		k.n.sum.Records++
		k.names.noteEvent(w.c, int64(at), hash, it)
	}
	k.records = k.records[:0]
}

// noteStub takes what is left of a removed event. Its number is not held against those
// of its stream: it has no name that would tell it from another with the same hash.
func (k *walker) noteStub(w *walk, offset int64, it item) {
	w.stubs++
	k.n.sum.Stubs++
	if number := it.number(); number < 0 || number == event.TombstoneNumber || event.Flags(it.flags())&event.FlagDeleted != 0 {
		k.n.find(Problem, FindStream, w.c.name, offset, it.position(), "stream with hash %016x: a stub of event %d with flags %#x, which is never removed", it.streamHash(), number, it.flags())
	}
}

// checkFooter compares the footer of a complete chunk with the data before it,
// and goes on from what the footer says where the data are damaged.
func (k *walker) checkFooter(w *walk) error {
	c, f := w.c, &w.c.footer
	at := headerSize + f.dataSize + f.mapSize
	if _, err := w.sum.Write(w.full[w.summed : at+footerChecksumAt]); err != nil {
		return err
	}
	if sum := w.sum.Sum128().Bytes(); sum != f.checksum {
		k.n.find(Problem, FindChecksum, c.name, -1, c.start(), "checksum of the whole file does not match")
	}
	differs := func(what string, says, is any) {
		k.n.find(Problem, FindFooter, c.name, at, -1, "the footer says %s %v, the data before it %v", what, says, is)
	}
	if w.hole == 0 && w.items != int64(f.records) {
		differs("records", f.records, w.items)
	}
	if w.hole == 0 && w.stubs != int64(f.stubs) {
		differs("stubs", f.stubs, w.stubs)
	}
	if w.hole == 0 && w.first != f.firstIndex {
		differs("first Raft index", f.firstIndex, w.first)
	}
	if w.footed {
		if t := &w.last; t.end() != f.end {
			differs("end", f.end, t.end())
		} else {
			if t.chain != f.chain {
				k.n.find(Problem, FindChain, c.name, at+72, f.end, "the chain in the footer is not that of the last frame")
			}
			if t.index != f.lastIndex {
				differs("last Raft index", f.lastIndex, t.index)
			}
			if t.term != f.lastTerm {
				differs("last Raft term", f.lastTerm, t.term)
			}
			if t.time != f.lastTime {
				differs("last time", f.lastTime, t.time)
			}
			if t.completes != f.lastCompletes {
				differs("completed by a frame", f.lastCompletes, t.completes)
			}
		}
	} else if w.hole == 0 {
		k.n.find(Problem, FindFooter, c.name, at, -1, "the chunk is complete, but ends without a frame")
	}
	// The trailer was checked by itself; where it is gone the footer knows where the next frame goes.
	if !w.footed {
		k.n.tail = event.Tail{End: f.end, Chain: f.chain, Index: max(f.lastIndex, k.n.tail.Index), Term: max(f.lastTerm, k.n.tail.Term), Time: max(f.lastTime, k.n.tail.Time)}
		k.whole = true
	}
	if f.lastCompletes || w.footed && w.last.completes {
		k.n.tail.End = nextChunk(k.n.tail.End)
	}
	return nil
}
