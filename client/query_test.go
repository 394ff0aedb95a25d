package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/annalsdb/annals/client"
)

// exchange is a request that is expected, with what its body holds, and the answer to it.
type exchange struct {
	path, sent string
	status     int
	answer     string
}

// script serves exchanges in their order.
func script(t *testing.T, expected ...exchange) *client.Client {
	t.Helper()
	n := 0
	node := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || n == len(expected) {
			t.Errorf("request %d: %v, %s %s", n, err, r.URL, body)
			return
		}
		e := expected[n]
		n++
		if r.URL.RequestURI() != e.path || !strings.Contains(string(body), e.sent) {
			t.Errorf("request %d: %s %s, want %s", n, r.URL, body, e.sent)
		}
		w.WriteHeader(e.status)
		_, _ = io.WriteString(w, e.answer)
	})
	t.Cleanup(func() {
		if n != len(expected) {
			t.Errorf("%d requests of %d", n, len(expected))
		}
	})
	return open(t, client.Options{Nodes: []string{node}})
}

func foundEvents(types string) string {
	var events []string
	for i, one := range strings.Fields(types) {
		events = append(events, fmt.Sprintf(`{"position":%d,"stream":"a","number":%d,"eventId":"x","eventType":%q,"created":"2026-01-31T12:00:00Z","isJson":true,"data":{"n":%d},"metadata":null,"tags":["t:1"]}`, i, i, one, i))
	}
	return "[" + strings.Join(events, ",") + "]"
}

// TestQueryPages: each direction continues where the page says, and the position is the first one.
func TestQueryPages(t *testing.T) {
	query := client.Query{Items: []client.QueryItem{{Types: []string{"A", "B"}, Tags: []string{"t:1"}}}}
	const asked = `{"query":{"items":[{"types":["A","B"],"tags":["t:1"]}]},`
	for _, test := range []struct {
		name      string
		o         client.QueryOptions
		exchanges []exchange
	}{
		{"forward", client.QueryOptions{Count: 2, NoData: true}, []exchange{
			{"/query", asked + `"limit":2,"data":false}`, 200, `{"position":90,"events":` + foundEvents("A B") + `,"next":7}`},
			{"/query", "", 503, ""},
			{"/query", asked + `"after":7,"until":90,"limit":2,"data":false}`, 200, `{"position":90,"events":` + foundEvents("C") + `,"next":null}`},
		}},
		{"backward", client.QueryOptions{Backward: true, After: new(int64(0))}, []exchange{
			{"/query", asked + `"after":0,"backward":true,"data":true}`, 200, `{"position":90,"events":` + foundEvents("A B") + `,"next":7}`},
			{"/query", asked + `"after":0,"until":7,"backward":true,"data":true}`, 200, `{"position":7,"events":` + foundEvents("C") + `,"next":null}`},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for p, err := range script(t, test.exchanges...).QueryPages(t.Context(), query, test.o) {
				if err != nil || *p.Position != 90 {
					t.Fatal(p, err)
				}
				for _, e := range p.Events {
					var data struct{ N int64 }
					if err := e.Decode(&data); err != nil || data.N != e.Number || fmt.Sprint(e.Tags) != "[t:1]" {
						t.Errorf("%v, %+v", err, e)
					}
					got = append(got, e.Type)
				}
			}
			if fmt.Sprint(got) != "[A B C]" {
				t.Errorf("got %v", got)
			}
		})
	}
	c := script(t, exchange{"/query", `{"query":{},`, 400, "items: at least one is needed"})
	if _, err := c.Query(t.Context(), client.Query{}, client.QueryOptions{}); err == nil || !strings.HasPrefix(err.Error(), "query: ") {
		t.Errorf("got %v", err)
	}
}

// TestDecide: a conflict is read and decided on again, and the same body is sent again when there
// was no answer.
func TestDecide(t *testing.T) {
	const written = `{"position":120,"repeated":false,"streams":[{"stream":"s","first":0,"last":0}]}`
	conflict := func(position int) string {
		return fmt.Sprintf(`{"message":"no","checks":[],"conditions":[{"index":0,"event":{"position":%d,"stream":"s","number":4,"eventId":"y","eventType":"B"}}],"position":%d}`, position-1, position)
	}
	page := func(position int, types string) string {
		return fmt.Sprintf(`{"position":%d,"events":%s,"next":null}`, position, foundEvents(types))
	}
	after := func(position int) string {
		return fmt.Sprintf(`"checks":[],"conditions":[{"failIfEventsMatch":{"all":true},"after":%d}]}`, position)
	}
	c := script(t,
		exchange{"/query", `{"query":{"all":true},"limit":4096,"data":true}`, 200, `{"position":null,"events":[],"next":null}`},
		exchange{"/streams", `"conditions":[{"failIfEventsMatch":{"all":true}}]}`, 409, conflict(90)},
		exchange{"/query", `{"query":{"all":true},"until":90,"limit":4096,"data":true}`, 200, page(90, "A")},
		exchange{"/streams", after(90), 503, ""},
		exchange{"/streams", after(90), 409, conflict(95)},
		exchange{"/query", `"after":90,"until":95,`, 200, page(95, "B C")},
		exchange{"/streams", after(95), 409, conflict(99)},
		exchange{"/query", `"after":95,"until":99,`, 200, page(99, "")},
		exchange{"/streams", after(99), 201, written},
	)
	all := client.Query{All: true}
	var seen []string
	decide := func(events []client.Found) ([]client.StreamEvent, error) {
		types := ""
		for _, e := range events {
			types += e.Type
		}
		seen = append(seen, types)
		return []client.StreamEvent{{Stream: "s", Event: client.Event{Type: "T", Data: []byte("{}"), Tags: []string{"t:1"}}}}, nil
	}
	done, err := c.Decide(t.Context(), all, decide)
	if err != nil || done.Position != 120 || fmt.Sprint(seen) != "[ A ABC ABC]" {
		t.Errorf("%+v, %v, saw %v", done, err, seen)
	}

	refusal := errors.New("no seat is free")
	for name, test := range map[string]struct {
		exchanges []exchange
		decide    func([]client.Found) ([]client.StreamEvent, error)
		want      string
	}{
		"refused by the decision": {nil, func([]client.Found) ([]client.StreamEvent, error) { return nil, refusal }, refusal.Error()},
		"nothing to append":       {nil, func([]client.Found) ([]client.StreamEvent, error) { return nil, nil }, "<nil>"},
		"deleted for ever": {
			[]exchange{{"/streams", `"tags":["t:1"]`, 409, `{"checks":[{"index":null,"stream":"s","expected":"any","actual":"tombstoned"}],"conditions":[],"position":9}`}}, decide,
			`append 1 events: the checks do not hold: stream "s": expected any, is tombstoned`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := script(t, append([]exchange{{"/query", "", 200, page(90, "A")}}, test.exchanges...)...)
			if done, err := c.Decide(t.Context(), all, test.decide); fmt.Sprint(err) != test.want || done.Position != 0 {
				t.Errorf("%+v, %v", done, err)
			}
		})
	}

	c = script(t, exchange{"/streams", "", 409, conflict(7)}, exchange{"/streams", "", 409, `{"conditions":[{"index":1,"event":{"position":5}}],"position":7}`})
	for _, want := range []string{
		`append 0 events: the conditions do not hold: condition 0: an event matches at position 6, B, event 4 of stream "s"`,
		`append 0 events: the conditions do not hold: condition 1: an event matches at position 5`,
	} {
		if _, err := c.AppendMany(t.Context(), nil, client.Condition{Query: all}); err == nil || err.Error() != want || !errors.Is(err, client.ErrWrongVersion) {
			t.Errorf("got %v", err)
		}
	}
	binary := client.Event{Type: "T", Data: []byte("x"), Binary: true, Tags: []string{"t:1"}}
	if _, err := script(t).Append(t.Context(), "s", client.AnyVersion, binary); err == nil {
		t.Error("the tags are lost")
	}
}

// TestTailQuery: the tail of a query begins after a position, and its places are positions.
func TestTailQuery(t *testing.T) {
	c := script(t, exchange{"/query?tags=t%3A1&types=A%2CB", "", 200, "id: 9\ndata: {}\n\nevent: end\ndata: {}\n\n"})
	var got []client.Place
	for m, err := range c.TailQuery(t.Context(), client.QueryItem{Types: []string{"A", "B"}, Tags: []string{"t:1"}}, new(int64(7))) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m.ID)
	}
	if fmt.Sprint(got) != "[9 ]" {
		t.Errorf("got %q", got)
	}
	for _, err := range c.TailQuery(t.Context(), client.QueryItem{Streams: []string{"a,b"}}, nil) {
		if err == nil {
			t.Error("a comma separates names")
		}
	}
}
