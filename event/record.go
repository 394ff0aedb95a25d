package event

import "time"

// Flags of a record. They are part of the log's format: do not change.
type Flags uint16

const (
	FlagJSON     Flags = 1 << 0 // the event is JSON: its data or its metadata was given as JSON
	FlagDeleted  Flags = 1 << 1 // the record is a tombstone
	FlagRedacted Flags = 1 << 9 // data was overwritten with 0xFF bytes on this node
)

// TombstoneNumber is the event number of a tombstone, and the value of $tb that
// means soft deletion.
const TombstoneNumber int64 = 1<<63 - 1

// Record is one event as the log holds it.
type Record struct {
	Position int64 // where the record begins in the log
	Next     int64 // where reading forward continues after it
	Stream   string
	Number   int64
	ID       ID
	Type     string
	Time     int64 // nanoseconds since 1970, UTC; given by the leader, never falling along the log
	Flags    Flags
	// Bare says that Data and Metadata are not here, whatever they are: the read had
	// reached its bound.
	Bare     bool
	LeftOut  uint32 // bytes of data and metadata that are not here, of a bare record
	Data     []byte
	Metadata []byte
}

// PayloadBytes is how many bytes of data and metadata the event has, here or not.
func (r *Record) PayloadBytes() int { return int(r.LeftOut) + len(r.Data) + len(r.Metadata) }

// Strip leaves the payload out.
func (r *Record) Strip() {
	r.LeftOut = uint32(r.PayloadBytes())
	r.Data, r.Metadata, r.Bare = nil, nil, true
}

// IsJSON reports whether the event was written as JSON.
func (r *Record) IsJSON() bool { return r.Flags&FlagJSON != 0 }

// IsRedacted reports whether this node overwrote the event's data.
func (r *Record) IsRedacted() bool { return r.Flags&FlagRedacted != 0 }

// When returns the record's time.
func (r *Record) When() time.Time { return time.Unix(0, r.Time).UTC() }

// Proposed is an event that a client wants to have written.
type Proposed struct {
	ID       ID
	Type     string
	Flags    Flags // FlagJSON or nothing
	Data     []byte
	Metadata []byte
}
