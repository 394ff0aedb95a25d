// Package position says how far a projection has read its sources: as numbers of
// streams, or as a place in the log. A Position is what checkpoints hold, what
// emitted events carry in their metadata and what ES-Position tells.
package position

// Number is how far one stream was read: the number of its last event that was
// read, -1 before the first. Beside a place in the log, Name is an event type and
// Number a hint into the stream of links to events of that type.
type Number struct {
	Name   string
	Number int64
}

// Position is how far a projection has read. Its slices are never changed once it was handed on.
type Position struct {
	// Log says that the place in the log decides. Commit and Prepare are the position
	// of the last record that was read; 0 and -1 before the first.
	Log             bool
	Commit, Prepare int64
	Numbers         []Number // in the order in which the sources were named

	// Phase is 1 for what a query writes once all is read; Completed says that it was written.
	Phase     int
	Completed bool
}

// Version says which projection wrote something, and which version of it. All
// three are numbers of events: of the creation, of the definition that began the
// epoch (-1 as long as it was never reset), and of the definition that ran.
type Version struct {
	Projection, Epoch, Version int64
}
