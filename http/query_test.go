package httpapi_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
)

const ndjson = "application/x-ndjson"

// foundPage is an answer to a query as a client reads it.
type foundPage struct {
	Position int64
	Events   []foundEvent
	Next     *int64
}

type foundEvent struct {
	Position, Number           int64
	Stream, EventID, EventType string
	Created                    string
	IsJSON, IsRedacted         bool
	Data, Metadata             json.RawMessage
	DataBase64, MetadataBase64 *string
	Tags                       []string
}

func (p *foundPage) String() string {
	var b strings.Builder
	for _, e := range p.Events {
		fmt.Fprintf(&b, "%d@%s ", e.Number, e.Stream)
	}
	fmt.Fprintf(&b, "to %d", p.Position)
	if p.Next != nil {
		fmt.Fprintf(&b, ", next %d", *p.Next)
	}
	return b.String()
}

func (n *node) query(body string, headers ...string) answer {
	return n.do("POST", "/query", body, admin(append(headers, "Content-Type", appJSON)...))
}

func TestQuery(t *testing.T) {
	n := newNode(t)
	n.tagged("show-7", "SeatTaken", `{"$tags":["show:7","seat:1"],"$correlationId":"c"}`) // 0
	n.tagged("show-7", "SeatTaken", `{"$tags":["show:7","seat:2"]}`)                      // 100
	n.tagged("show-8", "SeatTaken", `{"$tags":["show:8","seat:1"]}`)                      // 200
	n.tagged("hall-2", "HallOpened", `{"$tags":["hall:2"]}`)                              // 300
	n.tagged("show-7", "SeatFreed", `{"$tags":["show:7","seat:1"]}`)                      // 400
	n.one("/streams/raw", octets, "\x00\x01").is(t, 201)                                  // 500
	n.put("$system", "{}")                                                                // 600
	two := `{"items":[{"types":["SeatTaken","SeatFreed"],"tags":["show:7","seat:1"]},{"categories":["hall"]}]}`
	for _, c := range []struct{ body, want string }{
		{`{"query":` + two + `}`, "0@show-7 0@hall-2 2@show-7 to 600"},
		{`{"query":` + two + `,"limit":2}`, "0@show-7 0@hall-2 to 600, next 300"},
		{`{"query":` + two + `,"limit":2,"after":300,"until":600}`, "2@show-7 to 600"},
		{`{"query":` + two + `,"limit":1,"after":0,"until":399}`, "0@hall-2 to 399"},
		{`{"query":` + two + `,"after":null,"until":300}`, "0@show-7 0@hall-2 to 300"},
		{`{"query":` + two + `,"backward":true,"limit":1}`, "2@show-7 to 600, next 399"},
		{`{"query":` + two + `,"backward":true,"limit":2,"until":399}`, "0@hall-2 0@show-7 to 399"},
		{`{"query":` + two + `,"backward":true,"after":0}`, "2@show-7 0@hall-2 to 600"},
		{`{"query":` + two + `,"after":"000000000000012C000000000000012C"}`, "2@show-7 to 600"},
		{`{"query":{"all":true},"after":400}`, "0@raw to 600"},
		{`{"query":{"items":[{"streams":["show-8"]}]}}`, "0@show-8 to 600"},
		{`{"query":{"items":[{"correlation":"c"}]}}`, "0@show-7 to 600"},
		{`{"query":{"items":[{"types":["None"]}]}}`, "to 600"},
	} {
		page := decode[foundPage](t, n.query(c.body))
		check.Equal(t, page.String(), c.want, c.body)
	}
	for _, c := range []struct{ query, want string }{
		{"types=SeatTaken,SeatFreed&tags=show:7,seat:1", "0@show-7 2@show-7 to 600"},
		{"streams=show-8&limit=1", "0@show-8 to 600"},
		{"categories=show&backward=true&limit=1&until=200", "0@show-8 to 200, next 199"},
		{"correlation=c&after=0&until=00000000000000640000000000000064", "to 100"},
	} {
		page := decode[foundPage](t, n.get("/query?"+c.query, ""))
		check.Equal(t, page.String(), c.want, c.query)
	}
	for _, c := range []struct{ body, text string }{
		{`[]`, "The body must be a JSON object."},
		{`{}`, "query is required."},
		{`{"query":{"items":[{}]}}`, "items[0]: at least one member is needed"},
		{`{"query":{"all":true},"form":1}`, `unknown member "form"`},
		{`{"query":{"all":true},"limit":0}`, "limit must be between 1 and 4096 inclusive"},
		{`{"query":{"all":true},"limit":4097}`, "limit must be between 1 and 4096 inclusive"},
		{`{"query":{"all":true},"after":-1}`, "after must be a position."},
		{`{"query":{"all":true},"until":"12"}`, "until must be a position."},
		{`{"query":{"all":true},"backward":1}`, "backward must be true or false."},
		{`{"query":{"all":true},"after":700}`, "Position 700 lies beyond the end of the log."},
	} {
		check.Equal(t, n.query(c.body).is(t, 400).body, c.text, c.body)
	}
	for query, text := range map[string]string{
		"": "items[0]: at least one member is needed", "types=A,": "items[0].types: one is empty", "types=A&after=x": "after must be a position.",
		"types=A&limit=x": "limit must be between 1 and 4096 inclusive", "types=A&backward=2": "backward must be true or false.", "types=A&data=2": "data must be true or false.",
		"types=A&explain=2": "explain must be true or false.",
	} {
		check.Equal(t, n.get("/query?"+query, "").is(t, 400).body, text, query)
	}
	n.query(`{"query":{"all":true}}`, "Accept", "text/html").is(t, 406)
	n.get("/query?types=A&explain=true", "", "Accept", ndjson).is(t, 400)
	n.do("POST", "/query", "{}", admin("Content-Type", textXML)).is(t, 415)
	n.do("GET", "/query?types=A", "", with()).is(t, 200)
	n.meta("$idx", `{"$acl":{"$r":"jane"}}`)
	n.do("GET", "/query?types=A", "", ofUser("ops")).is(t, 401)
	n.do("GET", "/query?types=A", "", ofUser("jane")).is(t, 200)
	n.cluster.role, n.cluster.leader = "follower", "http://leader:1"
	n.get("/query?types=A", "", "ES-RequireLeader", "true").is(t, 307).has(t, "Location", "http://leader:1/query?types=A")
	n.get("/query?types=A&after=99999", "").is(t, 200)
}

// TestQueryOfNothing: the position of an empty log is that before its first event, which can be 0.
func TestQueryOfNothing(t *testing.T) {
	n := newNode(t)
	const none = `{"position":null,"events":[],"next":null}`
	check.Equal(t, n.query(`{"query":{"all":true}}`).is(t, 200).body, none)
	check.Equal(t, n.query(`{"query":{"all":true},"backward":true,"after":null,"until":null}`).is(t, 200).body, none)
	check.Equal(t, n.query(`{"query":{"all":true},"explain":true}`).is(t, 200).body, strings.Replace(none, "null}", `null,"explain":{"looked":0}}`, 1))
	check.Equal(t, n.get("/query?types=T", "", "Accept", ndjson).is(t, 200).body, "{\"position\":null}\n{\"end\":true}\n")
}

func TestQueryDocument(t *testing.T) {
	n := newNode(t)
	n.batch("s-1", fmt.Sprintf(`[{"eventId":%q,"eventType":"T","data":{ "n" :
		12345678901234567890.0},"metadata":{"$tags":"a, b"}}]`, n.id())).is(t, 201)
	n.one("/streams/raw", octets, "\x00\x01", "ES-EventType", "T").is(t, 201)
	const first = `{"position":0,"stream":"s-1","number":0,"eventId":"00000000-0000-4000-8000-000000000001","eventType":"T","created":"2024-02-03T10:11:12.345678Z","isJson":true`
	const second = `{"position":100,"stream":"raw","number":0,"eventId":"00000000-0000-4000-8000-000000000002","eventType":"T","created":"2024-02-03T10:11:13.345678Z","isJson":false`
	const whole = first + `,"data":{"n":12345678901234567890.0},"metadata":{"$tags":"a, b"},"tags":["a","b"]}`
	const raw = second + `,"dataBase64":"AAE=","metadata":null,"tags":[]}`
	got := n.get("/query?types=T", "").is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8").has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate, private")
	check.Equal(t, got.body, `{"position":100,"events":[`+whole+`,`+raw+`],"next":null}`)
	check.Equal(t, n.get("/query?types=T&data=false", "").is(t, 200).body, `{"position":100,"events":[`+first+`,"tags":["a","b"]},`+second+`,"tags":[]}],"next":null}`)
	lines := n.get("/query?types=T", ndjson).is(t, 200).has(t, "Content-Type", "application/x-ndjson; charset=utf-8")
	check.Equal(t, lines.body, "{\"position\":100}\n"+whole+"\n"+raw+"\n{\"end\":true}\n")
	check.Equal(t, n.query(`{"query":{"all":true},"limit":1,"backward":true}`, "Accept", ndjson).is(t, 200).body, "{\"position\":100}\n"+raw+"\n{\"end\":true}\n")
}

// TestQueryBytes: a page has at most 4 MiB of data, whatever the number of events.
func TestQueryBytes(t *testing.T) {
	n := newNode(t)
	for range 5 {
		n.put("big", fmt.Sprintf("%q", strings.Repeat("x", 1_500_000)))
	}
	page := decode[foundPage](t, n.get("/query?streams=big", ""))
	check.Equal(t, page.String(), "0@big 1@big to 400, next 100")
	page = decode[foundPage](t, n.get("/query?streams=big&backward=true&until=300", ""))
	check.Equal(t, page.String(), "3@big 2@big to 300, next 199")
	check.Equal(t, strings.Count(n.get("/query?streams=big", ndjson).is(t, 200).body, "\n"), 7)
}

func TestQueryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("a", "{}")
		answered := make(chan answer)
		ask := func() {
			go func() { answered <- n.get("/query?streams=a&until=100", "") }()
			synctest.Wait()
		}
		ask()
		(<-answered).is(t, 503).says(t, "This node has not reached 100 yet")
		ask()
		n.put("a", "{}")
		page := decode[foundPage](t, <-answered)
		check.Equal(t, page.String(), "0@a 1@a to 100")
		n.store.set(&event.IndexBuilding{Done: 1, Total: 2}, false)
		n.get("/query?streams=a", "").is(t, 503).has(t, "Retry-After", "5")
	})
}

func TestQueryTails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("a-1", "{}", "{}") // 0, 100
		n.put("b", "{}")         // 200
		for query, want := range map[string]string{
			"categories=a":                         "0=0@a-1, 100=1@a-1, live",
			"categories=a&after=0":                 "100=1@a-1, live",
			"categories=a,b&after=0&until=100":     "100=1@a-1, end {\"reason\":\"to\"}",
			"categories=a&backward=true&until=99":  "0=0@a-1, end {\"reason\":\"start\"}",
			"categories=a,b&backward=true&after=0": "200=0@b, 100=1@a-1, end {\"reason\":\"to\"}",
			"categories=a&limit=1":                 "0=0@a-1, end {\"reason\":\"limit\"}",
		} {
			d := n.tail("/query?" + query)
			check.Equal(t, d.says(), want, query)
			d.leave()
			<-d.done
		}
		d := n.tailAs("jane", "/query?types=event-type&after=100", "Last-Event-ID", "100")
		check.Equal(t, d.says(), "200=0@b, live")
		n.put("a-3", "{}")
		check.Equal(t, d.says(), "300=0@a-3")
		d.leave()
		<-d.done
		n.get("/query?types=,", eventStream).is(t, 400)
	})
}

// TestQueryModel compares queries with all events, by pages and by lines.
func TestQueryModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n := newNode(t)
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	for range 120 {
		stream := pick("a-1", "a-2", "b-1", "c", "$s")
		if r.IntN(15) == 0 {
			n.meta(stream, fmt.Sprintf(`{"$maxCount":%d}`, 1+r.IntN(20)))
			continue
		}
		n.tagged(stream, pick("T", "U", "V", "$w"), pick(`{}`, `{"$tags":["x"]}`, `{"$tags":"x,y","$correlationId":"c"}`, `{"$correlationId":"c"}`))
	}
	all, err := n.store.ReadAll(t.Context(), event.AllRead{Count: 1000})
	check.Must(t, err)
	last := all.Events[len(all.Events)-1].Position
	var reader label.Reader
	for range 60 {
		var q event.Query
		for range 1 + r.IntN(3) {
			item := event.QueryItem{Streams: []string{"a-1", pick("b-1", "c")}}
			switch r.IntN(5) {
			case 0:
				item = event.QueryItem{Types: []string{pick("T", "U"), "V"}, Categories: []string{pick("a", "b")}}
			case 1:
				item = event.QueryItem{Tags: []string{"x", pick("x", "y")}}
			case 2:
				item = event.QueryItem{Correlation: "c", Types: []string{pick("T", "U", "$w")}}
			case 3:
				item = event.QueryItem{Categories: []string{pick("a", "c", "$s")}}
			}
			q.Items = append(q.Items, item)
		}
		after, until, backward, limit := int64(r.IntN(int(last)))-1, int64(r.IntN(int(last)+1)), r.IntN(2) == 0, 1+r.IntN(9)
		want := []string{}
		for i := range all.Events {
			e := &all.Events[i]
			f, err := reader.Read(e.Stream, e.Type, e.Metadata)
			check.Must(t, err)
			if _, gone := n.store.ReadEvent(t.Context(), e.Stream, e.Number, nil); gone == nil && q.Matches(&f) && e.Position > after && e.Position <= until {
				want = append(want, fmt.Sprint(e.Position))
				if backward {
					copy(want[1:], want)
					want[0] = fmt.Sprint(e.Position)
				}
			}
		}
		text := check.Value(json.Marshal(&q)).Must(t)
		ask := func(after, until int64) string {
			body := fmt.Sprintf(`{"query":%s,"until":%d,"backward":%t`, text, until, backward)
			if after >= 0 {
				body += fmt.Sprintf(`,"after":%d`, after)
			}
			return body
		}
		var got []string
		for from, to := after, until; ; {
			page := decode[foundPage](t, n.query(fmt.Sprintf(`%s,"limit":%d}`, ask(from, to), limit)))
			for _, e := range page.Events {
				got = append(got, fmt.Sprint(e.Position))
			}
			if page.Next == nil {
				break
			}
			check.MustEqual(t, len(page.Events), limit, "a page that is not the last")
			if from = *page.Next; backward {
				from, to = after, *page.Next
			}
		}
		check.Slice(t, got, want, string(text), after, until, backward)
		lines := strings.Split(n.query(ask(after, until)+"}", "Accept", ndjson).is(t, 200).body, "\n")
		check.Equal(t, len(lines), len(want)+3)
	}
}
