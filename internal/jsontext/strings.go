package jsontext

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote returns the text of a string token, quotes included, that End or an
// iterator found. Without escapes the text is a part of raw itself; otherwise it
// is written to dst from its beginning, and into a new slice when dst is too
// small. Bytes that are not UTF-8 and surrogates without partner become U+FFFD.
func Unquote(dst, raw []byte) []byte {
	in := raw[1 : len(raw)-1 : len(raw)-1]
	if isPlain(in) {
		return in
	}
	return AppendUnquote(dst[:0], raw)
}

// isPlain reports whether the inside of a string token is its text: UTF-8 without escapes.
func isPlain(in []byte) bool {
	i := 0
	for ; i+8 <= len(in); i += 8 {
		if hit := unplain(binary.LittleEndian.Uint64(in[i:])); hit != 0 {
			break
		}
	}
	for ; i < len(in); i++ {
		if in[i] >= utf8.RuneSelf {
			return bytes.IndexByte(in[i:], '\\') < 0 && utf8.Valid(in[i:])
		}
		if in[i] == '\\' {
			return false
		}
	}
	return true
}

// unplain sets the high bit of the lowest of eight bytes that is a backslash or
// not ASCII. Bits above that one may be set too, and mean nothing.
func unplain(w uint64) uint64 {
	s := w ^ '\\'*ones
	return ((s-ones)&^s | w) & highs
}

// AppendUnquote appends the text of a string token to dst; see Unquote.
func AppendUnquote(dst, raw []byte) []byte {
	in := raw[1 : len(raw)-1]
	dst = slices.Grow(dst, len(in))
	for i := 0; i < len(in); {
		run := i
		for i+8 <= len(in) {
			if hit := unplain(binary.LittleEndian.Uint64(in[i:])); hit != 0 {
				i += bits.TrailingZeros64(hit) >> 3
				break
			}
			i += 8
		}
		for i < len(in) && in[i] < utf8.RuneSelf && in[i] != '\\' {
			i++
		}
		dst = append(dst, in[run:i]...)
		if i == len(in) {
			break
		}
		if in[i] != '\\' {
			r, n := utf8.DecodeRune(in[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		c := in[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(in[i:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if len(in)-i >= 6 && in[i] == '\\' && in[i+1] == 'u' {
					low = hex4(in[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string. It escapes what must be escaped and
// nothing more; bytes that are not UTF-8 become U+FFFD.
func AppendString[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	run := 0 // what lies between run and i is fit to be copied
	for i := 0; i < len(s); {
		for i+8 <= len(s) {
			w := s[i : i+8]
			word := uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 |
				uint64(w[4])<<32 | uint64(w[5])<<40 | uint64(w[6])<<48 | uint64(w[7])<<56
			if hit := stops(word) | word&highs; hit != 0 {
				i += bits.TrailingZeros64(hit) >> 3
				break
			}
			i += 8
		}
		if i == len(s) {
			break
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			if n := runeLen(s[i:]); n > 0 {
				i += n
				continue
			}
			dst = append(append(dst, s[run:i]...), "\uFFFD"...)
			i++
			run = i
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[run:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		run = i
	}
	return append(append(dst, s[run:]...), '"')
}

// runeLen returns the length of the character beyond ASCII that s begins with,
// or 0 when it does not begin with valid UTF-8.
func runeLen[T ~string | ~[]byte](s T) int {
	n, low, high := 0, byte(0x80), byte(0xBF) // bounds of the second byte
	switch c := s[0]; {
	case c < 0xC2:
		return 0
	case c < 0xE0:
		n = 2
	case c < 0xF0:
		n = 3
		if c == 0xE0 {
			low = 0xA0
		} else if c == 0xED {
			high = 0x9F
		}
	case c < 0xF5:
		n = 4
		if c == 0xF0 {
			low = 0x90
		} else if c == 0xF4 {
			high = 0x8F
		}
	}
	if n == 0 || len(s) < n || s[1] < low || s[1] > high {
		return 0
	}
	for i := 2; i < n; i++ {
		if s[i]&0xC0 != 0x80 {
			return 0
		}
	}
	return n
}
