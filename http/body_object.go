package httpapi

import (
	"bytes"
	"strings"

	"github.com/annalsdb/annals/internal/jsontext"
)

// members are those of an object that have a meaning, by name.
type members map[string]memberValue

// memberValue is the value of a member as it was written. One that is not there is Invalid.
type memberValue struct {
	raw  []byte
	kind jsontext.Kind
}

// isGiven reports whether the member is there; null is as not there.
func (v memberValue) isGiven() bool { return v.kind != jsontext.Invalid && v.kind != jsontext.Null }

// text returns a text without its quotes.
func (v memberValue) text() string { return string(jsontext.Unquote(nil, v.raw)) }

// decodeObject takes a JSON object apart into the members with one of the names. Names
// count in any case, of members of one name the last; others are ignored. It reports
// false for anything but an object.
func decodeObject(body []byte, names ...string) (members, bool) {
	body = bytes.TrimPrefix(body, byteOrderMark)
	if !jsontext.ValidUTF8(body) || !jsontext.IsObject(body) {
		return nil, false
	}
	values := members{}
	for m := jsontext.ObjectAt(body, jsontext.Space(body, 0)); m.Next(); {
		if name := nameIn(names, string(jsontext.Unquote(nil, m.Name))); name != "" {
			values[name] = memberValue{m.Value, m.Kind}
		}
	}
	return values, true
}

// nameIn returns the one of the names that a name in any case is, empty when it is none of them.
func nameIn(names []string, name string) string {
	for _, one := range names {
		if strings.EqualFold(name, one) {
			return one
		}
	}
	return ""
}

func mustBe(name, what string) error { return badRequest(name + " must be " + what + ".") }
