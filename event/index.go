package event

// IndexStatus is how far an index is, and how large.
type IndexStatus struct {
	IsBuilding  bool
	Position    int64 // it has all of the log before it
	LogEnd      int64
	Tables      int
	Bytes       int64 // of its tables, without their filters
	MemoryBytes int64 // of what is in no table yet

	Kinds         []IndexKind
	MalformedTags int64 // events in the log whose tags are malformed
}

// IndexKind is what an index has of one kind: category, type, correlation or tag.
type IndexKind struct {
	Name string
	// Keys is how many there are. Of tags and correlations there are only hashes: one in several
	// tables counts with each of them.
	Keys     int64
	Postings int64
}

// IndexNamesRead asks for a page of names.
type IndexNamesRead struct {
	Types         bool // not categories
	Prefix, After string
	Count         int // at most so many, above 0
}

// IndexNamesPage is a page of names. It may be shorter than asked for, even empty, though more
// follow: then Next is not "".
type IndexNamesPage struct {
	Names []IndexName
	Next  string // After of the next page; "" after the last one
}

// IndexName is a category or a type.
type IndexName struct {
	Name   string `json:"name"`
	Events int64  `json:"events"` // those included that reads do not show, until a scavenge
}
