package jsontext_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/jsontext"
)

// texts are documents good and bad, for the table tests and as seeds of the fuzz targets.
var texts = []string{
	``, ` `, `{}`, `[]`, ` { } `, "\n[\t]\r", `{"a":1}`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`, `{"a" : [1, 2 ,3] , "b":{}}`,
	`[1,]`, `[,1]`, `[1 2]`, `[1`, `{"a":1`, `{"a":1]`, `[1}`, `]`, `}`, `[]]`, `{}{}`, `{} x`, `"a"`, `"a`, `"`, `"\"`,
	`"\u00e9\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `"\ud83d\ud83d\ude00"`, `"\ud83dx"`, `"\u12g4"`, `"\u123`, `"\x"`, `"\/\b\f\n\r\t\\\""`,
	"\"\x01\"", "\"\x1f1234567\"", "\"1234567\x1f\"", "\"\x7f\"", "\"\xff\"", "\"a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 longer text\"", "\"a\xe2\x82\\n\xc3\"",
	`0`, `-0`, `-`, `01`, `1.`, `.5`, `1.5`, `1e`, `1e+`, `1E-7`, `-12.34e+56`, `+1`, `1x`, `12345678901234567890123`, `--1`, `0e0`, `0x1`,
	`true`, `false`, `null`, `tru`, `nulll`, `True`, `NaN`, `[true,false,null]`, `{"a":tru}`,
	`{"":""}`, `{"a":{"b":{"c":[[[]]]}}}`, `{1:2}`, `{"a":1 "b":2}`, `{"a"1}`, `{"a":"b":1}`, `["a":1]`, `{"a\"b":"\\"}`, `{"aaaaaaa":"bbbbbbb","cccccccc":"dddddddd"}`,
	"{\"a\":1\x00}", "\ufeff{}", "[1\v]", "[\u00a01]", strings.Repeat("[", 200) + strings.Repeat("]", 200), strings.Repeat(`{"a":[`, 70) + "1" + strings.Repeat("]}", 70),
	strings.Repeat("[", 130) + strings.Repeat("]", 64) + "}" + strings.Repeat("]", 65), strings.Repeat(`[{"a":`, 65) + "1" + strings.Repeat("}]", 64) + "]}",
}

var kindNames = [...]string{
	jsontext.Invalid: "invalid", jsontext.Object: "object", jsontext.Array: "array", jsontext.String: "string", jsontext.Number: "number", jsontext.True: "true", jsontext.False: "false", jsontext.Null: "null",
}

func TestValidAgreesWithEncodingJSON(t *testing.T) {
	for _, text := range texts {
		if got, want := jsontext.Valid([]byte(text)), json.Valid([]byte(text)); got != want {
			t.Errorf("Valid(%.80q) = %v, want %v", text, got, want)
		}
	}
}

func TestDepth(t *testing.T) {
	nest := func(open, inside, shut string, n int) []byte {
		return []byte(strings.Repeat(open, n) + inside + strings.Repeat(shut, n))
	}
	for _, c := range []struct {
		name string
		text []byte
		want bool
	}{
		{"arrays at the limit", nest("[", "", "]", jsontext.MaxDepth), true},
		{"arrays above the limit", nest("[", "", "]", jsontext.MaxDepth+1), false},
		{"objects at the limit", nest(`{"a":`, "1", "}", jsontext.MaxDepth), true},
		{"objects above the limit", nest(`{"a":`, "1", "}", jsontext.MaxDepth+1), false},
		{"mixed at the limit", nest(`{"a":[`, "", "]}", jsontext.MaxDepth/2), true},
		{"never closed", nest("[", "", "", 1<<20), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			check.Equal(t, jsontext.Valid(c.text), c.want)
			check.Equal(t, json.Valid(c.text), c.want, "encoding/json says")
		})
	}
}

func TestEnd(t *testing.T) {
	for _, c := range []struct {
		text string
		at   int
		end  int
		kind jsontext.Kind
	}{
		{`{"a":1},2`, 0, 7, jsontext.Object},
		{`x[1,[2]]]`, 1, 8, jsontext.Array},
		{`"a\"b"c`, 0, 6, jsontext.String},
		{`-1.5e3,`, 0, 6, jsontext.Number},
		{`012`, 0, 1, jsontext.Number}, // What follows is the caller's to judge.
		{`truefalse`, 0, 4, jsontext.True},
		{`truefalse`, 4, 9, jsontext.False},
		{`null`, 0, 4, jsontext.Null},
		{` 1`, 0, 0, jsontext.Invalid},
		{`1`, 1, 1, jsontext.Invalid},
		{`1`, -1, -1, jsontext.Invalid},
		{`[1`, 0, 0, jsontext.Invalid},
	} {
		end, kind := jsontext.End([]byte(c.text), c.at)
		if end != c.end || kind != c.kind {
			t.Errorf("End(%q, %d) = %d, %v; want %d, %v", c.text, c.at, end, kind, c.end, c.kind)
		}
	}
}

func TestMembers(t *testing.T) {
	text := []byte(` { "a" : 1 , "b\n":"x", "c":{"d":[]},"e":null } tail`)
	m := jsontext.ObjectAt(text, 1)
	var got []string
	for m.Next() {
		got = append(got, string(m.Name)+"="+kindNames[m.Kind]+" "+string(m.Value))
	}
	want := `"a"=number 1|"b\n"=string "x"|"c"=object {"d":[]}|"e"=null null`
	check.Equal(t, strings.Join(got, "|"), want)
	if end, ok := m.End(); !ok || string(text[end:]) != " tail" {
		t.Errorf("End() = %d, %v", end, ok)
	}
	if m.Next() {
		t.Error("Next continues after the end")
	}
}

func TestElements(t *testing.T) {
	text := []byte(`[ {"a":[1]}, "x" ,2,[ ] ]`)
	e := jsontext.ArrayAt(text, 0)
	var got []string
	for {
		at, ok := e.Begin()
		if !ok {
			break
		}
		end, kind := jsontext.End(text, at)
		got = append(got, kindNames[kind]+" "+string(text[at:end]))
		e.Resume(end)
	}
	want := `object {"a":[1]}|string "x"|number 2|array [ ]`
	check.Equal(t, strings.Join(got, "|"), want)
	if end, ok := e.End(); !ok || end != len(text) {
		t.Errorf("End() = %d, %v", end, ok)
	}
}

func TestUnquote(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`""`, ""},
		{`"abc"`, "abc"},
		{`"a long text without escapes é"`, "a long text without escapes é"},
		{`"a long text\twith \"escapes\" \\ \/ \u00e9"`, "a long text\twith \"escapes\" \\ / é"},
		{`"\ud83d\ude00!"`, "😀!"},
		{`"\ud83d"`, "\uFFFD"},
		{`"\ud83d\u0041"`, "\uFFFDA"},
		{"\"a\xffb\xfe\xfe\"", "a\uFFFDb\uFFFD\uFFFD"},
	} {
		if got := string(jsontext.Unquote(nil, []byte(c.raw))); got != c.want {
			t.Errorf("Unquote(%s) = %q, want %q", c.raw, got, c.want)
		}
	}
	raw := []byte(`"alias"`)
	got := jsontext.Unquote(nil, raw)
	if raw[1] = 'A'; string(got) != "Alias" {
		t.Error("text without escapes was copied")
	}
	if _ = append(got, 'x'); string(raw) != `"Alias"` {
		t.Error("appending to the text overwrote what follows it")
	}
	buf := make([]byte, 8)
	check.Equal(t, &jsontext.Unquote(buf, []byte(`"a\nb"`))[0], &buf[0], "dst was not used")
}

func TestAppendString(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `""`},
		{"plain text of some length", `"plain text of some length"`},
		{"a\"b\\c/<>&'\u2028é€😀", "\"a\\\"b\\\\c/<>&'\u2028é€😀\""},
		{"\x00\x01\b\t\n\v\f\r\x1f\x7f", `"\u0000\u0001\b\t\n\u000b\f\r\u001f` + "\x7f\""},
		{"12345678\"", `"12345678\""`},
		{"\xff\xc0\x80\xed\xa0\x80\xe2\x82", "\"" + strings.Repeat("\uFFFD", 8) + "\""},
	} {
		if got := string(jsontext.AppendString(nil, c.text)); got != c.want {
			t.Errorf("AppendString(%q) = %s, want %s", c.text, got, c.want)
		}
		if got := string(jsontext.AppendString([]byte("x"), []byte(c.text))); got != "x"+c.want {
			t.Errorf("AppendString of bytes %q = %s, want %s", c.text, got, c.want)
		}
	}
}

func TestAppendIndent(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		ok               bool
	}{
		{"nested", ` {"a":1,"b":[ 1,{"c":"x, {y}: z"} ],"d":{ },"e":[ ] } `,
			"{\n  \"a\": 1,\n  \"b\": [\n    1,\n    {\n      \"c\": \"x, {y}: z\"\n    }\n  ],\n  \"d\": {},\n  \"e\": []\n}", true},
		{"empty", `{}`, `{}`, true},
		{"array", `[1]`, ``, false},
		{"text", `0@orders-7`, ``, false},
		{"broken", `{"a":1`, ``, false},
		{"two objects", `{}{}`, ``, false},
		{"nothing", ``, ``, false},
		{"made to grow", `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("1,", 100000) + "1" + strings.Repeat("]", 9000) + `}`, ``, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := jsontext.AppendIndent([]byte("x"), []byte(c.text))
			check.MustEqual(t, string(got), "x"+c.want)
			check.Equal(t, ok, c.ok)
		})
	}
}

func FuzzJSON(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		valid := json.Valid(b)
		if got := jsontext.Valid(b); got != valid {
			t.Fatalf("Valid(%q) = %v", b, got)
		}
		if !valid {
			jsontext.AppendIndent(nil, b)
			return
		}
		var compact, want bytes.Buffer
		check.Must(t, json.Compact(&compact, b))
		at := jsontext.Space(b, 0)
		end, kind := jsontext.End(b, at)
		if at = jsontext.Space(b, end); at != len(b) {
			t.Fatalf("End stops at %d of %d", end, len(b))
		}
		indented, ok := jsontext.AppendIndent(nil, b)
		if ok && kind != jsontext.Object {
			t.Fatalf("AppendIndent takes an %v", kind)
		}
		if ok {
			check.Must(t, json.Indent(&want, bytes.TrimSpace(b), "", "  "))
			if !bytes.Equal(indented, want.Bytes()) {
				t.Fatalf("AppendIndent(%q) = %q, want %q", b, indented, want.Bytes())
			}
		}
		walk(t, compact.Bytes())
	})
}

// walk goes through a compact value by the iterators and checks strings against encoding/json.
func walk(t *testing.T, b []byte) {
	str := func(raw []byte) {
		var want string
		check.Must(t, json.Unmarshal(raw, &want))
		text := jsontext.Unquote(nil, raw)
		if string(text) != want {
			t.Fatalf("Unquote(%q) = %q, want %q", raw, text, want)
		}
		again := jsontext.AppendString(nil, text)
		if !json.Valid(again) || string(jsontext.Unquote(nil, again)) != want {
			t.Fatalf("AppendString(%q) = %q", text, again)
		}
	}
	switch _, kind := jsontext.End(b, 0); kind {
	case jsontext.String:
		str(b)
	case jsontext.Object:
		m := jsontext.ObjectAt(b, 0)
		for m.Next() {
			str(m.Name)
			walk(t, m.Value)
		}
		if end, ok := m.End(); !ok || end != len(b) {
			t.Fatalf("members of %q end at %d, %v", b, end, ok)
		}
	case jsontext.Array:
		e := jsontext.ArrayAt(b, 0)
		for e.Next() {
			walk(t, e.Value)
		}
		if end, ok := e.End(); !ok || end != len(b) {
			t.Fatalf("elements of %q end at %d, %v", b, end, ok)
		}
	}
}

func FuzzAppendString(f *testing.F) {
	f.Add("plain")
	f.Add("a\"\\\n\xff\xe2\x82\xac\xed\xa0\x80\xf4\x90\x80\x80")
	f.Fuzz(func(t *testing.T, s string) {
		b := jsontext.AppendString(nil, s)
		var got string
		check.Must(t, json.Unmarshal(b, &got), b)
		if want := string([]rune(s)); got != want {
			t.Fatalf("AppendString(%q) reads as %q", s, got)
		}
		if c := jsontext.AppendString(nil, []byte(s)); !bytes.Equal(b, c) {
			t.Fatalf("%q as string and as bytes differ", s)
		}
	})
}

func FuzzWalk(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		at := jsontext.Space(b, 0)
		m := jsontext.ObjectAt(b, at)
		for m.Next() {
			_ = m.Value
		}
		end, ok := m.End()
		if want := jsontext.IsObject(b); want != (ok && jsontext.Space(b, end) == len(b)) {
			t.Fatalf("members of %q: %v, IsObject says %v", b, ok, want)
		}
		e := jsontext.ArrayAt(b, at)
		for e.Next() {
			_ = e.Value
		}
		if end, ok = e.End(); ok && jsontext.Space(b, end) == len(b) && !json.Valid(b) {
			t.Fatalf("elements of %q were taken", b)
		}
	})
}
