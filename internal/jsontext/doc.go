// Package jsontext scans, walks and writes JSON text in place.
//
// It builds no tree and allocates nothing on the way: a value is a span of the
// caller's bytes, found by [End] or by the iterators [Members] and [Elements],
// and every byte of a text is looked at once. What counts as JSON is what
// RFC 8259 says and encoding/json.Valid accepts: no control characters inside
// strings, only the listed escapes, surrogate escapes need no partner, bytes
// inside strings need not be UTF-8, and nesting is bounded by [MaxDepth].
package jsontext

// MaxDepth is how deep objects and arrays may nest. Deeper text is not valid.
const MaxDepth = 10000

// Kind says what a value is.
type Kind uint8

const (
	Invalid Kind = iota // not a value
	Object
	Array
	String
	Number
	True
	False
	Null
)
