// Package index maps (stream hash, event number) to positions of the log.
//
// It knows nothing of records or stream names. Streams whose names share a hash share their entries
// too: the caller confirms a hit against the record, so a collision costs time and never
// correctness.
//
// An index of positions alone, whose numbers are the positions, has tables of a packed shape, a
// sixth as large.
//
// New entries live in a table in memory that one goroutine writes and any number of readers read
// without locks. A background goroutine writes a full table to a sorted immutable file; a second
// one merges files by level. The text file indexmap names the live set and says up to which log
// position it is complete. Everything on disk is derived from the log: when the set is missing or
// damaged the index starts empty and the caller fills it again.
//
// Lock order: Index.addMu, then Index.commitMu, then Index.mu. mu is held for short sections only.
// commitMu alone is held during input and output, because it orders the replacements of indexmap.
// Readers take none.
//
// DESIGN.md shows the formats of all files.
package index
