package httpapi

import (
	"bytes"
	"strings"

	"github.com/annalsdb/annals/internal/jsontext"
)

// members are those of an object that have a meaning. Reading continues after a wrong member. The
// result counts only if no member was wrong.
type members struct {
	values map[string]memberValue
	others []string // names of the others, which mean nothing
	err    error    // about the first one that is wrong
}

// wrong tells of a member that is wrong; nil: it is not.
func (m *members) wrong(err error) {
	if m.err == nil {
		m.err = err
	}
}

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
// count in any case, of members of one name the last; others are ignored. Anything but an
// object is the error.
func decodeObject(body []byte, none error, names ...string) *members {
	body = bytes.TrimPrefix(body, byteOrderMark)
	if !jsontext.ValidUTF8(body) || !jsontext.IsObject(body) {
		return &members{err: none}
	}
	all := &members{values: map[string]memberValue{}}
	for m := jsontext.ObjectAt(body, jsontext.Space(body, 0)); m.Next(); {
		all.set(names, string(jsontext.Unquote(nil, m.Name)), memberValue{m.Value, m.Kind})
	}
	return all
}

// set takes a member, if it has one of the names.
func (m *members) set(names []string, name string, v memberValue) {
	if known := nameIn(names, name); known != "" {
		m.values[known] = v
	} else {
		m.others = append(m.others, name)
	}
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

// mustBe is the error for a member of the wrong type.
func (m *members) mustBe(name, what string) { m.wrong(badRequest(name + " must be " + what + ".")) }

// text returns a text, empty for one that is missing or null.
func (m *members) text(name string) string {
	v := m.values[name]
	if v.kind == jsontext.String {
		return v.text()
	}
	if v.isGiven() {
		m.mustBe(name, "a text")
	}
	return ""
}
