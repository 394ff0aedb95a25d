package args

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/internal/jsontext"
)

// Members are those of an object that have a meaning. Reading continues after a wrong member. The
// result counts only if no member was wrong.
type Members struct {
	Values map[string]Member
	Others []string // names of the others, which mean nothing
	Err    error    // about the first one that is wrong
}

// Wrong tells of a member that is wrong; nil: it is not.
func (m *Members) Wrong(err error) {
	if m.Err == nil {
		m.Err = err
	}
}

// Member is the value of a member as it was written. One that is not there is Invalid.
type Member struct {
	Raw  []byte
	Kind jsontext.Kind
}

// IsGiven reports whether the member is there; null is as not there.
func (v Member) IsGiven() bool { return v.Kind != jsontext.Invalid && v.Kind != jsontext.Null }

// Text returns a text without its quotes.
func (v Member) Text() string { return string(jsontext.Unquote(nil, v.Raw)) }

// Object takes a JSON object apart into the members with one of the names. Names
// count in any case, of members of one name the last; others are ignored. Anything but an
// object is the error.
func Object(body []byte, none error, names ...string) *Members {
	body = bytes.TrimPrefix(body, ByteOrderMark)
	if !jsontext.ValidUTF8(body) || !jsontext.IsObject(body) {
		return &Members{Err: none}
	}
	all := &Members{Values: map[string]Member{}}
	for m := jsontext.ObjectAt(body, jsontext.Space(body, 0)); m.Next(); {
		all.set(names, string(jsontext.Unquote(nil, m.Name)), Member{m.Value, m.Kind})
	}
	return all
}

// Parameters takes those of a raw query with one of the names, as texts.
func Parameters(raw string, names ...string) *Members {
	all := &Members{Values: map[string]Member{}}
	for _, name := range names {
		if text, ok := Lookup(raw, name); ok {
			all.Values[name] = Member{jsontext.AppendString(nil, text), jsontext.String}
		}
	}
	return all
}

// set takes a member, if it has one of the names.
func (m *Members) set(names []string, name string, v Member) {
	if known := NameIn(names, name); known != "" {
		m.Values[known] = v
	} else {
		m.Others = append(m.Others, name)
	}
}

// NameIn returns the one of the names that a name in any case is, empty when it is none of them.
func NameIn(names []string, name string) string {
	for _, one := range names {
		if strings.EqualFold(name, one) {
			return one
		}
	}
	return ""
}

// MustBe is the error for a member of the wrong type.
func (m *Members) MustBe(name, what string) { m.Wrong(problem.Bad(name + " must be " + what + ".")) }

// Text returns a text, empty for one that is missing or null.
func (m *Members) Text(name string) string {
	v := m.Values[name]
	if v.Kind == jsontext.String {
		return v.Text()
	}
	if v.IsGiven() {
		m.MustBe(name, "a text")
	}
	return ""
}

// ByteOrderMark precedes what some writers of text send. It is not part of a batch.
var ByteOrderMark = []byte("\xef\xbb\xbf")

// Number returns the text of a number, which may be one within quotes; empty when it is something
// else.
func (v Member) Number() string {
	switch v.Kind {
	case jsontext.String:
		return strings.TrimSpace(v.Text())
	case jsontext.Number:
		return string(v.Raw)
	}
	return ""
}

// Flag reads true or false, which may be a text in any case.
func (m *Members) Flag(name string, absent bool) bool {
	switch v := m.Values[name]; {
	case !v.IsGiven():
		return absent
	case v.Kind == jsontext.True, v.Kind == jsontext.False:
		return v.Kind == jsontext.True
	case v.Kind == jsontext.String:
		if b, ok := Flag(strings.TrimSpace(v.Text())); ok {
			return b
		}
	}
	m.MustBe(name, "true or false")
	return absent
}

// Integer reads an integer from -limit-1 to limit, which may be a text.
func (m *Members) Integer(name string, limit, absent int64) int64 {
	v := m.Values[name]
	if !v.IsGiven() {
		return absent
	}
	n, err := strconv.ParseInt(v.Number(), 10, 64)
	switch {
	case err != nil:
		m.MustBe(name, "an integer")
	case n > limit || n < -limit-1:
		m.MustBe(name, "between "+strconv.FormatInt(-limit-1, 10)+" and "+strconv.FormatInt(limit, 10))
	}
	return n
}

// Given returns a text that must be there.
func (m *Members) Given(name string) string {
	if !m.Values[name].IsGiven() {
		m.Wrong(problem.Bad(name + " is required."))
	}
	return m.Text(name)
}

// Required returns a text that must be there and not be empty.
func (m *Members) Required(name string) string {
	text := m.Text(name)
	if text == "" {
		m.Wrong(problem.Bad(name + " is required and must not be empty."))
	}
	return text
}
