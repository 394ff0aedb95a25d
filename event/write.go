package event

// WriteKind says what a Write does.
type WriteKind uint8

const (
	Append     WriteKind = iota // append Events to Stream
	SoftDelete                  // hide the stream's events until something is appended again
	HardDelete                  // write the tombstone: the name is gone for good
	AppendMany                  // append Events as Many says
)

// Write is one request to change one stream, or several. It is written whole or not at all.
type Write struct {
	Kind            WriteKind
	Stream          string
	ExpectedVersion int64
	// Append and AppendMany only; an Append without any has its expected version checked and writes
	// nothing
	Events []Proposed
	// AppendMany only, which has no Stream and no ExpectedVersion
	Many *Many `json:",omitempty"`
	// Late says that an append to a metadata stream is done even when what it describes has a
	// tombstone. It then says nothing about any stream, and no expected version keeps it from being
	// written (see IsLate).
	Late bool `json:",omitempty"`
}

// Many says where the events of an AppendMany go, and what must hold. The events of one stream get
// rising numbers in their order.
type Many struct {
	Streams []string // the written ones, each once, in the order of their first events
	Of      []int32  // for each event the index of its stream in Streams
	Checks  []Check
	// all hold, or nothing is written
	Conditions []Condition `json:",omitempty"`
}

// Condition holds if no event that a query asks for lies at a higher position than After, and is
// visible. What it is about stands in one order with all writes.
type Condition struct {
	Query Query
	After int64 // -1: no event at all
	// what the leader found out before the write was decided; it does not travel
	Looked *Looked `json:"-" codec:"-"`
}

// Looked is what a look at the applied log says of a condition.
type Looked struct {
	Clear  int64 // no visible event that lies before it fails the condition
	Passed []Passed
}

// Passed is a stream of which events before Looked.Clear match and are hidden, by its metadata
// event with a number: other metadata may show them.
type Passed struct {
	Stream   string
	MetaLast int64
}

// Hit is an event that a query found.
type Hit struct {
	Position int64
	Stream   string
	Number   int64
	ID       ID
	Type     string
	Time     int64
	ByLabels bool // without its tags and its correlation id it would not be found
}

// Check is what a stream, written or not, must be like. Each stream has at most one.
type Check struct {
	Stream string
	// as the expected version of a Write but for AnyVersion, or SoftDeleted, or Tombstoned
	Expected int64
}

// Size is the number of bytes the write asks to have stored, without overhead.
func (w *Write) Size() int {
	n := len(w.Stream)
	if m := w.Many; m != nil {
		for _, i := range m.Of {
			n += len(m.Streams[i])
		}
		for i := range m.Checks {
			n += len(m.Checks[i].Stream)
		}
	}
	for i := range w.Events {
		e := &w.Events[i]
		n += len(e.Type) + len(e.Data) + len(e.Metadata)
	}
	return n
}

// StreamOf is the stream that an event of the write goes to, by its index. It is "" where the write
// does not say so.
func (w *Write) StreamOf(i int) string {
	if w.Many == nil {
		return w.Stream
	}
	if i < len(w.Many.Of) {
		if at := int(w.Many.Of[i]); at >= 0 && at < len(w.Many.Streams) {
			return w.Many.Streams[at]
		}
	}
	return ""
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
	// of an AppendMany what each of its streams got, in the order of Many.Streams; First and Last
	// are 0
	Streams []Span `json:",omitempty"`
}

// Span is a run of event numbers, both ends included.
type Span struct{ First, Last int64 }
