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
	Events          []Proposed // Append only; at least one
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

// Written is the answer to a Write that holds: now on disk on a quorum, applied and indexed on the leader.
type Written struct {
	First      int64 // number of the first event, of the earlier write when Idempotent
	Last       int64 // number of the last event
	Idempotent bool  // nothing was written: all of it had been written before
}
