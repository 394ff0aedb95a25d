package httpapi_test

import (
	"encoding/xml"
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestFeedLinks(t *testing.T) {
	for _, c := range []struct {
		name, metadata string
		events         int
		path           string
		numbers        string
		head           bool
		links          string
	}{
		{"head", "", 25, "", "24 23 22 21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5", true,
			"self= first=/head/backward/20 last=/0/forward/20 next=/4/backward/20 previous=/25/forward/20 metadata=/metadata"},
		{"second page", "", 25, "/4/backward/20", "4 3 2 1 0", false,
			"self= first=/head/backward/20 previous=/5/forward/20 metadata=/metadata"},
		{"head by name", "", 3, "/head/backward/2", "2 1", true,
			"self= first=/head/backward/2 last=/0/forward/2 next=/0/backward/2 previous=/3/forward/2 metadata=/metadata"},
		{"short form", "", 3, "/head/2", "2 1", true,
			"self= first=/head/backward/2 last=/0/forward/2 next=/0/backward/2 previous=/3/forward/2 metadata=/metadata"},
		{"short form with number", "", 3, "/1/1", "1", false,
			"self= first=/head/backward/1 last=/0/forward/1 next=/0/backward/1 previous=/2/forward/1 metadata=/metadata"},
		{"head holds all: one", "", 1, "", "0", true,
			"self= first=/head/backward/20 previous=/1/forward/20 metadata=/metadata"},
		{"head holds all: full", "", 2, "/head/backward/2", "1 0", true,
			"self= first=/head/backward/2 previous=/2/forward/2 metadata=/metadata"},
		{"partly above the last", "", 3, "/4/backward/3", "2", false,
			"self= first=/head/backward/3 last=/0/forward/3 next=/1/backward/3 previous=/3/forward/3 metadata=/metadata"},
		{"wholly above the last", "", 3, "/30/backward/3", "", false,
			"self= first=/head/backward/3 last=/0/forward/3 next=/27/backward/3 previous=/3/forward/3 metadata=/metadata"},
		{"forward from the start", "", 25, "/0/forward/20", "19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0", false,
			"self= first=/head/backward/20 previous=/20/forward/20 metadata=/metadata"},
		{"forward over all", "", 25, "/0/forward/25", "24 23 22 21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0", true,
			"self= first=/head/backward/25 previous=/25/forward/25 metadata=/metadata"},
		{"forward in the middle", "", 25, "/3/forward/4", "6 5 4 3", false,
			"self= first=/head/backward/4 last=/0/forward/4 next=/2/backward/4 previous=/7/forward/4 metadata=/metadata"},
		{"forward at the end", "", 25, "/25/forward/20", "", true,
			"self= first=/head/backward/20 last=/0/forward/20 next=/24/backward/20 metadata=/metadata"},
		{"forward far above", "", 2, "/9223372036854775807/forward/4096", "", true,
			"self= first=/head/backward/4096 last=/0/forward/4096 next=/9223372036854775806/backward/4096 metadata=/metadata"},
		{"backward far above", "", 1, "/9223372036854775807/backward/1", "", false,
			"self= first=/head/backward/1 last=/0/forward/1 next=/9223372036854775806/backward/1 previous=/1/forward/1 metadata=/metadata"},
		{"forward into a hole", `{"$tb":10}`, 12, "/0/forward/5", "", false,
			"self= first=/head/backward/5 previous=/5/forward/5 metadata=/metadata"},
		{"forward out of a hole", `{"$tb":10}`, 12, "/5/forward/6", "10", false,
			"self= first=/head/backward/6 last=/0/forward/6 next=/4/backward/6 previous=/11/forward/6 metadata=/metadata"},
		{"truncated head", `{"$tb":3}`, 5, "", "4 3", true,
			"self= first=/head/backward/20 previous=/5/forward/20 metadata=/metadata"},
		{"counted head", `{"$maxCount":2}`, 5, "/head/backward/2", "4 3", true,
			"self= first=/head/backward/2 previous=/5/forward/2 metadata=/metadata"},
		{"all hidden", `{"$tb":3}`, 3, "", "", true,
			"self= first=/head/backward/20 previous=/0/forward/20 metadata=/metadata"},
		{"below the truncation", `{"$tb":3}`, 5, "/1/backward/5", "", false,
			"self= first=/head/backward/5 previous=/2/forward/5 metadata=/metadata"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.filled("s", c.events)
			if c.metadata != "" {
				n.meta("s", c.metadata)
			}
			f := n.feed("/streams/s" + c.path)
			check.Equal(t, f.numbers(), c.numbers, "numbers")
			check.Equal(t, f.HeadOfStream, c.head, "headOfStream")
			check.Equal(t, f.links(), c.links, "links")
			check.Equal(t, f.ID, base+"/streams/s", "id")
			check.Equal(t, f.Links[0].URI, base+"/streams/s", "self")
			backward := !strings.Contains(c.path, "forward")
			check.Equal(t, f.SelfURL != nil, backward, "selfUrl is there")
			isHead := backward && (c.path == "" || strings.HasPrefix(c.path, "/head"))
			check.Equal(t, f.ETag != nil, isHead, "eTag is there")
			if isHead {
				check.Equal(t, *f.ETag, fmt.Sprintf("%d;-1955838367", c.events-1), "eTag")
			}
		})
	}
}

func TestFollowingLinksVisitsAll(t *testing.T) {
	for _, metadata := range []string{"", `{"$tb":9}`, `{"$maxCount":7}`} {
		n := newNode(t)
		n.filled("s", 23)
		low := 0
		if metadata != "" {
			n.meta("s", metadata)
			low = map[string]int{`{"$tb":9}`: 9, `{"$maxCount":7}`: 16}[metadata]
		}
		for _, way := range []struct{ start, rel string }{{"/streams/s/head/backward/4", "next"}, {"/streams/s/0/forward/4", "previous"}} {
			var seen []string
			for path := way.start; path != ""; {
				f := n.feed(path)
				path = ""
				if s := f.numbers(); s != "" {
					seen = append(seen, strings.Fields(s)...)
				}
				for _, l := range f.Links {
					if l.Relation == way.rel {
						path = strings.TrimPrefix(l.URI, base)
					}
				}
			}
			want := map[string]bool{}
			for i := low; i < 23; i++ {
				want[fmt.Sprint(i)] = true
			}
			check.Equal(t, len(seen), len(want), metadata+way.rel+" visited")
			for _, s := range seen {
				if !want[s] {
					t.Errorf("%s%s: %s visited twice or wrongly", metadata, way.rel, s)
				}
				delete(want, s)
			}
		}
	}
}

func TestFeedFields(t *testing.T) {
	n := newNode(t)
	n.filled("s", 3)
	f := n.feed("/streams/s")
	check.Equal(t, f.Author.Name, "EventStore", "author")
	check.Equal(t, f.StreamID, "s", "streamId")
	check.Equal(t, f.Updated, "2024-02-03T10:11:14.345678Z", "updated")
	check.Equal(t, *f.SelfURL, base+"/streams/s", "selfUrl")
	e := f.Entries[0]
	check.Equal(t, fmt.Sprint(e.Title, e.ID, e.Updated, e.Summary), fmt.Sprint("2@s", base+"/streams/s/2", "2024-02-03T10:11:14.345678Z", "event-type"), "entry")
	check.Equal(t, fmt.Sprint(e.Links), fmt.Sprintf("[{%[1]s/streams/s/2 edit} {%[1]s/streams/s/2 alternate}]", base), "entry's links")
	f = n.feed("/streams/s/0/forward/2")
	check.Equal(t, f.Updated, "2024-02-03T10:11:12.345678Z", "updated forward")
	f = n.feed("/streams/s/3/forward/2")
	check.Equal(t, f.Updated, "0001-01-01T00:00:00Z", "updated without events")
}

func TestBadPages(t *testing.T) {
	n := newNode(t)
	n.filled("s", 1)
	for path, text := range map[string]string{
		"abc":                  "'abc' is not valid event number",
		"-1":                   "'-1' is not valid event number",
		"+1":                   "'+1' is not valid event number",
		"9223372036854775808":  "'9223372036854775808' is not valid event number",
		"head/forward/3":       "'head' is not valid event number",
		"x/backward/3":         "'x' is not valid event number",
		"0/forward/0":          "'0' is not valid count. Should be positive integer",
		"0/backward/-1":        "'-1' is not valid count. Should be positive integer",
		"0/forward/2147483648": "'2147483648' is not valid count. Should be positive integer",
		"0/data":               "'data' is not valid count. Should be positive integer",
		"0/forward/4097":       "Read size too big, should be less than 4096 items",
		"metadata/x":           "'x' is not valid event number",
		"metadata/0/forward/x": "'x' is not valid count",
		"incoming":             "'incoming' is not valid event number",
		"x/backward/x":         "'x' is not valid event number",
	} {
		n.get("/streams/s/"+path, appJSON).is(t, 400).says(t, text)
	}
	f := n.feed("/streams/s/0/forward/4096")
	check.Equal(t, f.numbers(), "0", "largest page")
}

func TestNotThere(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    func(*node)
		status int
		text   string
	}{
		{"never written", func(*node) {}, 404, "Not Found"},
		{"only metadata", func(n *node) { n.meta("s", "{}") }, 404, "Not Found"},
		{"soft-deleted", func(n *node) { n.filled("s", 2); n.delete("s") }, 404, "Not Found"},
		{"hard-deleted", func(n *node) { n.filled("s", 2); n.delete("s", "ES-HardDelete", "true") }, 410, "Deleted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			c.set(n)
			for _, path := range []string{"", "/head/backward/1", "/0/forward/5"} {
				n.get("/streams/s"+path, appJSON).is(t, c.status).says(t, c.text)
			}
			for _, path := range []string{"/0", "/head"} {
				a := n.get("/streams/s"+path, appJSON).is(t, c.status)
				if c.status == 404 {
					check.Equal(t, a.body, "{}", "JSON body")
					n.get("/streams/s"+path, atomXML).is(t, 404).bare(t)
				} else {
					a.says(t, c.text)
				}
			}
		})
	}
}

// levels writes a JSON event with metadata, a text and a JSON event without metadata.
func levels(n *node) {
	n.batch("s", `[{"eventId":"0f9fad5b-d9cb-469f-a165-70867728950e","eventType":"A","data":{"a":1},"metadata":{"m":2}},`+
		`{"eventId":"1f9fad5b-d9cb-469f-a165-70867728950e","eventType":"B","data":"plain"},`+
		`{"eventId":"2f9fad5b-d9cb-469f-a165-70867728950e","eventType":"C","data":{"b":[2]}}]`).is(n.t, 201)
}

func TestEmbed(t *testing.T) {
	n := newNode(t)
	levels(n)
	value := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	for _, c := range []struct {
		level    string
		rich     bool
		data     [3]string
		metadata string
	}{
		{"none", false, [3]string{"-", "-", "-"}, "-"},
		{"unknown", false, [3]string{"-", "-", "-"}, "-"},
		{"content", false, [3]string{"-", "-", "-"}, "-"},
		{"rich", true, [3]string{"-", "-", "-"}, "-"},
		{"body", true, [3]string{`{"a":1}`, "-", `{"b":[2]}`}, `{"m":2}`},
		{"BODY", true, [3]string{`{"a":1}`, "-", `{"b":[2]}`}, `{"m":2}`},
		{"pretty", true, [3]string{"{\n  \"a\": 1\n}", "-", "{\n  \"b\": [\n    2\n  ]\n}"}, "{\n  \"m\": 2\n}"},
		{"PrettyBody", true, [3]string{"{\n  \"a\": 1\n}", "-", "{\n  \"b\": [\n    2\n  ]\n}"}, "{\n  \"m\": 2\n}"},
		{"TryHarder", true, [3]string{"{\n  \"a\": 1\n}", "plain", "{\n  \"b\": [\n    2\n  ]\n}"}, "{\n  \"m\": 2\n}"},
	} {
		t.Run(c.level, func(t *testing.T) {
			f := n.feed("/streams/s?embed=" + c.level)
			for i, e := range []entry{f.Entries[2], f.Entries[1], f.Entries[0]} {
				check.Equal(t, value(e.Data), c.data[i], "data")
				check.Equal(t, e.EventID != nil, c.rich, "rich")
				if !c.rich {
					continue
				}
				check.Equal(t, *e.EventType, string("ABC"[i]), "eventType")
				check.Equal(t, [2]int64{*e.EventNumber, *e.PositionEventNumber}, [2]int64{int64(i), int64(i)}, "numbers")
				check.Equal(t, [2]string{*e.StreamID, *e.PositionStreamID}, [2]string{"s", "s"}, "streams")
				check.Equal(t, *e.IsJSON, i != 1, "isJson")
				check.Equal(t, *e.IsMetaData, i == 0 && c.metadata != "-", "isMetaData")
				check.Equal(t, *e.IsLinkMetaData || *e.IsRedacted, false, "isLinkMetaData and isRedacted")
				want := "-"
				if i == 0 {
					want = c.metadata
				}
				check.Equal(t, value(e.MetaData), want, "metaData")
			}
			check.Equal(t, f.Entries[2].Content != nil, c.level == "content", "content of JSON")
			check.Equal(t, f.Entries[1].Content != nil, false, "content of text")
			if got := f.Entries[2].Content; got != nil {
				check.Equal(t, fmt.Sprintf("%s %d %s %s %s %s", got.EventStreamID, got.EventNumber, got.EventType, got.EventID, got.Data, got.Metadata),
					`s 0 A 0f9fad5b-d9cb-469f-a165-70867728950e {"a":1} {"m":2}`, "content")
				check.Equal(t, string(f.Entries[0].Content.Metadata), `""`, "no metadata")
			}
		})
	}
}

func TestTryHarder(t *testing.T) {
	n := newNode(t)
	for _, body := range []string{"words", `{"z": 1}`, "12", "\xff\xfe"} {
		n.one("/streams/s", octets, body).is(t, 201)
	}
	f := n.feed("/streams/s?embed=tryharder")
	for i, want := range []struct {
		data   string
		isJSON bool
	}{{"words", false}, {"{\n  \"z\": 1\n}", true}, {"12", false}, {"\ufffd\ufffd", false}} {
		e := f.Entries[3-i]
		check.Equal(t, *e.Data, want.data, "data")
		check.Equal(t, *e.IsJSON, want.isJSON, "isJson")
	}
}

// A page shows so much of each event as the caller asks for, never half a character, and how much
// there is.
func TestMaxData(t *testing.T) {
	n := newNode(t)
	n.put("s", `{"text":"äöü"}`)
	n.one("/streams/s", octets, "words").is(t, 201)
	for query, want := range map[string]string{
		"embed=body&maxData=11":     `"data":"{\"text\":\"ä","streamId":"s","isJson":true,"isMetaData":false,"isLinkMetaData":false,"isRedacted":false,"positionEventNumber":0,"positionStreamId":"s","dataBytes":17,`,
		"embed=tryharder&maxData=3": `"data":"wor","streamId":"s","isJson":false,"isMetaData":false,"isLinkMetaData":false,"isRedacted":false,"positionEventNumber":1,"positionStreamId":"s","dataBytes":5,`,
		"embed=body&maxData=0":      `"data":"",`,
		"embed=rich&maxData=0":      `"positionStreamId":"s","links"`,
	} {
		for _, path := range []string{"/streams/s?", "/streams/$all?"} {
			if a := n.get(path+query, appJSON).is(t, 200); !strings.Contains(a.body, want) {
				t.Errorf("%s%s: %s", path, query, a.body)
			}
		}
	}
	for _, bad := range []string{"-1", "x", ""} {
		n.get("/streams/s?embed=body&maxData="+bad, appJSON).is(t, 400).says(t, "'"+bad+"' is not valid maxData")
	}
	check.Equal(t, n.get("/streams/s/0?maxData=1", appJSON).body, `{"text":"äöü"}`, "a single event")
}

// atomFeed is the Atom feed as a strict reader sees it.
type atomFeed struct {
	XMLName xml.Name    `xml:"http://www.w3.org/2005/Atom feed"`
	Title   string      `xml:"http://www.w3.org/2005/Atom title"`
	ID      string      `xml:"http://www.w3.org/2005/Atom id"`
	Updated string      `xml:"http://www.w3.org/2005/Atom updated"`
	Author  string      `xml:"http://www.w3.org/2005/Atom author>name"`
	Links   []atomLink  `xml:"http://www.w3.org/2005/Atom link"`
	Entries []atomEntry `xml:"http://www.w3.org/2005/Atom entry"`
}

type atomLink struct {
	Href string `xml:"href,attr"`
	Rel  string `xml:"rel,attr"`
}

type atomEntry struct {
	XMLName xml.Name     `xml:"http://www.w3.org/2005/Atom entry"`
	Title   string       `xml:"http://www.w3.org/2005/Atom title"`
	ID      string       `xml:"http://www.w3.org/2005/Atom id"`
	Summary string       `xml:"http://www.w3.org/2005/Atom summary"`
	Links   []atomLink   `xml:"http://www.w3.org/2005/Atom link"`
	Content *atomContent `xml:"http://www.w3.org/2005/Atom content"`
}

// atomContent has its children in no namespace.
type atomContent struct {
	Type  string   `xml:"type,attr"`
	Inner []xmlAny `xml:",any"`
}

type xmlAny struct {
	XMLName xml.Name
	Text    string   `xml:",chardata"`
	Inner   []xmlAny `xml:",any"`
}

func (x xmlAny) String() string {
	s := x.XMLName.Space + "|" + x.XMLName.Local + "="
	if len(x.Inner) > 0 {
		return s + fmt.Sprint(x.Inner)
	}
	return s + x.Text
}

func decodeXML[T any](t testing.TB, a answer) (v T) {
	t.Helper()
	a.is(t, 200)
	check.Must(t, xml.Unmarshal([]byte(a.body), &v), "body", a.body)
	return v
}

func TestAtomFeed(t *testing.T) {
	n := newNode(t)
	n.filled("a<b>&c", 0+2)
	f := decodeXML[atomFeed](t, n.get("/streams/a%3Cb%3E%26c?embed=body", atomXML))
	check.Equal(t, f.Title, "Event stream 'a<b>&c'", "title")
	check.Equal(t, f.ID, base+"/streams/a%3Cb%3E%26c", "id")
	check.Equal(t, f.Author, "EventStore", "author")
	check.Equal(t, fmt.Sprint(f.Links), fmt.Sprintf("[{%[1]s self} {%[1]s/head/backward/20 first} {%[1]s/2/forward/20 previous} {%[1]s/metadata metadata}]", f.ID), "links")
	check.Equal(t, f.Entries[0].Title+f.Entries[0].ID, "1@a<b>&c"+f.ID+"/1", "entry")
	check.Equal(t, f.Entries[0].Links[1], atomLink{f.ID + "/1", "alternate"}, "second link")
	if f.Entries[0].Content != nil {
		t.Error("content without being asked for")
	}
	f = decodeXML[atomFeed](t, n.get("/streams/a%3Cb%3E%26c?embed=content", "application/xml").has(t, "Content-Type", "application/xml; charset=utf-8"))
	check.Equal(t, fmt.Sprint(f.Entries[0].Content.Inner),
		"[|eventStreamId=a<b>&c |eventNumber=1 |eventType=event-type |eventId=00000000-0000-4000-8000-000000000002 |data=[|n=1] |metadata=]", "content")
}

func TestForwardedAddresses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		headers    []string
	}{
		{"none", base, nil},
		{"prefix", base + "/esdb", []string{"X-Forwarded-Prefix", "esdb"}},
		{"prefix with slashes", base + "/es/db", []string{"X-Forwarded-Prefix", "/es/db/"}},
		{"host and port", "http://proxy.example:8443", []string{"X-Forwarded-Host", "proxy.example:8443"}},
		{"host keeps the port", "http://proxy.example:2113", []string{"X-Forwarded-Host", "proxy.example"}},
		{"protocol", "https://" + host, []string{"X-Forwarded-Proto", "https"}},
		{"port", "http://node.example:99", []string{"X-Forwarded-Port", "99"}},
		{"the host's port wins", "http://p:1", []string{"X-Forwarded-Port", "99", "X-Forwarded-Host", "p:1"}},
		{"default port", "https://p", []string{"X-Forwarded-Proto", "https", "X-Forwarded-Host", "p:443"}},
		{"first of a list", "http://a:1", []string{"X-Forwarded-Host", "a:1, b:2"}},
		{"address of version 6", "http://[::1]:7", []string{"X-Forwarded-Host", "[::1]:7"}},
		{"no host at all", base, []string{"X-Forwarded-Host", `"><script>`}},
		{"no port at all", base, []string{"X-Forwarded-Port", "x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.filled("s", 25)
			f := n.feed("/streams/s", c.headers...)
			check.Equal(t, f.ID, c.want+"/streams/s", "id")
			check.Equal(t, f.Links[3].URI, c.want+"/streams/s/4/backward/20", "next")
			check.Equal(t, f.Entries[0].ID, c.want+"/streams/s/24", "entry")
		})
	}
}
