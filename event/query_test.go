package event_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// texts is a JSON array of n texts that begin so.
func texts(begin string, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%q", fmt.Sprint(begin, i))
	}
	return "[" + strings.Join(all, ",") + "]"
}

func TestQueryJSON(t *testing.T) {
	items := func(members ...string) string { return `{"items":[{` + strings.Join(members, "},{") + `}]}` }
	many := func(n int) string { return items(strings.Split(strings.Repeat(`"types":["T"]|`, n), "|")[:n]...) }
	for _, c := range []struct{ name, text, err string }{
		{"all members", items(`"types":["A","B"],"tags":["t:1"],"categories":["c"],"streams":["s-1"],"correlation":"x"`), ""},
		{"several items", items(`"types":["A"]`, `"tags":["t"]`), ""},
		{"all", `{"all":true}`, ""},
		{"escaped names", "{\"\\u0061ll\":true}", ""},
		{"the last member counts", `{"all":7,"all":true}`, ""},
		{"most items", many(32), ""},
		{"most names", items(`"types":` + texts("T", 64) + `,"categories":` + texts("c", 64) + `,"streams":` + texts("s", 64) + `,"tags":` + texts("t", 16)), ""},
		{"longest correlation", items(`"correlation":"` + strings.Repeat("x", 256) + `"`), ""},

		{"null", `null`, "query: not a JSON object"},
		{"array", `[]`, "query: not a JSON object"},
		{"nothing", `{}`, "items: at least one is needed"},
		{"not all", `{"all":false}`, "items: at least one is needed"},
		{"all and items", `{"all":true,"items":[{"types":["A"]}]}`, "all: not possible with items"},
		{"no items", `{"items":[]}`, "query.items: empty"},
		{"items of another type", `{"items":{}}`, "query.items: of another type"},
		{"all of another type", `{"all":1}`, "query.all: of another type"},
		{"all that is null", `{"all":null}`, "query.all: empty"},
		{"unknown member", `{"all":true,"item":[]}`, `query: unknown member "item"`},
		{"another case", `{"All":true}`, `query: unknown member "All"`},
		{"too many items", many(33), "items: 33, at most 32 are possible"},
		{"empty item", items(`"types":["A"]`, ``), "items[1]: at least one member is needed"},
		{"item that is null", `{"items":[null]}`, "items[0]: not a JSON object"},
		{"unknown member of an item", items(`"typs":["A"]`), `items[0]: unknown member "typs"`},
		{"empty list", items(`"types":[],"tags":["t"]`), "items[0].types: empty"},
		{"list that is null", items(`"types":null`), "items[0].types: empty"},
		{"empty name", items(`"streams":["a",""]`), "items[0].streams: one is empty"},
		{"name that is null", items(`"categories":[null]`), "items[0].categories: not an array of texts"},
		{"number", items(`"types":[1]`), "items[0].types: of another type"},
		{"one text", items(`"types":"A"`), "items[0].types: of another type"},
		{"empty correlation", items(`"correlation":""`), "items[0].correlation: empty"},
		{"correlation of another type", items(`"correlation":7`), "items[0].correlation: of another type"},
		{"long correlation", items(`"correlation":"` + strings.Repeat("x", 257) + `"`), "items[0].correlation: 257 bytes, at most 256 are possible"},
		{"malformed tag", items(`"tags":["a,b"]`), `items[0].tags: the tag "a,b" has a comma`},
		{"too many types", items(`"types":` + texts("T", 65)), "items[0].types: 65, at most 64 are possible"},
		{"too many categories", items(`"categories":` + texts("T", 65)), "items[0].categories: 65, at most 64 are possible"},
		{"too many streams", items(`"streams":` + texts("T", 65)), "items[0].streams: 65, at most 64 are possible"},
		{"too many tags", items(`"tags":` + texts("T", 17)), "items[0].tags: 17, at most 16 are possible"},
		{"too long", items(`"streams":["` + strings.Repeat("x", 64<<10) + `"]`), "the query has 65564 bytes, at most 65536 are possible"},
		{"not UTF-8", items("\"types\":[\"\xff\"]"), "the query is not UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var q event.Query
			err := json.Unmarshal([]byte(c.text), &q)
			if c.err != "" {
				check.Says(t, err, c.err)
				return
			}
			check.Must(t, err)
			text, err := json.Marshal(&q)
			check.Must(t, err)
			var again event.Query
			check.Must(t, json.Unmarshal(text, &again))
			check.Deep(t, again, q, "what was written is read")
		})
	}
}

func TestQueryMatches(t *testing.T) {
	all := event.Query{All: true}
	of := func(items ...event.QueryItem) event.Query { return event.Query{Items: items} }
	list := func(names ...string) []string { return names }
	e := event.Facts{Stream: "order-7-1", Type: "Placed", Correlation: "c", Tags: list("a", "b")}
	for _, c := range []struct {
		name string
		q    event.Query
		f    event.Facts
		want bool
	}{
		{"all", all, e, true},
		{"all, without anything", all, event.Facts{Stream: "s", Type: "T"}, true},
		{"nothing", of(), e, false},
		{"all, system stream", all, event.Facts{Stream: "$s", Type: "T"}, false},
		{"all, system type", all, event.Facts{Stream: "s", Type: "$>"}, false},
		{"one of the types", of(event.QueryItem{Types: list("X", "Placed")}), e, true},
		{"none of the types", of(event.QueryItem{Types: list("placed", "Place")}), e, false},
		{"a system type", of(event.QueryItem{Types: list("$T")}), event.Facts{Stream: "s", Type: "$T"}, false},
		{"all tags", of(event.QueryItem{Tags: list("b", "a", "b")}), e, true},
		{"not all tags", of(event.QueryItem{Tags: list("a", "c")}), e, false},
		{"category", of(event.QueryItem{Categories: list("x", "order")}), e, true},
		{"not the category", of(event.QueryItem{Categories: list("order-7")}), e, false},
		{"category without a dash", of(event.QueryItem{Categories: list("order")}), event.Facts{Stream: "order", Type: "T"}, true},
		{"stream", of(event.QueryItem{Streams: list("x", "order-7-1")}), e, true},
		{"not the stream", of(event.QueryItem{Streams: list("order-7")}), e, false},
		{"correlation", of(event.QueryItem{Correlation: "c"}), e, true},
		{"not the correlation", of(event.QueryItem{Correlation: "C"}), e, false},
		{"every member", of(event.QueryItem{list("Placed"), list("a"), list("order"), list("order-7-1"), "c"}), e, true},
		{"all members but one", of(event.QueryItem{list("Placed"), list("a"), list("order"), list("order-7-1"), "d"}), e, false},
		{"one of the items", of(event.QueryItem{Types: list("X")}, event.QueryItem{Tags: list("a")}), e, true},
		{"none of the items", of(event.QueryItem{Types: list("X")}, event.QueryItem{Tags: list("x")}), e, false},
	} {
		t.Run(c.name, func(t *testing.T) { check.Equal(t, c.q.Matches(&c.f), c.want) })
	}
}
