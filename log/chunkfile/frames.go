package chunkfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/annalsdb/annals/event"
)

// Frame is one applied Raft entry as it was written: records, and the trailer that closes it.
type Frame struct {
	Trailer
	Records []byte
	Count   int    // of records
	Flags   uint16 // of the trailer
}

// Frames reads frames that lie one after the other as they were written. In rewritten files records
// may be gone or blanked: Chunk.CheckContent reads those.
type Frames struct {
	Data   []byte     // the frames
	Start  int64      // position of the first of them
	Before event.Tail // of the log before the next frame
	At     int        // offset in Data of the next frame
}

// ErrChain says that a frame does not continue the log before it.
var ErrChain = errors.New("chain does not match")

// ErrStub: frames contain no stubs, they are read as they were written.
var ErrStub = errors.New("a stub stands in a frame")

// Next reads the next frame and gives record each of its records, also those of a frame that turns
// out to be wrong. It checks every rule of the format: shape, checksum and position of each item,
// place, length, index, term and time of the frame, and its chain (ErrChain). Frames stay where
// they are when there is an error. At the end of the data it is io.EOF.
func (r *Frames) Next(record func(Item)) (f Frame, err error) {
	if r.At == len(r.Data) {
		return f, io.EOF
	}
	for at, time := r.At, r.Before.Time; ; {
		position := r.Start + int64(at)
		if at == len(r.Data) {
			return f, fmt.Errorf("the records at %d have no trailer", r.Start+int64(r.At))
		}
		it, err := ParseItem(r.Data[at:])
		if err == nil {
			err = it.Written(position)
		}
		if err != nil {
			return f, fmt.Errorf("item at %d: %w", position, err)
		}
		at += len(it)
		if it.IsRecord() {
			record(it)
			time = max(time, it.Time())
			f.Count++
			continue
		}
		f.Trailer, f.Records, f.Flags = it.Trailer(), r.Data[r.At:at-TrailerSize], it.Flags()
		if f.Length != len(f.Records) {
			return f, fmt.Errorf("the frame at %d has %d bytes of records, its trailer says %d", r.Start+int64(r.At), len(f.Records), f.Length)
		}
		if faults := f.Faults(r.Before); len(faults) > 0 {
			return f, faults[0]
		}
		if f.Time != time {
			return f, fmt.Errorf("the frame at %d has time %d, its records say %d", f.First, f.Time, time)
		}
		if f.Chain != NextChain(r.Before.Chain, f.First, f.Records) {
			return f, fmt.Errorf("frame at %d: %w", f.First, ErrChain)
		}
		r.At, r.Before = at, f.Tail()
		return f, nil
	}
}

// Written checks that an item is at its position in what was never rewritten.
func (it Item) Written(position int64) error {
	if it.IsStub() {
		return ErrStub
	}
	if it.Position() != position {
		return fmt.Errorf("position %d stands where %d belongs", it.Position(), position)
	}
	return nil
}

// Faults says what keeps a frame from being the next one of a log with a tail, its chain left
// aside. None is nil.
func (t *Trailer) Faults(before event.Tail) (faults []error) {
	if t.Length == 0 || t.Length > MaxFrameBytes {
		faults = append(faults, fmt.Errorf("the frame at %d is said to have %d bytes", t.First, t.Length))
	} else if want := Place(before.End, t.Length); t.First != want {
		faults = append(faults, fmt.Errorf("the frame begins at %d, but belongs at %d", t.First, want))
	}
	return append(faults, t.OrderFaults(before)...)
}

// OrderFaults is Faults where it is not known what lies before the frame.
func (t *Trailer) OrderFaults(before event.Tail) (faults []error) {
	if t.Index <= before.Index {
		faults = append(faults, fmt.Errorf("the Raft index %d follows %d", t.Index, before.Index))
	}
	if t.Term < before.Term {
		faults = append(faults, fmt.Errorf("the Raft term %d follows %d", t.Term, before.Term))
	}
	if t.Time < before.Time {
		faults = append(faults, fmt.Errorf("the time %d follows %d", t.Time, before.Time))
	}
	return faults
}

// Tail is the end of a log whose last frame this is.
func (t *Trailer) Tail() event.Tail {
	return event.Tail{End: EndBehind(t.First, t.Length, t.Completes), Chain: t.Chain, Index: t.Index, Term: t.Term, Time: t.Time}
}

// WholeFrames returns how many bytes at the start of raw are whole frames: as
// many as go into limit bytes, or one. With an error it returns where the first bad item stands.
func WholeFrames(raw []byte, first int64, limit int) (whole int, err error) {
	for at := 0; len(raw)-at >= RecordFixed; {
		size := int(Order.Uint32(raw[at:]))
		if size < RecordFixed || size > MaxFrameBytes {
			return at, fmt.Errorf("length %d of an item", size)
		}
		if size > len(raw)-at {
			break
		}
		it := Item(raw[at : at+size])
		at += size
		if it.IsRecord() {
			continue
		}
		if size != TrailerSize {
			return at - size, fmt.Errorf("trailer of %d bytes", size)
		}
		if t := it.Trailer(); t.First != first+int64(whole) || t.End() != first+int64(at) {
			return at - size, fmt.Errorf("the trailer closes a frame at %d of %d bytes, not that at %d", t.First, t.Length, first+int64(whole))
		}
		if whole > 0 && at > limit {
			break
		}
		whole = at
	}
	return whole, nil
}
