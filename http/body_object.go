package httpapi

import (
	"bytes"
	"strings"

	"github.com/annalsdb/annals/internal/jsontext"
)

// memberValue is the value of a member as it was written. One that is not there is Invalid.
type memberValue struct {
	raw  []byte
	kind jsontext.Kind
}

// isGiven reports whether the member is there; null is as not there.
func (v memberValue) isGiven() bool { return v.kind != jsontext.Invalid && v.kind != jsontext.Null }

// text returns a text without its quotes.
func (v memberValue) text() string { return string(jsontext.Unquote(nil, v.raw)) }

// decodeObject takes a JSON object apart: into values go those of the members that
// names has at the same places. Names count in any case, of members of one name
// the last; others are ignored. It reports false for anything but an object.
func decodeObject(body []byte, names []string, values []memberValue) bool {
	body = bytes.TrimPrefix(body, byteOrderMark)
	if !jsontext.ValidUTF8(body) || !jsontext.IsObject(body) {
		return false
	}
	for m := jsontext.ObjectAt(body, jsontext.Space(body, 0)); m.Next(); {
		if i := nameIn(names, string(jsontext.Unquote(nil, m.Name))); i >= 0 {
			values[i] = memberValue{m.Value, m.Kind}
		}
	}
	return true
}

// nameIn returns the place of a name in any case, -1 when it is none of them.
func nameIn(names []string, name string) int {
	for i := range names {
		if strings.EqualFold(name, names[i]) {
			return i
		}
	}
	return -1
}
