package jsontext_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/jsontext"
)

func TestMember(t *testing.T) {
	for _, c := range []struct {
		object, name string
		value        string
		ok           bool
	}{
		{`{"a":1}`, "a", `1`, true},
		{` { "a" : [1, {"b":2}] , "b" : "x" } `, "a", `[1, {"b":2}]`, true},
		{` { "a" : [1, {"b":2}] , "b" : "x" } `, "b", `"x"`, true},
		{`{"a":{"b":1}}`, "b", ``, false},
		{`{"x":"\"a\":1","a":-1.5e3}`, "a", `-1.5e3`, true},
		{`{"x":"}","y":["]"],"a":true}`, "a", `true`, true},
		{`{"a":1,"a":2}`, "a", `2`, true},
		{`{"\u0061":1}`, "a", `1`, true},
		{`{"a\\":1}`, `a\`, `1`, true},
		{`{"A":1}`, "a", ``, false},
		{`{"a":null}`, "a", `null`, true},
		{`{"":7}`, "", `7`, true},
		{`{}`, "", ``, false},
		{`{"a":1`, "a", ``, false},
		{`{"a":1}}`, "a", ``, false},
		{`["a",1]`, "a", ``, false},
		{`"a"`, "a", ``, false},
		{``, "a", ``, false},
		{"{\"a\"\t:\r\n\"é\"\n}", "a", `"é"`, true},
	} {
		value, kind := jsontext.Member([]byte(c.object), c.name)
		if string(value) != c.value || kind != jsontext.Invalid != c.ok {
			t.Errorf("%q of %s: got %s, %s", c.name, c.object, value, kindNames[kind])
		}
	}
}

func TestMemberText(t *testing.T) {
	for _, c := range []struct {
		value, text string
		ok          bool
	}{
		{`"x"`, "x", true},
		{`""`, "", true},
		{`"\"\u00e9\n"`, "\"é\n", true},
		{"\"\xff\"", "\ufffd", true},
		{`12.50`, "12.50", true},
		{`false`, "false", true},
		{`[1]`, "[1]", true},
		{`null`, "", false},
	} {
		text, ok := jsontext.MemberText([]byte(`{"a":`+c.value+`}`), "a")
		check.MustEqual(t, text, c.text, c.value)
		check.Equal(t, ok, c.ok, c.value)
	}
	if text, ok := jsontext.MemberText([]byte(`{"b":1}`), "a"); text != "" || ok {
		t.Errorf("no member: got %q, %t", text, ok)
	}
}

// FuzzMember compares with encoding/json.
func FuzzMember(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":"\"}"}],"a":null}`), "a")
	f.Add([]byte(` {"\u0024x" : -0.1e+9 }`), "$x")
	f.Fuzz(func(t *testing.T, object []byte, name string) {
		if !utf8.Valid(object) || !utf8.ValidString(name) {
			return // Names are compared as they stand.
		}
		value, kind := jsontext.Member(object, name)
		var all map[string]json.RawMessage
		if json.Unmarshal(object, &all) != nil {
			all = nil
		}
		want, there := all[name]
		if kind != jsontext.Invalid != there || string(value) != string(want) {
			t.Errorf("%q of %q: got %q, %s, want %q, %t", name, object, value, kindNames[kind], want, there)
		}
	})
}
