package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestSingleEventTypes(t *testing.T) {
	n := newNode(t)
	levels(n)
	n.one("/streams/s", octets, "", "ES-EventType", "D").is(t, 201)                 // 3
	n.one("/streams/s", octets, "1 < 2\xff", "ES-EventType", "E").is(t, 201)        // 4
	n.one("/streams/s", appJSON, `[1,{"a":2}]`, "ES-EventType", "F").is(t, 201)     // 5
	n.one("/streams/s", octets, "{\"a\":\"\xff\"}", "ES-EventType", "G").is(t, 201) // 6
	const head = `"eventStreamId":"s","eventNumber":`
	for _, c := range []struct {
		number, accept, contentType, want string
	}{
		{"0", appJSON, "application/json; charset=utf-8", `{"a":1}`},
		{"1", appJSON, "application/json; charset=utf-8", `"plain"`},
		{"3", appJSON, "application/json; charset=utf-8", `""`},
		{"4", appJSON, "application/json; charset=utf-8", "\"1 < 2\ufffd\""},
		{"5", appJSON, "application/json; charset=utf-8", `[1,{"a":2}]`},
		{"6", appJSON, "application/json; charset=utf-8", `"{\"a\":\"` + "\ufffd" + `\"}"`},
		{"6", textXML, "text/xml; charset=utf-8", "<data><a>\ufffd</a></data>"},
		{"0", textXML, "text/xml; charset=utf-8", `<data><a>1</a></data>`},
		{"1", textXML, "text/xml; charset=utf-8", `<data>plain</data>`},
		{"3", "application/xml", "application/xml; charset=utf-8", `<data />`},
		{"4", textXML, "text/xml; charset=utf-8", "<data>1 &lt; 2\ufffd</data>"},
		{"5", textXML, "text/xml; charset=utf-8", `<data>[1,{"a":2}]</data>`},
		{"0", eventJSON, eventJSON + "; charset=utf-8", `{` + head + `0,"eventType":"A","eventId":"0f9fad5b-d9cb-469f-a165-70867728950e","data":{"a":1},"metadata":{"m":2}}`},
		{"2", eventJSON, eventJSON + "; charset=utf-8", `{` + head + `2,"eventType":"C","eventId":"2f9fad5b-d9cb-469f-a165-70867728950e","data":{"b":[2]},"metadata":""}`},
		{"0", "application/vnd.eventstore.event+xml", "application/vnd.eventstore.event+xml; charset=utf-8",
			`<event><eventStreamId>s</eventStreamId><eventNumber>0</eventNumber><eventType>A</eventType><eventId>0f9fad5b-d9cb-469f-a165-70867728950e</eventId><data><a>1</a></data><metadata><m>2</m></metadata></event>`},
		{"0", octets, octets, `{"a":1}`},
		{"3", octets, octets, ""},
		{"4", octets, octets, "1 < 2\xff"},
		{"0", "application/vnd.kurrent.event+json", "application/vnd.kurrent.event+json; charset=utf-8", `{` + head + `0,"eventType":"A","eventId":"0f9fad5b-d9cb-469f-a165-70867728950e","data":{"a":1},"metadata":{"m":2}}`},
	} {
		t.Run(c.number+" "+c.accept, func(t *testing.T) {
			a := n.get("/streams/s/"+c.number, c.accept).is(t, 200).has(t, "Content-Type", c.contentType).
				has(t, "Vary", "Accept").has(t, "Cache-Control", "max-age=31536000, private").has(t, "ETag", "")
			check.Equal(t, a.body, c.want, "body")
		})
	}
}

func TestSingleEntry(t *testing.T) {
	n := newNode(t)
	levels(n)
	e := decode[entry](t, n.get("/streams/s/0", atomJSON))
	check.Equal(t, e.Title, "0@s", "title")
	check.Equal(t, e.Summary, "A", "summary")
	check.Equal(t, string(e.Content.Data), `{"a":1}`, "data")
	check.Equal(t, e.EventID == nil, true, "rich")
	e = decode[entry](t, n.get("/streams/s/0?embed=tryharder", atomJSON))
	check.Equal(t, *e.Data, "{\n  \"a\": 1\n}", "rich data")
	check.Equal(t, string(e.Content.Data), `{"a":1}`, "content")
	e = decode[entry](t, n.get("/streams/s/1", atomJSON))
	check.Equal(t, e.Content == nil, true, "content of text")

	for _, accept := range []string{"", "*/*", atomXML, "application/*"} {
		x := decodeXML[atomEntry](t, n.get("/streams/s/0", accept).has(t, "Content-Type", "application/atom+xml; charset=utf-8"))
		check.Equal(t, x.Title+x.ID+x.Summary, "0@s"+base+"/streams/s/0A", "entry")
		check.Equal(t, fmt.Sprint(x.Content.Inner[4:]), "[|data=[|a=1] |metadata=[|m=2]]", "content")
		check.Equal(t, strings.Contains(n.get("/streams/s/0", accept).body, `<atom:entry xmlns:atom="http://www.w3.org/2005/Atom">`), true, "prefix")
	}
	x := decodeXML[atomEntry](t, n.get("/streams/s/1", atomXML))
	check.Equal(t, x.Content == nil, true, "XML content of text")
}

func TestHeadEvent(t *testing.T) {
	n := newNode(t)
	n.filled("s", 3)
	a := n.get("/streams/s/head", appJSON, "If-None-Match", `"2;248368668"`).is(t, 200).
		has(t, "ETag", `"2;248368668"`).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate")
	check.Equal(t, a.body, `{"n":2}`, "body")
	n.meta("s", `{"$cacheControl":12}`)
	n.get("/streams/s/head", appJSON).has(t, "Cache-Control", "max-age=12, private")
	n.meta("s", `{"$tb":3}`)
	n.get("/streams/s/head", appJSON).is(t, 404)
	n.get("/streams/s/2", appJSON).is(t, 404)
}

func TestHTML(t *testing.T) {
	n := newNode(t)
	n.filled("a%22%3C%2Fscript%3E", 2)
	const name = "a%22%3C%2Fscript%3E"
	for path, want := range map[string]string{
		"/streams/" + name:        `; url=/web/index.html#/streams/` + name + `">`,
		"/streams/" + name + "/1": `; url=/web/index.html#/streams/` + name + `/1">`,
		"/streams/$all":           `; url=/web/index.html#/streams/%24all">`,
	} {
		a := n.get(path, "text/html").is(t, 200).has(t, "Content-Type", "text/html; charset=utf-8")
		if !strings.Contains(a.body, want) || strings.Contains(a.body, "script>") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	n.get("/streams/other", "text/html").is(t, 404)
	n.do("POST", "/streams/s", "{}", admin("Accept", "text/html", "Content-Type", appJSON)).is(t, 406)
}

func TestLinks(t *testing.T) {
	n := newNode(t)
	n.filled("target@x@", 2)
	link := func(data, metadata string) string {
		return `{"eventId":"` + n.id() + `","eventType":"$>","data":"` + data + `"` + metadata + `}`
	}
	n.batch("k", "["+link("1@target@x@", `,"metadata":{"l":1}`)+","+link("0@gone", "")+","+link("no link", "")+"]").is(t, 201)
	const target = base + "/streams/target%40x%40/1"

	f := n.feed("/streams/k?embed=body")
	check.Equal(t, f.Entries[0].Title+" "+f.Entries[1].Title+" "+f.Entries[2].Title, "2@k 0@gone 1@target@x@", "titles")
	e := f.Entries[2]
	check.Equal(t, strings.Join([]string{e.ID, e.Links[0].URI, e.Summary, *e.EventType, *e.StreamID, *e.PositionStreamID, *e.Data, *e.LinkMetaData}, " "),
		strings.Join([]string{target, target, "$>", "event-type", "target@x@", "k", `{"n":1}`, `{"l":1}`}, " "), "entry")
	check.Equal(t, [2]int64{*e.EventNumber, *e.PositionEventNumber}, [2]int64{1, 0}, "numbers")
	check.Equal(t, *e.IsLinkMetaData && !*e.IsMetaData, true, "link metadata")
	check.Equal(t, e.Updated, "2024-02-03T10:11:14.345678Z", "time is the link's")

	for _, level := range []string{"", "?embed=rich", "?embed=content", "?embed=tryharder"} {
		f := n.feed("/streams/k/1/backward/1" + level)
		e := f.Entries[0]
		check.Equal(t, e.Title+e.Summary+e.Links[0].Relation+e.Links[1].URI, "0@gone$>edit"+base+"/streams/gone/0", "dead link")
		check.Equal(t, e.EventID == nil && e.Content == nil, true, "plain")
		check.Equal(t, f.Updated, "0001-01-01T00:00:00Z", "updated")
	}
	n.get("/streams/k/1", appJSON).is(t, 404)
	f = n.feed("/streams/k/0/forward/1?embed=content")
	check.Equal(t, f.Entries[0].Content == nil, true, "no content through a link")
	check.Equal(t, n.get("/streams/k/0", appJSON).is(t, 200).body, `{"n":1}`, "single")
	se := decode[entry](t, n.get("/streams/k/0?embed=rich", atomJSON))
	check.Equal(t, se.Content == nil && *se.StreamID == "target@x@", true, "single entry")

	for _, value := range []string{"False", "false"} {
		f = n.feed("/streams/k?embed=tryharder", "ES-ResolveLinkTos", value)
		e = f.Entries[2]
		check.Equal(t, strings.Join([]string{e.Title, e.Summary, *e.EventType, *e.StreamID, *e.Data}, " "), "0@k $> $> k 1@target@x@", "unresolved")
		check.Equal(t, *e.IsJSON, false, "isJson")
		check.Equal(t, n.get("/streams/k/0", octets, "ES-ResolveLinkTos", value).body, "1@target@x@", "unresolved single")
	}
	n.get("/streams/k", appJSON, "ES-ResolveLinkTos", "perhaps").is(t, 400).says(t, "ES-ResolveLinkTos header in wrong format.")
	n.get("/streams/k/0", appJSON, "ES-ResolveLinkTos", "").is(t, 400)

	n.one("/streams/k2", appJSON, "0@target@x@", "ES-EventType", "$>").is(t, 201)
	f = n.feed("/streams/k2?embed=rich")
	check.Equal(t, *f.Entries[0].StreamID, "target@x@", "link in the single form")
}

func TestRedacted(t *testing.T) {
	n := newNode(t)
	n.filled("s", 1)
	n.store.Redact("s", 0)
	for _, accept := range []string{appJSON, atomJSON, atomXML, textXML, eventJSON, octets, "application/vnd.eventstore.event+xml"} {
		n.get("/streams/s/0?embed=tryharder", accept).is(t, 200)
		if accept != octets {
			n.get("/streams/s?embed=content", accept).is(t, 200)
		}
	}
	f := n.feed("/streams/s?embed=tryharder")
	check.Equal(t, *f.Entries[0].IsRedacted, true, "isRedacted")
	check.Equal(t, *f.Entries[0].Data, strings.Repeat("\ufffd", 7), "data")
}
