package httpapi_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// TestNames is about the pages of names, their order and what is refused.
func TestNames(t *testing.T) {
	n := newNode(t)
	for _, stream := range []string{"b-2", "a%2F%C3%A4", "b-1"} {
		n.put(stream, "{}")
	}
	n.put("b-1", "{}")
	n.meta("b-2", `{"$tb":9223372036854775807}`)
	names := func(body string) string { return `{"streams":[` + body + `}` }
	a, b1, b2 := `{"name":"a/ä","lastEventNumber":0,"deleted":""}`, `{"name":"b-1","lastEventNumber":1,"deleted":""}`, `{"name":"b-2","lastEventNumber":0,"deleted":"soft"}`
	for query, want := range map[string]string{
		"":                                     names(a + "," + b1 + "," + b2 + "]"),
		"?order=created":                       names(b1 + "," + a + "," + b2 + "]"),
		"?prefix=b-&count=1":                   names(b1 + `],"next":"b-1"`),
		"?prefix=b-&count=1&after=b-1":         names(b2 + "]"),
		"?prefix=a%2F":                         names(a + "]"),
		"?order=created&after=b-1&count=1":     names(a + `],"next":"a/ä"`),
		"?order=created&after=a%2F%C3%A4":      names(b2 + "]"),
		"?prefix=none":                         names("]"),
		"?order=name&prefix=&after=&count=100": names(a + "," + b1 + "," + b2 + "]"),
	} {
		got := n.get("/streams/$all/names"+query, "").is(t, 200).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate")
		check.Equal(t, strings.Join(strings.Fields(got.body), ""), want, query)
	}
	// Names that JSON would change come back as they are.
	for _, stream := range []string{"b%FD", "b%FE%25", "b%FF", "~~b%25FE"} {
		n.put(stream, "{}")
	}
	for order, want := range map[string]string{"name": "a/ä b-1 b-2 ~~b%FD ~~b%FE%25 ~~b%FF", "created": "~~~~b%25FE ~~b%FF ~~b%FE%25 ~~b%FD b-1 a/ä"} {
		var page struct {
			Next    string
			Streams []struct{}
		}
		seen, count := []string{}, 0
		for more := true; more; more = page.Next != "" && len(seen) < 9 {
			after := url.QueryEscape(page.Next)
			page.Next = ""
			check.NoError(t, json.Unmarshal([]byte(n.get("/streams/$all/names?count=1&order="+order+"&after="+after, "").is(t, 200).body), &page), after)
			if count += len(page.Streams); page.Next != "" {
				seen = append(seen, page.Next)
			}
		}
		check.Equal(t, strings.Join(seen, " "), want, order)
		check.Equal(t, count, 7, order)
	}
	for query, text := range map[string]string{
		"?count=0": "count must be between 1 and 1000 inclusive", "?count=1001": "count must be between 1 and 1000 inclusive", "?count=x": "count must be between 1 and 1000 inclusive", "?order=size": "order must be name or created",
	} {
		check.Equal(t, n.get("/streams/$all/names"+query, "").is(t, 400).body, text, query)
	}
	n.store.set(&event.NamesNotListed{Done: 84, Total: 200}, false)
	got := n.get("/streams/$all/names", "").is(t, 503).has(t, "Retry-After", "2")
	check.Equal(t, got.body, "The names of streams are being collected: 42 % done", "while they are collected")
	n.store.set(errors.New("no disk"), false)
	n.get("/streams/$all/names", "").is(t, 500)
}
