package event_test

import (
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

func TestParseID(t *testing.T) {
	const canonical = "0f9fad5b-d9cb-469f-a165-70867728950e"
	for _, c := range []struct {
		name, text string
		ok         bool
	}{
		{"canonical", canonical, true},
		{"upper case", strings.ToUpper(canonical), true},
		{"digits only", strings.ReplaceAll(canonical, "-", ""), true},
		{"braces", "{" + canonical + "}", true},
		{"brackets", "(" + canonical + ")", true},
		{"digits in braces", "{" + strings.ReplaceAll(canonical, "-", "") + "}", true},
		{"one brace", "{" + canonical, false},
		{"mixed brackets", "{" + canonical + ")", false},
		{"dash elsewhere", "0f9fad5bd-9cb-469f-a165-70867728950e", false},
		{"too short", canonical[1:], false},
		{"no digit", "g" + canonical[1:], false},
		{"empty", "", false},
		{"only braces", "{}", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, err := event.ParseID(c.text)
			check.MustEqual(t, err == nil, c.ok, id, err)
			if c.ok && id.String() != canonical {
				t.Errorf("read as %s", id)
			}
		})
	}
}

func TestParseMetadata(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       event.Metadata
	}{
		{"nothing", `{}`, event.Metadata{}},
		{"no JSON", `nope`, event.Metadata{}},
		{"no object", `[1]`, event.Metadata{}},
		{"all", `{"$maxCount":3,"$maxAge":60,"$tb":7,"$cacheControl":12,"own":{"a":1}}`,
			event.Metadata{Retention: event.Retention{MaxCount: 3, MaxAge: time.Minute, TruncateBefore: 7}, CacheControl: 12 * time.Second}},
		{"out of range counts as absent", `{"$maxCount":0,"$maxAge":-1,"$tb":-3,"$cacheControl":0}`, event.Metadata{}},
		{"a wrong type voids all", `{"$maxCount":"5","$tb":7}`, event.Metadata{}},
		{"a fraction is a wrong type", `{"$maxCount":5.5,"$tb":7}`, event.Metadata{}},
		{"null counts as absent", `{"$maxCount":null,"$tb":7}`, event.Metadata{Retention: event.Retention{TruncateBefore: 7}}},
		{"soft-deleted", `{"$tb":9223372036854775807}`, event.Metadata{Retention: event.Retention{TruncateBefore: event.TombstoneNumber}}},
		{"a number too large hides nothing and voids nothing", `{"$tb":9223372036854775808,"$maxCount":99999999999999999999,"$cacheControl":3}`,
			event.Metadata{Retention: event.Retention{MaxCount: 1<<63 - 1}, CacheControl: 3 * time.Second}},
		{"a number too large with an exponent", `{"$tb":1e+21,"$maxCount":1e999,"$maxAge":9223372036854775808.5}`, event.Metadata{Retention: event.Retention{MaxCount: 1<<63 - 1, MaxAge: 1<<63 - 1}}},
		{"a number too small counts as absent", `{"$tb":-9223372036854775809,"$maxCount":-1e30,"$maxAge":3}`, event.Metadata{Retention: event.Retention{MaxAge: 3 * time.Second}}},
		{"an age beyond all times", `{"$maxAge":9223372036854775807}`, event.Metadata{Retention: event.Retention{MaxAge: 1<<63 - 1}}},
		{"access list", `{"$acl":{"$r":"a","$w":["b","c"],"$d":[],"own":1}}`,
			event.Metadata{ACL: event.ACL{Read: event.Roles{"a"}, Write: event.Roles{"b", "c"}, Delete: event.Roles{}}}},
		{"a wrong role voids all", `{"$maxCount":3,"$acl":{"$r":1}}`, event.Metadata{}},
		{"plain names", `{"maxCount":3,"maxAge":60,"truncateBefore":7,"cacheControl":12,"acl":{"r":"a","$w":["b"]}}`,
			event.Metadata{Retention: event.Retention{MaxCount: 3, MaxAge: time.Minute, TruncateBefore: 7}, CacheControl: 12 * time.Second,
				ACL: event.ACL{Read: event.Roles{"a"}, Write: event.Roles{"b"}}}},
		{"the $ name wins", `{"maxCount":3,"$maxCount":4,"$tb":0,"truncateBefore":7,"$acl":{},"acl":{"r":"a"},"maxAge":9,"$maxAge":null}`, event.Metadata{Retention: event.Retention{MaxCount: 4}}},
		{"the $ right wins", `{"acl":{"r":"a","$r":"b"}}`, event.Metadata{ACL: event.ACL{Read: event.Roles{"b"}}}},
		{"a right needs its sign below $acl", `{"$acl":{"r":"a"}}`, event.Metadata{}},
		{"a plain name of a wrong type voids nothing", `{"maxCount":"5","maxAge":1.5,"truncateBefore":true,"cacheControl":[],"acl":{"r":"a","w":1},"$tb":2}`,
			event.Metadata{Retention: event.Retention{TruncateBefore: 2}}},
		{"a wrong type voids plain names", `{"maxCount":5,"$tb":"2"}`, event.Metadata{}},
		{"a plain number too large", `{"maxCount":5,"truncateBefore":9223372036854775808}`, event.Metadata{Retention: event.Retention{MaxCount: 5}}},
		{"soft-deleted by the plain name", `{"truncateBefore":9223372036854775807}`, event.Metadata{Retention: event.Retention{TruncateBefore: event.TombstoneNumber}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			check.Deep(t, event.ParseMetadata([]byte(c.text)), c.want)
		})
	}
}

func TestMinVisible(t *testing.T) {
	for _, c := range []struct {
		name string
		m    event.Metadata
		last int64
		want int64
	}{
		{"all", event.Metadata{}, 9, 0},
		{"the last three", event.Metadata{Retention: event.Retention{MaxCount: 3}}, 9, 7},
		{"fewer than allowed", event.Metadata{Retention: event.Retention{MaxCount: 30}}, 9, 0},
		{"from a number on", event.Metadata{Retention: event.Retention{TruncateBefore: 5}}, 9, 5},
		{"the higher wins", event.Metadata{Retention: event.Retention{TruncateBefore: 5, MaxCount: 3}}, 9, 7},
		{"the largest count", event.Metadata{Retention: event.Retention{MaxCount: 1<<63 - 1}}, 9, 0},
	} {
		t.Run(c.name, func(t *testing.T) { check.Equal(t, c.m.MinVisible(c.last), c.want) })
	}
}

func TestParseLink(t *testing.T) {
	for _, c := range []struct {
		text   string
		number int64
		stream string
		ok     bool
	}{
		{"12@s", 12, "s", true},
		{"0@a@b@", 0, "a@b@", true},
		{"7@", 7, "", true},
		{"@s", 0, "", false},
		{"-1@s", 0, "", false},
		{"x@s", 0, "", false},
		{"12", 0, "", false},
		{"9223372036854775808@s", 0, "", false},
	} {
		number, stream, ok := event.ParseLink([]byte(c.text))
		if number != c.number || stream != c.stream || ok != c.ok {
			t.Errorf("%q: %d, %q, %t", c.text, number, stream, ok)
		}
	}
}

func TestWithTruncateBefore(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", `{"$tb":4}`},
		{"nope", `{"$tb":4}`},
		{"null", `{"$tb":4}`},
		{`{"$tb":9223372036854775807}`, `{"$tb":4}`},
		{`{"a":{"b":1.50},"$tb":1}`, `{"$tb":4,"a":{"b":1.50}}`},
	} {
		check.Equal(t, string(event.WithTruncateBefore([]byte(c.text), 4)), c.want, c.text)
	}
}

func TestChainText(t *testing.T) {
	chain := event.Chain{1, 2, 0xff}
	text := check.Value(chain.MarshalText()).Must(t)
	check.MustEqual(t, string(text), chain.String())
	var back event.Chain
	if err := back.UnmarshalText(text); err != nil || back != chain {
		t.Fatal(back, err)
	}
}
