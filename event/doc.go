// Package event is the vocabulary that every other package shares: identifiers,
// stream names, expected versions, positions, committed records, proposed
// writes, pages of reads, and the errors that cross package borders.
//
// It holds plain types only. It starts no goroutine, does no input or output,
// and imports nothing but the standard library.
package event
