// Package postings finds events by what they say of themselves: category, type, correlation id and
// tags.
//
// A posting is the hash of a key and the position of an event in the log. Postings lie in an index
// of package index, whose entries they are: the number of an entry is its position. This package
// keeps them up with the log (Index), and goes through those of several keys at a time (Walk). It
// knows nothing of records: the caller confirms what it finds, so hashes that collide cost time and
// never correctness.
//
// The names of categories and types lie in a list of package names, whose entries are the digit of
// the kind and the name.
//
// Lock order: Index.mu, then those of package index and of the dictionary.
package postings
