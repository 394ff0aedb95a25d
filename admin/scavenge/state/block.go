package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/annalsdb/annals/event"
)

const (
	// blockBytes is how many bytes of streams a row holds at most when it is written, unless
	// they are those of one stream. With its name it is less than a quarter of a page of 16
	// KiB: SQLite puts larger rows into chains of pages.
	blockBytes = 3800

	// blockMost is how far a block grows before it is written, as several rows.
	blockMost = 16 * blockBytes
)

var errBlock = errors.New("not a list of streams")

// entry is a stream in a block: the length of its name, the name, the length of
// the rest in one byte, the rest. It shares the memory of the block.
type entry struct {
	name []byte
	data []byte // as Stream.append made it
	size int    // of all
}

// parseEntry returns the entry that b begins with.
func parseEntry(b []byte) (e entry, err error) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length >= uint64(len(b)-n) {
		return e, errBlock
	}
	at := n + int(length)
	e.name = b[n:at:at]
	e.size = at + 1 + int(b[at])
	if e.size > len(b) {
		return e, errBlock
	}
	e.data = b[at+1 : e.size : e.size]
	return e, nil
}

// appendEntry encodes a stream with its name. The rest is never longer than a byte tells.
func appendEntry(dst, name []byte, s *Stream) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	dst = append(dst, name...)
	at := len(dst)
	dst = s.append(append(dst, 0))
	dst[at] = byte(len(dst) - at - 1)
	return dst
}

// eachEntry gives f all entries of a block.
func eachEntry(b []byte, f func(e *entry) error) error {
	for len(b) > 0 {
		e, err := parseEntry(b)
		if err != nil {
			return err
		}
		if err := f(&e); err != nil {
			return err
		}
		b = b[e.size:]
	}
	return nil
}

// block is the row of a transaction under work: all streams with names from the row's key
// (included) up to the key of the row that follows (excluded). The rows thus cover all names, but
// for those before the first: they have a block of the empty key, which need not be there.
//
// A transaction that goes through streams in the order of their names loads and
// stores each row once, whatever it does to how many streams in it.
type block struct {
	loaded bool
	dirty  bool
	stored bool   // there is such a row
	key    []byte // of the row
	above  []byte // key of the row that follows
	last   bool   // none follows
	data   []byte

	// The place of a search: all entries before it have lower names than sought.
	sought []byte
	at     int
}

func (b *block) covers(name []byte) bool {
	return b.loaded && bytes.Compare(name, b.key) >= 0 && (b.last || bytes.Compare(name, b.above) < 0)
}

// find moves the place to the first entry with a name that is not lower. If that
// is the one of the name it is returned, else an entry without size.
func (b *block) find(name []byte) (entry, error) {
	if bytes.Compare(name, b.sought) < 0 {
		b.at = 0
	}
	b.sought = append(b.sought[:0], name...)
	for b.at < len(b.data) {
		e, err := parseEntry(b.data[b.at:])
		if err != nil {
			return entry{}, err
		}
		switch bytes.Compare(e.name, name) {
		case 0:
			return e, nil
		case 1:
			return entry{}, nil
		}
		b.at += e.size
	}
	return entry{}, nil
}

// replace puts something else in the place of an entry at the place of the search.
func (b *block) replace(size int, by []byte) {
	b.data = slices.Replace(b.data, b.at, b.at+size, by...)
	b.dirty = true
}

// piece returns the first part of what is to be stored, in rows of about the same size.
func piece(rest []byte) ([]byte, error) {
	rows := (len(rest) + blockBytes - 1) / blockBytes
	if rows <= 1 {
		return rest, nil
	}
	size := 0
	for share := len(rest) / rows; size < share; {
		e, err := parseEntry(rest[size:])
		if err != nil {
			return nil, err
		}
		if size > 0 && size+e.size > blockBytes {
			break
		}
		size += e.size
	}
	return rest[:size], nil
}

// enter makes the block that covers a name the one under work.
func (tx *Tx) enter(name []byte) error {
	b := &tx.d.block
	if b.covers(name) {
		return nil
	}
	if err := tx.leave(); err != nil {
		return err
	}
	st := tx.d.st.row
	b.stored, b.last, b.key, b.data = false, true, b.key[:0], b.data[:0]
	err := rows(st, func() error {
		b.stored = true
		b.key = append(b.key, st.ColumnRawBlob(0)...)
		b.data = append(b.data, st.ColumnRawBlob(1)...)
		return nil
	}, name)
	if err != nil {
		return err
	}
	next := tx.d.st.nextKey
	err = rows(next, func() error {
		b.last = false
		b.above = append(b.above[:0], next.ColumnRawBlob(0)...)
		return nil
	}, name)
	b.loaded, b.dirty, b.at, b.sought = err == nil, false, 0, b.sought[:0]
	return err
}

// leave stores the block under work, if there is one.
func (tx *Tx) leave() error {
	b := &tx.d.block
	if !b.loaded || !b.dirty {
		b.loaded = false
		return nil
	}
	b.loaded = false
	if len(b.data) == 0 {
		if !b.stored {
			return nil
		}
		return run(tx.d.st.removeRow, b.key)
	}
	key := b.key
	for rest := b.data; len(rest) > 0; {
		part, err := piece(rest)
		if err != nil {
			return tx.d.damage(err)
		}
		if err := run(tx.d.st.putRow, key, part); err != nil {
			return err
		}
		if rest = rest[len(part):]; len(rest) > 0 {
			next, err := parseEntry(rest)
			if err != nil {
				return tx.d.damage(err)
			}
			key = next.name
		}
	}
	return nil
}

// Status says whether the discard points of a stream can still move.
type Status uint8

// The states of a stream. They lie in the file: do not change them.
const (
	Active   Status = 0 // calculated again by each run
	Archived Status = 1 // has a tombstone: kept, not calculated again
	Spent    Status = 2 // has nothing to calculate any more; Cleaning deletes it
)

// Stream is what is known of a stream. The zero value, but for MetaNumber and
// MetaPosition, which are -1 then, is a stream of which nothing is known.
type Stream struct {
	Status       Status
	MetaNumber   int64 // of the newest metadata record, -1: none
	MetaPosition int64 // of the newest metadata record, -1: none
	event.Retention
	Tombstone   bool
	Discard     int64 // events with lower numbers are removed
	Maybe       int64 // events with lower numbers are removed if their time is before Cutoff
	Cutoff      int64 // nanoseconds since 1970
	MetaDiscard int64 // records of `$$name` with lower numbers are removed
}

// fields lists what a row holds after its flags, in the order of the bits that say which are
// there. The order is part of the format: append only.
func (s *Stream) fields() [9]*int64 {
	return [9]*int64{
		&s.MetaNumber, &s.MetaPosition, &s.MaxCount, (*int64)(&s.MaxAge), &s.TruncateBefore,
		&s.Discard, &s.Maybe, &s.Cutoff, &s.MetaDiscard,
	}
}

// Bits of the flags above those of the fields.
const (
	tombstoneFlag = 1 << 9
	statusShift   = 10
	statusMask    = 3
)

// absent is the value of a field that a row leaves out.
func absent(field int) int64 {
	if field < 2 {
		return -1
	}
	return 0
}

// append encodes the flags as a uvarint, then a varint for each field that has not
// its usual value. A stream with nothing but metadata needs about a dozen bytes.
func (s *Stream) append(dst []byte) []byte {
	fields := s.fields()
	flags := uint64(s.Status) << statusShift
	if s.Tombstone {
		flags |= tombstoneFlag
	}
	for i, v := range fields {
		if *v != absent(i) {
			flags |= 1 << i
		}
	}
	dst = binary.AppendUvarint(dst, flags)
	for i, v := range fields {
		if flags&(1<<i) != 0 {
			dst = binary.AppendVarint(dst, *v)
		}
	}
	return dst
}

// status returns the status of an encoded stream. Of what is damaged it may be any.
func statusOf(data []byte) Status {
	flags, _ := binary.Uvarint(data)
	return Status(flags >> statusShift & statusMask)
}

func (s *Stream) decode(data []byte) error {
	flags, n := binary.Uvarint(data)
	if n <= 0 || flags>>statusShift > uint64(Spent) {
		return fmt.Errorf("data %x", data)
	}
	*s = Stream{Status: Status(flags >> statusShift), Tombstone: flags&tombstoneFlag != 0}
	rest := data[n:]
	for i, v := range s.fields() {
		if flags&(1<<i) == 0 {
			*v = absent(i)
			continue
		}
		if *v, n = binary.Varint(rest); n <= 0 {
			return fmt.Errorf("field %d of data %x", i, data)
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes after the fields of data %x", len(rest), data)
	}
	return nil
}
