package xmljson

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// appendName appends s as the name of an element or attribute. Characters that a name may not hold
// at their place are written _xHHHH_ (eight digits beyond the basic plane), and an underscore that
// would read as the beginning of such an escape is escaped itself. A colon is escaped as well: it
// would need a namespace declaration.
func appendName[T ~string | ~[]byte](dst []byte, s T) []byte {
	if len(s) == 0 {
		return append(dst, '_')
	}
	for i := 0; i < len(s); {
		r, n := decodeRune(s[i:])
		switch {
		case r == '_' && escapeLen(s[i:]) > 0, !isNameStart(r) && (i == 0 || !isNameInner(r)):
			dst = appendNameEscape(dst, r)
		default:
			dst = append(dst, s[i:i+n]...)
		}
		i += n
	}
	return dst
}

func appendNameEscape(dst []byte, r rune) []byte {
	if r > 0xFFFF {
		return fmt.Appendf(dst, "_x%08X_", r)
	}
	return fmt.Appendf(dst, "_x%04X_", r)
}

// escapeLen returns the length of the escape that s begins with, or 0.
func escapeLen[T ~string | ~[]byte](s T) int {
	for _, n := range [...]int{7, 11} {
		if len(s) < n || s[0] != '_' || s[1] != 'x' || s[n-1] != '_' {
			continue
		}
		if _, err := strconv.ParseUint(string(s[2:n-1]), 16, 32); err == nil {
			return n
		}
	}
	return 0
}

// decodeName undoes appendName. Escapes that are not characters stay as they are.
func decodeName(s string) string {
	var out []byte
	run := 0
	for i := 0; i < len(s); i++ {
		n := escapeLen(s[i:])
		if n == 0 {
			continue
		}
		code, _ := strconv.ParseUint(s[i+2:i+n-1], 16, 32) // They are digits.
		if code > utf8.MaxRune || utf16.IsSurrogate(rune(code)) {
			continue
		}
		out = utf8.AppendRune(append(out, s[run:i]...), rune(code))
		i += n - 1
		run = i + 1
	}
	if run == 0 {
		return s
	}
	return string(append(out, s[run:]...))
}

// letters are letters that a name may begin with by every edition of XML 1.0.
// The first four editions allow fewer than the fifth, and many readers know
// them alone; a letter left out here is escaped, which all of them read.
var letters = [...][2]rune{
	{'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {0xC0, 0xD6}, {0xD8, 0xF6}, {0xF8, 0x131}, {0x134, 0x13E}, {0x141, 0x148}, {0x14A, 0x17E},
	{0x386, 0x386}, {0x388, 0x38A}, {0x38C, 0x38C}, {0x38E, 0x3A1}, {0x3A3, 0x3CE}, {0x401, 0x40C}, {0x40E, 0x44F}, {0x451, 0x45C},
	{0x45E, 0x481}, {0x5D0, 0x5EA}, {0x621, 0x63A}, {0x641, 0x64A}, {0x3041, 0x3094}, {0x30A1, 0x30FA}, {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3},
}

func isNameStart(r rune) bool {
	for _, span := range letters {
		if r <= span[1] {
			return r >= span[0]
		}
	}
	return false
}

func isNameInner(r rune) bool { return '0' <= r && r <= '9' || r == '-' || r == '.' }
