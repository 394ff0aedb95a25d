package event_test

import (
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

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
