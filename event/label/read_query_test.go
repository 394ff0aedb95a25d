package label_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event/label"
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

// TestQueryJSON: what a query may say, and what is wrong with what it may not.
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

		{"something after it", `{"all":true}x`, "query: not a JSON object"},
		{"cut short", `{"all":true`, "query: not a JSON object"},
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
			q, err := label.ReadQuery([]byte(c.text))
			if c.err != "" {
				check.Says(t, err, c.err)
				return
			}
			check.Must(t, err)
			text, err := json.Marshal(&q)
			check.Must(t, err)
			again, err := label.ReadQuery(text)
			check.Must(t, err)
			check.Deep(t, again, q, "what was written is read")
		})
	}
}

func BenchmarkReadQuery(b *testing.B) {
	text := []byte(`{"items":[{"types":["SeatTaken","SeatFreed"],"tags":["show:7","seat:12"]}]}`)
	b.ReportAllocs()
	for b.Loop() {
		check.Value(label.ReadQuery(text)).Must(b)
	}
}
