package event

// WriteKind says what a Write does.
type WriteKind uint8

const (
	Append     WriteKind = iota // append Events to Stream
	SoftDelete                  // hide the stream's events until something is appended again
	HardDelete                  // write the tombstone: the name is gone for good
)

// Write is one client's request to change one stream. It is written whole or not at all.
type Write struct {
	Kind            WriteKind
	Stream          string
	ExpectedVersion int64
	// Append only; without any the expected version is checked and nothing is written
	Events []Proposed
	// Late says that an append to a metadata stream is done even when what it describes has a
	// tombstone. It then says nothing about any stream, and no expected version keeps it from being
	// written (see IsLate).
	Late bool `json:",omitempty"`
}

// Size is the number of bytes the write asks to have stored, without overhead.
func (w *Write) Size() int {
	n := len(w.Stream)
	for i := range w.Events {
		e := &w.Events[i]
		n += len(e.Type) + len(e.Data) + len(e.Metadata)
	}
	return n
}

// Written is the answer to a Write that holds: now on disk on a quorum, applied and indexed on the
// leader.
//
// A deletion that hides a stream has the stream's last number as First and Last. An append of no
// events has the stream's last number as Last, -1 when there is none, and the next one as First.
type Written struct {
	First      int64 // number of the first event, of the earlier write when Idempotent
	Last       int64 // number of the last event
	Idempotent bool  // nothing was written: all of it had been written before
	// Position is where the last event of the write lies in the log (Record.Position), when
	// Idempotent that of the earlier write: of the event with the number Last, of the tombstone, or
	// of the metadata event that hides the stream. -1: no event was asked for, or it has been
	// removed since.
	Position int64
}
