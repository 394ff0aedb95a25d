package eventlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// AppendFrames takes frames as another node's log holds them: records and trailers, the first
// record at the position first, all of one chunk. It appends those that this log lacks, commits
// them, and returns their number. raw is not used any more when it returns. Only the goroutine that
// appends may call it.
//
// Everything is verified before anything is taken: shape and checksum of every item, that each item
// is in the place that the log has for it next, that indexes rise, that terms and times do not
// fall, and that the chain continues. If something is wrong the error is event.ErrBadFrames, or an
// event.OtherHistory if whole frames follow a log other than this one. Nothing has changed then,
// nor when this log could not be read. A write error is final, as with Append; Failed tells.
func (l *Log) AppendFrames(first int64, raw []byte) (int, error) {
	// What was appended before; it also tells whether the log can be used.
	if err := l.Commit(); err != nil {
		return 0, err
	}
	p, err := l.appender.checkFrames(first, raw)
	if err != nil {
		l.appender.forget(0)
		return 0, fmt.Errorf("append frames at %d: %w", first, err)
	}
	if p.frames == 0 {
		return 0, nil
	}
	if err := l.appender.appendChecked(chunkfile.ChunkNumber(first), raw[p.skipped:], &p); err != nil {
		return 0, l.fail(fmt.Errorf("append frames at %d: %w", first, err))
	}
	return p.frames, l.Commit()
}

// pulled is what checkFrames found out about a run of frames.
type pulled struct {
	skipped   int // bytes of frames that the log has
	frames    int // frames that it has not
	first     uint64
	tail      event.Tail // after the last frame
	epoch     int64
	completes bool
}

func badFrames(format string, args ...any) error {
	return fmt.Errorf("%w: %s", event.ErrBadFrames, fmt.Sprintf(format, args...))
}

// checkFrames verifies frames, and notes in the appender what the index and the
// caches are to learn of those that are new. The bytes are read twice while they are in the
// processor's cache: for the checksums of the items and for the chain.
func (a *appender) checkFrames(first int64, raw []byte) (pulled, error) {
	p := pulled{epoch: a.epoch}
	if first < 0 || len(raw) == 0 || int64(len(raw)) > chunkfile.ChunkSize || chunkfile.ChunkNumber(first) != chunkfile.ChunkNumber(first+int64(len(raw))-1) {
		return p, badFrames("%d bytes at %d do not lie in one chunk", len(raw), first)
	}
	before, err := a.tailFor(first)
	if err != nil {
		return p, err
	}
	frames := chunkfile.Frames{Data: raw, Start: first, Before: before}
	for noted := 0; ; noted = len(a.entries) {
		before, isFirst := frames.Before, frames.At == 0
		f, err := frames.Next(a.noteRecord)
		switch {
		case err == io.EOF:
		case isFirst && errors.Is(err, chunkfile.ErrChain):
			// The peer's chain before it is not known: it may have been another one.
			return p, &event.OtherHistory{Position: first}
		case err != nil:
			return p, badFrames("%v", err)
		case f.Flags&^chunkfile.TrailerCompletesChunk != 0:
			return p, badFrames("the trailer of the frame at %d has flags %x that this program does not know", f.First, f.Flags)
		}
		if err != nil {
			break
		}
		switch {
		case f.Index <= a.tail.Index:
			a.forget(noted)
			p.skipped = frames.At
		case p.frames == 0 && before.Chain != a.tail.Chain:
			return p, &event.OtherHistory{Position: before.End}
		default:
			if p.frames == 0 {
				p.first = f.Index
			}
			if f.Term > before.Term {
				p.epoch = f.First
			}
			p.frames++
			p.completes = f.Completes
		}
	}
	p.tail = frames.Before
	if p.frames == 0 {
		return p, a.hasFrame(p.tail)
	}
	if number := chunkfile.ChunkNumber(first); (a.active == nil || a.active.number != number) && number != a.nextChunk() {
		return p, badFrames("chunk %d cannot be appended to", number)
	}
	return p, nil
}

// tailFor returns the tail of this log before the frame that is to begin at a position.
func (a *appender) tailFor(first int64) (tail event.Tail, err error) {
	defer chunkfile.GuardFaults(&err)()
	tail = a.tail
	if first >= tail.End {
		return tail, nil
	}
	v, err := a.view()
	if err != nil {
		return tail, err
	}
	defer v.release()
	tail, err = v.tailBefore(first, a.cluster)
	if event.IsCorruption(err) {
		if errors.Is(v.explain(first, true, err), event.ErrBadPosition) {
			return tail, &event.OtherHistory{Position: first}
		}
	}
	return tail, err
}

// hasFrame checks that the log holds the frame that ends with a tail.
func (a *appender) hasFrame(tail event.Tail) error {
	chain, ok, err := a.ChainAt(tail.End)
	if err == nil && (!ok || chain != tail.Chain) {
		err = &event.OtherHistory{Position: tail.End}
	}
	return err
}

// appendChecked writes verified frames at the log's end. Commit shows them.
func (a *appender) appendChecked(number int, raw []byte, p *pulled) error {
	if err := a.activate(number); err != nil {
		return err
	}
	if a.active.first == 0 {
		a.active.first = p.first
	}
	a.active.records += len(a.entries)
	if err := a.write(raw); err != nil {
		return err
	}
	a.tail, a.epoch = p.tail, p.epoch
	if p.completes {
		return a.completeActive(true)
	}
	return nil
}

// forget takes back all notes but the first n.
func (a *appender) forget(n int) {
	clear(a.items[n:])
	a.entries, a.ids, a.items = a.entries[:n], a.ids[:n], a.items[:n]
}
