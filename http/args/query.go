// Package args reads what requests say besides their paths: parameters of queries, control headers,
// and the members of an object in a body.
package args

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/annalsdb/annals/http/problem"
)

// Int reads an integer of a query; it is not ok when it is there and none,
// or out of bounds.
func Int(raw, name string, absent, least, most int) (n int, ok bool) {
	text, ok := Lookup(raw, name)
	if !ok {
		return absent, true
	}
	v, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil || int(v) < least || int(v) > most {
		return 0, false
	}
	return int(v), true
}

// Bool reads a boolean of a query, false when it is not there; it is not ok
// when it is there and none.
func Bool(raw, name string) (value, ok bool) {
	text, ok := Lookup(raw, name)
	if !ok {
		return false, true
	}
	return Flag(strings.TrimSpace(text))
}

// BoolOr reads a boolean of a query; any other value counts as absent.
func BoolOr(raw, name string, absent bool) bool {
	if v, ok := Flag(strings.TrimSpace(Value(raw, name))); ok {
		return v
	}
	return absent
}

// Value returns the value of a parameter of a raw query, empty when it is not there.
func Value(raw, name string) string {
	value, _ := Lookup(raw, name)
	return value
}

// Lookup returns the value of a parameter of a raw query and whether it is
// there; names compare without regard to case. The first one counts.
func Lookup(raw, name string) (value string, ok bool) {
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		key, value, _ := strings.Cut(pair, "=")
		if len(key) == len(name) && strings.EqualFold(key, name) {
			return Unescape(value), true
		}
	}
	return "", false
}

// MaxData reads how many bytes of data, and of metadata, an entry shows at most; -1: all.
func MaxData(raw string) (int, error) {
	v, ok := Lookup(raw, "maxData")
	if !ok {
		return -1, nil
	}
	n, ok := Number(v, math.MaxInt64)
	if !ok {
		return -1, problem.Bad("'" + v + "' is not valid maxData")
	}
	return int(min(n, math.MaxInt32)), nil
}

// Unescape decodes a value of a query; broken escapes stay as they are.
func Unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '+' {
			c = ' '
		} else if c == '%' && i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				c = byte(n)
				i += 2
			}
		}
		b = append(b, c)
	}
	return string(b)
}

// escapedName begins the text of a name that is not UTF-8.
const escapedName = "~~"

// NameText is a name as JSON text from which Name reads it again: itself, unless JSON would change
// it or it would be read as another one.
func NameText(name string) string {
	if utf8.ValidString(name) && !strings.HasPrefix(name, escapedName) {
		return name
	}
	return escapedName + url.PathEscape(name)
}

// Name reads a name that is given as it is, or as NameText made it.
func Name(text string) string {
	if escaped, ok := strings.CutPrefix(text, escapedName); ok {
		if name, err := url.PathUnescape(escaped); err == nil {
			return name
		}
	}
	return text
}
