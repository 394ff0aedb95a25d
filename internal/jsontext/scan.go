package jsontext

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Valid reports whether b is one JSON value with nothing but white space around it.
func Valid(b []byte) bool {
	end, kind := End(b, Space(b, 0))
	return kind != Invalid && Space(b, end) == len(b)
}

// ValidUTF8 reports whether b is valid, and UTF-8 in its strings too: readers of a
// document with other bytes in it refuse it whole.
func ValidUTF8(b []byte) bool { return Valid(b) && utf8.Valid(b) }

// IsObject reports whether b is one valid JSON object with nothing but white space around it.
func IsObject(b []byte) bool {
	end, kind := End(b, Space(b, 0))
	return kind == Object && Space(b, end) == len(b)
}

// Space returns the offset of the first byte, from at on, that is not white space, or len(b).
func Space(b []byte, at int) int {
	for at < len(b) && isSpace(b[at]) {
		at++
	}
	return at
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// End returns the offset after the value that begins at b[at], and its kind. The caller has skipped
// white space before it. When no valid value begins there the kind is Invalid and the offset is at.
// What follows the value is not looked at.
func End(b []byte, at int) (end int, kind Kind) {
	if uint(at) >= uint(len(b)) {
		return at, Invalid
	}
	switch c := b[at]; c {
	case '"':
		end, kind = stringEnd(b, at+1), String
	case '{':
		end, kind = containerEnd(b, at), Object
	case '[':
		end, kind = containerEnd(b, at), Array
	default:
		end, kind = scalarEnd(b, at)
	}
	if end < 0 {
		return at, Invalid
	}
	return end, kind
}

// containerEnd returns the offset after the object or array that begins at b[i], or -1. It does not
// recurse, so depth costs no stack: each open level is one bit, 1 for an object, the innermost
// lowest. Levels beyond 64 spill into a slice, a word at a time.
func containerEnd(b []byte, i int) int {
	var (
		open  uint64
		spill []uint64
		depth int
		c     byte
	)

value: // A value must begin at i, or after white space there.
	if i >= len(b) {
		return -1
	}
	c = b[i]
	if c <= ' ' {
		if i = Space(b, i); i >= len(b) {
			return -1
		}
		c = b[i]
	}
	switch c {
	case '"':
		if i = stringEnd(b, i+1); i < 0 {
			return -1
		}
	case '{', '[':
		if depth == MaxDepth {
			return -1
		}
		if depth > 0 && depth&63 == 0 {
			spill = append(spill, open)
		}
		depth++
		open <<= 1
		if i = Space(b, i+1); i >= len(b) {
			return -1
		}
		if c == '{' {
			open |= 1
			if b[i] != '}' {
				goto name
			}
		} else if b[i] != ']' {
			goto value
		}
		goto after // An empty one: the closing bracket is at i.
	default:
		if i, _ = scalarEnd(b, i); i < 0 {
			return -1
		}
	}

after: // A value ended before i.
	if i >= len(b) {
		return -1
	}
	c = b[i]
	if c <= ' ' {
		if i = Space(b, i); i >= len(b) {
			return -1
		}
		c = b[i]
	}
	i++
	if c == ',' {
		if open&1 == 0 {
			goto value
		}
		goto name
	}
	if c != '}' && c != ']' || (c == '}') != (open&1 == 1) {
		return -1
	}
	if depth--; depth == 0 {
		return i
	}
	open >>= 1
	if depth&63 == 0 {
		open, spill = spill[len(spill)-1], spill[:len(spill)-1]
	}
	goto after

name: // A member's name must begin at i, or after white space there.
	if i < len(b) && b[i] <= ' ' {
		i = Space(b, i)
	}
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	if i = stringEnd(b, i+1); i < 0 {
		return -1
	}
	if i < len(b) && b[i] <= ' ' {
		i = Space(b, i)
	}
	if i >= len(b) || b[i] != ':' {
		return -1
	}
	i++
	goto value
}

// scalarEnd returns the offset after the number or literal that begins at b[i], or -1.
func scalarEnd(b []byte, i int) (int, Kind) {
	switch b[i] {
	case 't':
		if len(b)-i >= 4 && string(b[i:i+4]) == "true" {
			return i + 4, True
		}
	case 'f':
		if len(b)-i >= 5 && string(b[i:i+5]) == "false" {
			return i + 5, False
		}
	case 'n':
		if len(b)-i >= 4 && string(b[i:i+4]) == "null" {
			return i + 4, Null
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return numberEnd(b, i), Number
	}
	return -1, Invalid
}

// numberEnd returns the offset after the number that begins at b[i], or -1.
func numberEnd(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else {
		digits := i
		if i = digitsEnd(b, i); i == digits {
			return -1
		}
	}
	if i < len(b) && b[i] == '.' {
		digits := i + 1
		if i = digitsEnd(b, digits); i == digits {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		digits := i
		if i = digitsEnd(b, i); i == digits {
			return -1
		}
	}
	return i
}

func digitsEnd(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// stringEnd returns the offset after the closing quote of the string whose first character is at
// b[i], or -1.
func stringEnd(b []byte, i int) int {
	for {
		for {
			if i+8 > len(b) {
				for i < len(b) && b[i] >= 0x20 && b[i] != '"' && b[i] != '\\' {
					i++
				}
				break
			}
			if hit := stops(binary.LittleEndian.Uint64(b[i:])); hit != 0 {
				i += bits.TrailingZeros64(hit) >> 3
				break
			}
			i += 8
		}
		if i >= len(b) {
			return -1
		}
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			if i = escapeEnd(b, i+1); i < 0 {
				return -1
			}
		default: // A control character.
			return -1
		}
	}
}

// escapeEnd returns the offset after the escape whose backslash lies before b[i], or -1.
func escapeEnd(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if len(b)-i >= 5 && hex4(b[i+1:]) >= 0 {
			return i + 5
		}
	}
	return -1
}

// hex4 returns the value of the four hexadecimal digits that b begins with, or -1.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// stops sets the high bit of the lowest of eight bytes that ends a run of plain
// string characters: a quote, a backslash or a control character. Bits above
// that one may be set too, and mean nothing. Flipping bit 1 turns the quote into
// 0x20 and keeps the control characters below it, so one comparison finds both.
func stops(w uint64) uint64 {
	q := w ^ 0x02*ones
	s := w ^ '\\'*ones
	return ((q-0x21*ones)&^q | (s-ones)&^s) & highs
}
