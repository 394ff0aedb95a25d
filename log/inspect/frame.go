package inspect

import (
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// endFrame judges the frame that a trailer closes and takes its records. done
// says that the walk through the file is over.
func (k *walker) endFrame(w *walk, it chunkfile.Item, tip bool) (done bool) {
	t := it.Trailer()
	offset := w.at
	position := t.End() - chunkfile.TrailerSize
	faults := k.frameFaults(w, &t, offset)
	if len(faults) > 0 {
		if k.ended = k.torn(w, tip, errors.New(faults[0].detail)); k.ended {
			return true
		}
		for _, f := range faults {
			k.n.find(Problem, f.kind, w.c.Name, int64(offset), position, "%s", f.detail)
		}
	}
	k.noteRecords(w, &t)
	if w.first == 0 {
		w.first = t.Index
	}
	k.n.sum.Frames++
	w.at = offset + chunkfile.TrailerSize
	w.frame, w.footed, w.last = w.at, true, t
	k.n.tail = event.Tail{End: t.End(), Chain: t.Chain, Index: max(t.Index, k.n.tail.Index), Term: max(t.Term, k.n.tail.Term), Time: max(t.Time, k.n.tail.Time)}
	k.whole = true
	if !t.Completes {
		return false
	}
	merged := w.c.Header.Mapped && chunkfile.ChunkNumber(t.End()-1) < w.c.Header.Last
	if left := len(w.data) - w.at; left > 0 && !merged {
		severity, kind := Problem, FindFrame
		if !w.c.Complete && k.n.optional(k.n.tail.End) {
			severity, kind = Notice, FindTorn // What there is of the footer: it is made again.
		}
		k.n.find(severity, kind, w.c.Name, int64(w.at), -1, "%d bytes follow the frame that completes the chunk", left)
	}
	if merged {
		k.n.tail.End = chunkfile.NextChunk(k.n.tail.End)
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

func (k *walker) frameFaults(w *walk, t *chunkfile.Trailer, offset int) (faults []fault) {
	// Whether all of the frame is there and nothing is missing between it and the one before.
	intact := !w.c.Header.Mapped && w.hole <= w.frame
	if intact && (t.Length != offset-w.frame || t.Length == 0) {
		faults = append(faults, faultf(FindFrame, "the frame has %d bytes of records, its trailer says %d", offset-w.frame, t.Length))
		intact = false
	}
	wrong := t.OrderFaults
	if k.whole && (intact || w.c.Header.Mapped) {
		wrong = t.Faults
	}
	for _, err := range wrong(k.n.tail) {
		faults = append(faults, fault{FindFrame, err.Error()})
	}
	redacted := false
	for _, at := range k.records {
		r := chunkfile.Item(w.data[at:])
		redacted = redacted || r.IsRecord() && event.Flags(r.Flags())&event.FlagRedacted != 0
		if p := r.Position(); w.c.Header.Mapped && w.hole <= w.frame && (p < t.First || p >= t.First+int64(t.Length)) {
			faults = append(faults, faultf(FindFrame, "the record at position %d does not lie in its frame, %d to %d", p, t.First, t.First+int64(t.Length)))
		}
	}
	// The chain is over what was written: it cannot be computed from what a redaction left.
	if intact && k.whole && !redacted && t.Chain != chunkfile.NextChain(k.n.tail.Chain, t.First, w.data[w.frame:offset]) {
		faults = append(faults, faultf(FindChain, "the chain after the frame does not follow from the chain before it"))
	}
	return faults
}

// noteRecords takes the records of a frame, or those without one when t is nil.
func (k *walker) noteRecords(w *walk, t *chunkfile.Trailer) {
	// Most of the time goes into waiting for the slots of streams to come from
	// memory: all of a frame's are asked for before the first is needed.
	k.hashes = k.hashes[:0]
	for _, at := range k.records {
		hash := chunkfile.Item(w.data[at:]).StreamHash()
		k.hashes = append(k.hashes, hash)
		k.names.streams.touch(hash)
	}
	for i, at := range k.records {
		it := chunkfile.Item(w.data[at : at+int(chunkfile.Order.Uint32(w.data[at:]))])
		hash := k.hashes[i]
		position := it.Position()
		time := it.Time()
		if time < k.time || t != nil && time > t.Time {
			k.n.find(Problem, FindItem, w.c.Name, int64(at), position, "time %d does not lie between that of the record before, %d, and that of the frame", time, k.time)
		}
		k.time = max(k.time, time)
		if it.IsStub() {
			k.noteStub(w, int64(at), it)
			continue
		}
		w.items++
		if position < k.index.checkpoint && !k.n.unreadable(position) {
			k.index.logSum.add(hash, it.Number(), position)
		}
		if !k.n.unreadable(position) {
			k.postings.note(it, position)
		}
		if event.Flags(it.Flags())&event.FlagRedacted != 0 {
			k.n.sum.Redacted++
		}
		k.n.sum.Records++
		k.names.noteEvent(w.c, int64(at), hash, it)
	}
	k.records = k.records[:0]
}

// noteStub takes what is left of a removed event. Its number is not held against those
// of its stream: it has no name that would tell it from another with the same hash.
func (k *walker) noteStub(w *walk, offset int64, it chunkfile.Item) {
	w.stubs++
	k.n.sum.Stubs++
	if number := it.Number(); number < 0 || number == event.TombstoneNumber || event.Flags(it.Flags())&event.FlagDeleted != 0 {
		k.n.find(Problem, FindStream, w.c.Name, offset, it.Position(), "stream with hash %016x: a stub of event %d with flags %#x, which is never removed", it.StreamHash(), number, it.Flags())
	}
}

// checkFooter compares the footer of a complete chunk with the data before it. Where the data is
// damaged, the check continues with what the footer says.
func (k *walker) checkFooter(w *walk) error {
	c, f := w.c, &w.c.Footer
	at := chunkfile.HeaderSize + f.DataSize + f.MapSize
	if _, err := w.sum.Write(w.full[w.summed : at+chunkfile.FooterChecksumAt]); err != nil {
		return err
	}
	if sum := w.sum.Sum128().Bytes(); sum != f.Checksum {
		k.n.find(Problem, FindChecksum, c.Name, -1, c.Start(), "checksum of the whole file does not match")
	}
	differs := func(what string, says, is any) {
		k.n.find(Problem, FindFooter, c.Name, at, -1, "the footer says %s %v, the data before it %v", what, says, is)
	}
	if w.hole == 0 && w.items != int64(f.Records) {
		differs("records", f.Records, w.items)
	}
	if w.hole == 0 && w.stubs != int64(f.Stubs) {
		differs("stubs", f.Stubs, w.stubs)
	}
	if w.hole == 0 && w.first != f.FirstIndex {
		differs("first Raft index", f.FirstIndex, w.first)
	}
	if w.footed {
		if t := &w.last; t.End() != f.End {
			differs("end", f.End, t.End())
		} else {
			if t.Chain != f.Chain {
				k.n.find(Problem, FindChain, c.Name, at+72, f.End, "the chain in the footer is not that of the last frame")
			}
			if t.Index != f.LastIndex {
				differs("last Raft index", f.LastIndex, t.Index)
			}
			if t.Term != f.LastTerm {
				differs("last Raft term", f.LastTerm, t.Term)
			}
			if t.Time != f.LastTime {
				differs("last time", f.LastTime, t.Time)
			}
			if t.Completes != f.LastCompletes {
				differs("completed by a frame", f.LastCompletes, t.Completes)
			}
		}
	} else if w.hole == 0 {
		k.n.find(Problem, FindFooter, c.Name, at, -1, "the chunk is complete, but ends without a frame")
	}
	// The trailer was checked by itself; where it is gone the footer knows where the next frame
	// goes.
	if !w.footed {
		k.n.tail = event.Tail{End: f.End, Chain: f.Chain, Index: max(f.LastIndex, k.n.tail.Index), Term: max(f.LastTerm, k.n.tail.Term), Time: max(f.LastTime, k.n.tail.Time)}
		k.whole = true
	}
	if f.LastCompletes || w.footed && w.last.Completes {
		k.n.tail.End = chunkfile.NextChunk(k.n.tail.End)
	}
	return nil
}

// checkMapEntry checks that the next entry of the position map names the item
// at hand. The map and the data are walked side by side.
func (k *walker) checkMapEntry(w *walk, position int64) {
	for {
		at, offset, ok := w.mapEntry(w.entry)
		switch {
		case !ok || at > position:
			k.mapFault(w, int64(w.at), position, "the position map does not name the item of position %d", position)
			return
		case at == position:
			if offset != int64(w.at) {
				k.mapFault(w, w.entryOffset(w.entry), position, "the position map names offset %d for position %d, which stands at %d", offset, position, w.at)
			}
			w.entry++
			k.checkOrder(w, at)
			return
		}
		// Where items cannot be read the map may well be right.
		if int64(w.hole) <= offset {
			k.mapFault(w, w.entryOffset(w.entry), at, "the position map names position %d, which no item has", at)
		}
		w.entry++
		k.checkOrder(w, at)
	}
}

// checkOrder checks that the entry after one of the given position is higher.
func (k *walker) checkOrder(w *walk, before int64) {
	if at, _, ok := w.mapEntry(w.entry); ok && at <= before {
		k.mapFault(w, w.entryOffset(w.entry), at, "the position map is not in order: %d follows %d", at, before)
	}
}

// restOfMap reports entries of the position map after the last item.
func (k *walker) restOfMap(w *walk) {
	for ; ; w.entry++ {
		at, offset, ok := w.mapEntry(w.entry)
		if !ok {
			return
		}
		if int64(w.hole) <= offset {
			k.mapFault(w, w.entryOffset(w.entry), at, "the position map names position %d, which no item has", at)
		}
	}
}

func (k *walker) mapFault(w *walk, offset, position int64, format string, args ...any) {
	k.n.unsure = true
	k.n.find(Problem, FindMap, w.c.Name, offset, position, format, args...)
}

func (w *walk) entryOffset(i int) int64 {
	return chunkfile.HeaderSize + w.c.Footer.DataSize + int64(i)*chunkfile.MapEntrySize
}

// mapEntry returns the i-th entry of the position map.
func (w *walk) mapEntry(i int) (position, offset int64, ok bool) {
	if i >= w.c.MapEntries() {
		return 0, 0, false
	}
	b := w.full[w.entryOffset(i):]
	return int64(chunkfile.Order.Uint64(b)), int64(chunkfile.Order.Uint32(b[8:])), true
}
