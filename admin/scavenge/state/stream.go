package state

import (
	"encoding/binary"
	"fmt"

	"github.com/annalsdb/annals/event"
)

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
