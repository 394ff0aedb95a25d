// Package names lists the names of streams in two orders, by name and by when the streams were
// made, out of files that are a copy of what the log has. DESIGN.md says why and how.
//
// A segment holds some names. It is written once and never changed. All numbers are little-endian.
//
//	segment   magic (8) · entries · sorted · foot
//	entry     length (2) · name · length (2)                 by when the stream was made, the oldest first
//	sorted    offset of an entry, from the first one (8)     one for each entry, by name, bytes compared
//	foot      bytes of entries (8) · XXH3-64 of all before (8)
//
// The file segments names the live ones, the oldest first, and how far the log was looked at. It is
// JSON and replaced whole.
package names
