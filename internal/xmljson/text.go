package xmljson

import "unicode/utf8"

const replacement = "\uFFFD"

// AppendText appends s as the text of an element: markup is escaped, and what
// XML 1.0 does not allow becomes U+FFFD.
func AppendText[T ~string | ~[]byte](dst []byte, s T) []byte { return appendEscaped(dst, s, false) }

// AppendAttribute appends s as the value of an attribute in double quotes. Line
// feeds and tabs are escaped too, for a reader would make spaces of them.
func AppendAttribute[T ~string | ~[]byte](dst []byte, s T) []byte {
	return appendEscaped(dst, s, true)
}

func appendEscaped[T ~string | ~[]byte](dst []byte, s T, attribute bool) []byte {
	run := 0 // what lies between run and i is fit to be copied
	for i := 0; i < len(s); {
		var escaped string
		n := 1
		switch c := s[i]; {
		case c == '&':
			escaped = "&amp;"
		case c == '<':
			escaped = "&lt;"
		case c == '>':
			escaped = "&gt;"
		case c == '"':
			if attribute {
				escaped = "&quot;"
			}
		case c == '\r':
			escaped = "&#xD;"
		case c == '\n':
			if attribute {
				escaped = "&#xA;"
			}
		case c == '\t':
			if attribute {
				escaped = "&#x9;"
			}
		case c < 0x20:
			escaped = replacement
		case c >= utf8.RuneSelf:
			var r rune
			r, n = decodeRune(s[i:])
			if r == utf8.RuneError && n == 1 || r == 0xFFFE || r == 0xFFFF {
				escaped = replacement
			}
		}
		if escaped != "" {
			dst = append(append(dst, s[run:i]...), escaped...)
			run = i + n
		}
		i += n
	}
	return append(dst, s[run:]...)
}

func decodeRune[T ~string | ~[]byte](s T) (rune, int) {
	return utf8.DecodeRuneInString(string(s[:min(len(s), utf8.UTFMax)]))
}
