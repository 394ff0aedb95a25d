package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"runtime/debug"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// Decision says which records of a stream have to go.
type Decision struct {
	Discard int64 // those with lower numbers
	Maybe   int64 // those with lower numbers whose time is before Cutoff
	Cutoff  int64 // nanoseconds since 1970
}

// NamedDecision is a decision and the stream it is about.
type NamedDecision struct {
	Name []byte // borrowed until Decisions.Close
	Decision
}

// Decisions holds what was decided about all streams, and about their metadata
// streams, at one moment. It never changes and is safe for concurrent use.
//
// Looking something up touches the file, mapped into memory, in one place for a
// miss and in two for a hit. A lookup must run under Guard.
type Decisions struct {
	data    []byte // the file
	table   []byte // of data: the slots
	home    uint64 // slots that are a hash's first choice; after them are only overflow slots
	records int64  // where the table begins
	n       int64

	hash  func([]byte) uint64
	wrong atomic.Pointer[event.Corruption]

	fs      vfs.FS
	path    string
	mapping vfs.Mapping // nil: data is in memory
	closed  atomic.Bool
}

// A slot is 8 bytes: the place of a record in the low bits, some bits of the
// hash above. No record is at 0, so 0 is a free slot.
const (
	slotSize  = 8
	tagBits   = 24
	placeBits = 64 - tagBits
	placeMask = 1<<placeBits - 1
)

// recordSum is how many bytes of a checksum lead each record.
const recordSum = 4

func hashName(name []byte) uint64 { return xxh3.Hash(name) }

// slotOf returns the home of a hash among n slots: its highest bits, so that slots are in the order
// of the hashes.
func slotOf(hash, n uint64) uint64 {
	hi, _ := bits.Mul64(hash, n)
	return hi
}

// slotFor makes a slot. The tag is made of the lowest bits, as those of one slot share the highest.
func slotFor(hash uint64, place int64) uint64 { return hash<<placeBits | uint64(place) }

// search goes through the records whose slots could be those of a hash.
type search struct {
	at  uint64 // in the table
	tag uint64 // where it is in a slot
}

func (t *Decisions) search(hash uint64) search {
	return search{at: slotOf(hash, t.home) * slotSize, tag: hash << placeBits}
}

// next returns the place of the next record, 0 when there is none.
func (t *Decisions) next(s *search) uint64 {
	for s.at < uint64(len(t.table)) {
		slot := binary.LittleEndian.Uint64(t.table[s.at:])
		if slot == 0 {
			return 0
		}
		s.at += slotSize
		if (slot^s.tag)>>placeBits == 0 {
			return slot & placeMask
		}
	}
	t.corrupt(int64(len(t.data)), "the last slot is not free")
	return 0
}

// Find returns the decision about a stream; ok is false when nothing of it goes.
func (t *Decisions) Find(name []byte) (d Decision, ok bool) {
	s := t.search(t.hash(name))
	for place := t.next(&s); place != 0; place = t.next(&s) {
		if found, d, ok := t.record(place); ok && string(found) == string(name) {
			return d, true
		}
	}
	return Decision{}, false
}

// ByHash appends to dst the decisions about all streams whose names have a hash.
func (t *Decisions) ByHash(dst []NamedDecision, hash uint64) []NamedDecision {
	s := t.search(hash)
	for place := t.next(&s); place != 0; place = t.next(&s) {
		if name, d, ok := t.record(place); ok && t.hash(name) == hash {
			dst = append(dst, NamedDecision{Name: name, Decision: d})
		}
	}
	return dst
}

// record decodes the record at a place. A damaged record is not a decision: its stream stays as it
// is, and Err reports the damage.
func (t *Decisions) record(place uint64) (name []byte, d Decision, ok bool) {
	if place >= uint64(t.records) {
		t.corrupt(int64(place), "a slot points past the records")
		return nil, d, false
	}
	b := t.data[place:t.records]
	name, d, size := parseRecord(b)
	if size == 0 || binary.LittleEndian.Uint32(b) != uint32(xxh3.Hash(b[recordSum:size])) {
		t.corrupt(int64(place), "the record of a decision has a bad checksum")
		return nil, Decision{}, false
	}
	return name, d, true
}

func (t *Decisions) corrupt(at int64, detail string) {
	t.wrong.CompareAndSwap(nil, &event.Corruption{File: t.path, Offset: at, Detail: detail})
}

// appendRecord encodes a decision: checksum, length of the name, name, Discard,
// Maybe, and Cutoff if there is a Maybe.
func appendRecord(dst []byte, name []byte, d Decision) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	dst = append(dst, name...)
	dst = binary.AppendUvarint(dst, uint64(d.Discard))
	dst = binary.AppendUvarint(dst, uint64(d.Maybe))
	if d.Maybe != 0 {
		dst = binary.AppendVarint(dst, d.Cutoff)
	}
	binary.LittleEndian.PutUint32(dst[start:], uint32(xxh3.Hash(dst[start+recordSum:])))
	return dst
}

// parseRecord returns the size of the record that b begins with, 0 when it is none. It does not
// look at the checksum.
func parseRecord(b []byte) (name []byte, d Decision, size int) {
	at := recordSum
	if at > len(b) {
		return nil, d, 0
	}
	length, n := binary.Uvarint(b[at:])
	at += n
	if n <= 0 || length > uint64(len(b)-at) {
		return nil, d, 0
	}
	name = b[at : at+int(length) : at+int(length)]
	at += int(length)
	discard, n := binary.Uvarint(b[at:])
	at += max(n, 0)
	maybe, m := binary.Uvarint(b[at:])
	at += max(m, 0)
	if n <= 0 || m <= 0 {
		return nil, d, 0
	}
	d.Discard, d.Maybe = int64(discard), int64(maybe)
	if d.Maybe != 0 {
		if d.Cutoff, n = binary.Varint(b[at:]); n <= 0 {
			return nil, d, 0
		}
		at += n
	}
	return name, d, at
}

// Err returns an error once a damaged record was met. It counts as no decision,
// thus what was done since is right but perhaps not all that was to be done.
func (t *Decisions) Err() error {
	if c := t.wrong.Load(); c != nil {
		return c
	}
	return nil
}

// Guard makes err, when nil, tell what is wrong with the decisions when the
// function returned is called, and turns a fault while reading them (the disk
// did not deliver, or the file was cut from outside) into such an error instead of the end of
// the process. It works for the goroutine that calls it: once for a phase of work,
// not for each lookup. Use: defer t.Guard(&err)().
func (t *Decisions) Guard(err *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			fault, ok := r.(interface {
				error
				Addr() uintptr
			})
			if !ok {
				panic(r)
			}
			t.corrupt(-1, "reading it, or another mapped file, faulted: "+fault.Error())
			*err = t.Err()
		}
		if *err == nil {
			*err = t.Err()
		}
	}
}

// Close gives the memory back and removes the file. Nothing may be looked up then.
func (t *Decisions) Close() error {
	if t.closed.Swap(true) {
		return nil
	}
	t.data, t.table = nil, nil
	var errs []error
	if t.mapping != nil {
		errs = append(errs, t.mapping.Close())
	}
	if err := t.fs.Remove(t.path); !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the decisions of the scavenge state: %w", err)
	}
	return nil
}
