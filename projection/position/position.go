// Package position says how far a projection has read its sources: as numbers of
// streams, or as a place in the log. A Position is what checkpoints hold, what
// emitted events carry in their metadata and what ES-Position tells.
//
// As JSON (do not change; data on disk have it):
//
//	one stream, a category   {"$s":{"<stream>":n}}
//	several streams          {"$s":{"a":n,"b":m}}
//	the log                  {"$c":c,"$p":p}
//	the log, named types     {"$c":c,"$p":p,"$s":{"<type>":n}}
//	a query's second phase   {"$ph":1,"$cp":true}
//
// In stored metadata "$v":"<id>:<epoch>:<version>:4" comes first.
package position

import (
	"slices"
	"strconv"
)

// Number is how far one stream was read: the number of its last event that was read, -1 before the
// first. With a place in the log, Name is an event type and Number a hint into the stream of links
// to events of that type.
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

	// Phase is 1 for the results that a query writes once all is read; Completed says that it was
	// written.
	Phase     int
	Completed bool
}

// Version says which projection wrote something, and which version of it. All
// three are numbers of events: of the creation, of the definition that began the
// epoch (-1 as long as it was never reset), and of the definition that ran.
type Version struct {
	Projection, Epoch, Version int64
}

// Of returns the position before the first event of streams.
func Of(streams ...string) Position {
	p := Position{Numbers: make([]Number, len(streams))}
	for i, s := range streams {
		p.Numbers[i] = Number{s, -1}
	}
	return p
}

// OfLog returns the position before the first record of the log, of which the
// events of some types are read; none named: all.
func OfLog(types ...string) Position {
	p := Of(types...)
	p.Log, p.Prepare = true, -1
	if len(types) == 0 {
		p.Numbers = nil
	}
	return p
}

// Finished returns the position of the results that a query writes once all is read.
func Finished() Position { return Position{Phase: 1, Completed: true} }

// IsZero reports whether a position is before everything.
func (p Position) IsZero() bool {
	switch {
	case p.Phase != 0:
		return !p.Completed
	case p.Log:
		return p.Prepare < 0 && p.Commit <= 0
	}
	return !slices.ContainsFunc(p.Numbers, func(n Number) bool { return n.Number >= 0 })
}

// End is the position of the log before which all was read; 0 if the log does not decide.
func (p Position) End() int64 {
	switch {
	case !p.Log:
		return 0
	case p.Prepare >= p.Commit: // With the record that begins there.
		return p.Commit + 1
	}
	return p.Commit
}

// Number returns how far the stream (or type) of a name was read.
func (p Position) Number(name string) (n int64, ok bool) {
	i := slices.IndexFunc(p.Numbers, func(n Number) bool { return n.Name == name })
	if i < 0 {
		return 0, false
	}
	return p.Numbers[i].Number, true
}

// Equal reports whether two positions are the same. The order of streams does not count, nor do the
// hints of a place in the log.
func (p Position) Equal(q Position) bool {
	c, ok := Compare(p, q)
	return ok && c == 0
}

// String is the position as a text, as statistics show it.
func (p Position) String() string {
	var b []byte
	number := func(n Number) {
		b = append(append(b, n.Name...), ": "...)
		b = strconv.AppendInt(b, n.Number, 10)
	}
	switch {
	case p.Phase != 0:
		b = strconv.AppendInt(append(b, "Phase: "...), int64(p.Phase), 10)
		if p.Completed {
			b = append(b, " (completed)"...)
		}
	case p.Log:
		b = strconv.AppendInt(append(b, "C:"...), p.Commit, 10)
		b = strconv.AppendInt(append(b, "/P:"...), p.Prepare, 10)
		if len(p.Numbers) > 0 {
			b = append(b, "; "...)
		}
		for _, n := range p.Numbers {
			number(n)
			b = append(b, "; "...)
		}
	case len(p.Numbers) == 1:
		number(p.Numbers[0])
	default:
		for _, n := range p.Numbers {
			number(n)
			b = append(b, "; "...)
		}
	}
	return string(b)
}
