// Package postings finds events by what they say of themselves: category, type, correlation id and
// tags.
//
// A posting is the hash of a key and the position of an event in the log. Postings lie in an index
// of package index, whose entries they are: the number of an entry is its position. This package
// keeps them up with the log (Index), and goes through those of several keys at a time (Walk). It
// knows nothing of records: the caller confirms what it finds, so hashes that collide cost time and
// never correctness.
//
// Dictionary has the names of all categories and types, which the index does not have, with the
// number of events of each. Its file names is replaced whole. All numbers are little-endian.
//
//	names     magic (8) · entries · sorted · foot
//	entry     count (8) · length (2) · name             the categories, then the types, each by name
//	sorted    offset of an entry, from the first one (8)     one for each entry, in the same order
//	foot      position (8) · chain (16) · categories (8) · types (8) · XXH3-64 of all before (8)
//
// While a scavenge removes events, the empty file recount lies next to it: the counts are then of
// no use to the next start.
//
// Lock order: Index.mu, then those of package index.
package postings
