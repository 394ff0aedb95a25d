package event

// StreamRead asks for a page of one stream.
type StreamRead struct {
	Stream string
	From   int64 // first number, included; Head (backward only) for the newest event
	Count  int   // at most so many events, above 0
	// MaxScan is how many numbers are looked at for them. Count if that is more, so that 0 means a
	// page of numbers, of which some may have no event.
	MaxScan  int
	Backward bool
	// Links resolves the links of the page whose targets its caller may see: the others are
	// LinkDead. nil: links are shown as they are.
	Links LinkReader
	// MaxPayload bounds the bytes of data and metadata that are read along, those of
	// resolved links included. Events beyond it come Bare. 0 means no bound.
	MaxPayload int
	// Room is where the page is read into. nil: it gets memory of its own.
	Room *Room
}

// Span is how many numbers the page may look at.
func (r *StreamRead) Span() int64 { return int64(max(r.Count, r.MaxScan)) }

// AllRead asks for a page of the log.
type AllRead struct {
	// From is a position. Reading forward begins with the record at From, reading
	// backward with the record that ends at From. End means the end of the log, and
	// so does a position beyond it when reading backward.
	From     int64
	After    bool // forward: without the record that begins at From, if it is there
	Count    int  // at most so many events, above 0
	Backward bool
	Links    LinkReader // as in StreamRead
	// Filter, when not nil, chooses the events by stream and type; others do not count.
	// The strings are valid only during the call. When it fails, the page ends before that record,
	// and Page.Failed is why.
	Filter func(stream, eventType string) (bool, error)
	// Names, when not nil, says which events Filter may choose, so that they can be found by the
	// index of postings where that costs less than to look at each record. The page has the same
	// events and ends at the same place, unless MaxScan ends it: Looked counts fewer records.
	Names *FilterNames
	// Query, when not nil, asks for events by what they say of themselves, as reads of their
	// streams show them now, and those alone that Links may see; nil: all. They are found by the
	// index of postings; Filter is not looked at. Any position may be given, and reading backward
	// begins with what lies before it. The error is an *IndexBuilding while the index does not have
	// all of the log.
	Query *Query
	Plan  *Plan // is made what was done to find them; nil: it is not asked for
	// MaxScan bounds the records looked at; 0 means no bound. Page.More and Page.Next tell where to
	// continue.
	MaxScan int
	// MaxPayload and Room are as in StreamRead.
	MaxPayload int
	Room       *Room
}

// FilterNames says of which names the events are that a filter chooses; it chooses no others. One
// reader at a time may use it.
type FilterNames struct {
	NameFilter
	OfStream bool // the names are those of streams, else of types
	Kept     any  // of the log: what it found out for a page, for those that follow
}

// NameFilter chooses names. The calls may come from any goroutine.
type NameFilter interface {
	Prefixes() []string              // each name that is chosen begins with one; nil: not known
	Match(name string) (bool, error) // whether it is chosen
}

// Chooses reports whether a page shows an event of a stream and a type.
func (r *AllRead) Chooses(stream, eventType string) (bool, error) {
	if !ShownInAll(stream) || r.Filter == nil {
		return ShownInAll(stream), nil
	}
	return r.Filter(stream, eventType)
}

// StreamInfo is what is known of a stream without reading its events.
type StreamInfo struct {
	Last        int64 // number of the last event ever written, -1 when there is none
	HardDeleted bool
	MetaLast    int64    // number of the last metadata event, -1 when there is none
	Metadata    Metadata // as the last metadata event says
}

// Exists reports whether reads of the stream find it: it has events and is not deleted.
func (i *StreamInfo) Exists() bool {
	return i.Last >= 0 && !i.HardDeleted && !i.Metadata.SoftDeleted()
}

// NamesRead asks for a page of the names of streams.
type NamesRead struct {
	Prefix  string
	After   string // the last name of the page before; "" for the first page
	Count   int    // at most so many, above 0
	Created bool   // the stream made last comes first; else by name, bytes compared
}

// NamesPage is a page of the names of streams. It may be shorter than asked for, even empty,
// though more follow: then Next is not "".
type NamesPage struct {
	Streams []NamedStream
	Next    string // After of the next page; "" after the last one
}

// NamedStream is a stream that has, or had, events.
type NamedStream struct {
	Name        string
	Last        int64 // number of the last event ever written; -1: none is left
	HardDeleted bool
	SoftDeleted bool
}
