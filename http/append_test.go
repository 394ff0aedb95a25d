package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

func TestAppendBatch(t *testing.T) {
	n := newNode(t)
	a := n.put("s", `{"A":"1"}`, `{"A":"2"}`).
		has(t, "Location", base+"/streams/s/0").has(t, "Content-Type", "text/plain; charset=utf-8")
	check.Equal(t, a.body, "", "body")
	check.Equal(t, n.get("/streams/s/0", appJSON).is(t, 200).body, `{"A":"1"}`, "first event")
	n.put("s", `{"A":"3"}`).has(t, "Location", base+"/streams/s/2")
}

func TestAppendForms(t *testing.T) {
	for _, c := range []struct {
		name, contentType, body string
		wantJSON                bool
		want                    string
	}{
		{"json", appJSON, `{"a": 1}`, true, `{"a": 1}`},
		{"json with charset", `application/json; charset="UTF-8"`, `[1]`, true, `[1]`},
		{"json scalar", appJSON, `12`, true, `12`},
		{"atom json is as json", atomJSON, `{}`, true, `{}`},
		{"xml", textXML, `<a>1</a>`, false, `<a>1</a>`},
		{"other xml", "application/xml", `<a/>`, false, `<a/>`},
		{"atom xml is as xml", atomXML, `<a/>`, false, `<a/>`},
		{"bytes", octets, "\xff\x00x", false, "\xff\x00x"},
		{"no bytes", octets, "", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.one("/streams/s", c.contentType, c.body).is(t, 201).has(t, "Location", base+"/streams/s/0")
			check.Equal(t, n.get("/streams/s/0", octets).is(t, 200).body, c.want, "data")
			f := n.feed("/streams/s?embed=rich")
			check.Equal(t, *f.Entries[0].IsJSON, c.wantJSON, "isJson")
		})
	}
}

func TestAppendIsRefused(t *testing.T) {
	const invalid = "Write request body invalid."
	const id = "c322e299-cb73-4b47-97c5-5054f920746e"
	for _, c := range []struct {
		name, contentType, body string
		headers                 []string
		status                  int
		text                    string
	}{
		{"json that is not json", appJSON, "notjson", nil, 400, invalid},
		{"half json", appJSON, `{"a":`, nil, 400, invalid},
		{"json with single quotes", appJSON, `{'a':1}`, nil, 400, invalid},
		{"json that is not UTF-8", appJSON, "{\"a\":\"\xe9\"}", nil, 400, invalid},
		{"batch that is not UTF-8", eventsJSON, `[{"eventId":"` + id + `","eventType":"t","data":{"a":"` + "\xe9" + `"}}]`, nil, 400, invalid},
		{"batch with a type that is not UTF-8", eventsJSON, `[{"eventId":"` + id + `","eventType":"` + "\xe9" + `"}]`, nil, 400, invalid},
		{"empty json", appJSON, "", nil, 400, invalid},
		{"empty json of a link", appJSON, "", []string{"ES-EventType", "$>"}, 400, invalid},
		{"no type", appJSON, "{}", []string{"ES-EventType", "-"}, 400, "Must include an event type with the request either in body or as ES-EventType header."},
		{"no type and no id", appJSON, "{}", []string{"ES-EventType", "-", "ES-EventId", "-"}, 400, "Must include an event type"},
		{"bad id", appJSON, "{}", []string{"ES-EventId", "zz"}, 400, "ES-EventId header in wrong format."},
		{"zero id", octets, "{}", []string{"ES-EventId", "00000000-0000-0000-0000-000000000000"}, 400, "ES-EventId header in wrong format."},
		{"bad version", appJSON, "{}", []string{"ES-ExpectedVersion", "soon"}, 400, "ES-ExpectedVersion header in wrong format."},
		{"version too low", appJSON, "{}", []string{"ES-ExpectedVersion", "-5"}, 400, "ES-ExpectedVersion header in wrong format."},
		{"empty version", appJSON, "{}", []string{"ES-ExpectedVersion", ""}, 400, "ES-ExpectedVersion header in wrong format."},
		{"bad leader", appJSON, "{}", []string{"ES-RequireMaster", "perhaps"}, 400, "ES-RequireLeader header in wrong format."},
		{"headers before the body", appJSON, "nope", []string{"ES-RequireLeader", "perhaps"}, 400, "ES-RequireLeader"},
		{"id before version", appJSON, "{}", []string{"ES-EventId", "zz", "ES-ExpectedVersion", "x"}, 400, "ES-EventId"},
		{"zero id with a batch", eventsJSON, "[]", []string{"ES-EventId", "00000000-0000-0000-0000-000000000000"}, 400, "ES-EventId"},
		{"batch that is not json", eventsJSON, "{nope", nil, 400, invalid},
		{"empty batch", eventsJSON, "[]", nil, 400, invalid},
		{"empty body of a batch", eventsJSON, "", nil, 400, invalid},
		{"batch with a broken id", eventsJSON, `[{"eventId":"zz","eventType":"t","data":{}}]`, nil, 400, invalid},
		{"batch without id", eventsJSON, `[{"eventType":"t","data":{}}]`, nil, 400, "Empty eventId provided."},
		{"batch without type", eventsJSON, `[{"eventId":"` + id + `","data":{}}]`, nil, 400, "Empty eventType provided."},
		{"batch that is not xml", eventsXML, `<a>`, nil, 400, invalid},
		{"conflict", appJSON, "{}", []string{"ES-ExpectedVersion", "7"}, 400, "Wrong expected EventNumber"},
		{"long type", appJSON, "{}", []string{"ES-EventType", strings.Repeat("t", 61<<10)}, 400, "Stream name or event type is too long."},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			a := n.one("/streams/s", c.contentType, c.body, c.headers...).is(t, c.status).says(t, c.text)
			version := ""
			if c.name == "conflict" {
				version = "-1"
			}
			a.has(t, "ES-CurrentVersion", version)
			n.get("/streams/s", appJSON).is(t, 404)
		})
	}
}

func TestAppendContentType(t *testing.T) {
	for _, c := range []struct {
		path, contentType string
		status            int
	}{
		{"/streams/s", "", 415},
		{"/streams/s", "text/plain", 415},
		{"/streams/s", "nonsense", 415},
		{"/streams/s", "application/json; charset=latin1", 415},
		{"/streams/s", "APPLICATION/JSON; Charset=utf-8", 201},
		{"/streams/s", "application/vnd.kurrent.atom+json", 201},
		{"/streams/s/incoming/c322e299-cb73-4b47-97c5-5054f920746e", eventsJSON, 415},
		{"/streams/s/incoming/c322e299-cb73-4b47-97c5-5054f920746e", "application/vnd.eventstore.events+xml", 415},
		{"/streams/s/incoming/c322e299-cb73-4b47-97c5-5054f920746e", octets, 200},
		{"/streams/s/metadata", "text/plain", 415},
		{"/streams/s/", "text/plain", 415},
	} {
		t.Run(c.path+" "+c.contentType, func(t *testing.T) {
			a := newNode(t).one(c.path, c.contentType, "{}").is(t, c.status)
			if c.status == 415 {
				a.bare(t)
			}
		})
	}
}

func TestAppendWithoutID(t *testing.T) {
	n := newNode(t)
	a := n.one("/streams/a%20b", appJSON, `{"a":1}`, "ES-EventId", "-").is(t, 307).says(t, "Forwarding to idempotent URI")
	to := a.header.Get("Location")
	if !regexp.MustCompile(`^` + regexp.QuoteMeta(base) + `/streams/a%20b/incoming/[0-9a-f-]{36}$`).MatchString(to) {
		t.Fatalf("Location %q", to)
	}
	n.get("/streams/a%20b", appJSON).is(t, 404)
	path := strings.TrimPrefix(to, base)
	for range 2 {
		n.one(path, appJSON, `{"a":1}`, "ES-EventId", "ignored").is(t, 200).has(t, "Location", base+"/streams/a%20b/0")
	}
	check.Equal(t, func() string { f := n.feed("/streams/a%20b"); return f.numbers() }(), "0", "events")
}

func TestIncoming(t *testing.T) {
	const path = "/streams/s/incoming/"
	const id = "c322e299-cb73-4b47-97c5-5054f920746e"
	for _, c := range []struct {
		name, guid string
		headers    []string
		status     int
		text       string
	}{
		{"bad guid", "nope", nil, 400, "Invalid request. Unable to parse guid"},
		{"zero guid", "00000000-0000-0000-0000-000000000000", nil, 400, "Invalid request. Unable to parse guid"},
		{"no type", id, []string{"ES-EventType", "-"}, 400, "Empty eventType provided."},
		{"conflict", id, []string{"ES-ExpectedVersion", "3"}, 400, "Wrong expected EventNumber"},
		{"version", id, []string{"ES-ExpectedVersion", "-1"}, 200, ""},
		{"braces", "%7B" + id + "%7D", nil, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			newNode(t).one(path+c.guid, appJSON, "{}", c.headers...).is(t, c.status).says(t, c.text)
		})
	}
	newNode(t, func(o *httpapi.Options) { o.ReferenceStatusCodes = true }).one(path+id, appJSON, "{}").is(t, 201)
}

func TestExpectedVersion(t *testing.T) {
	for _, c := range []struct {
		name, state, version string
		status               int
		location             string // or the current version of a conflict
	}{
		{"any of nothing", "none", "-2", 201, "0"},
		{"absent", "two", "", 201, "2"},
		{"none of nothing", "none", "-1", 201, "0"},
		{"none of two", "two", "-1", 400, "1"},
		{"last", "two", "1", 201, "2"},
		{"below", "two", "0", 400, "1"},
		{"above", "two", "5", 400, "1"},
		{"exists", "two", "-4", 201, "2"},
		{"exists with metadata only", "metadata", "-4", 201, "0"},
		{"exists of nothing", "none", "-4", 400, "-1"},
		{"never", "two", "-3", 400, "1"},
		{"soft-deleted, none", "soft", "-1", 201, "2"},
		{"soft-deleted, any", "soft", "-2", 201, "2"},
		{"soft-deleted, last", "soft", "1", 201, "2"},
		{"soft-deleted, other", "soft", "0", 400, "1"},
		{"soft-deleted, exists", "soft", "-4", 410, ""},
		{"hard-deleted, any", "hard", "-2", 410, ""},
		{"hard-deleted, last", "hard", "1", 410, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			switch c.state {
			case "metadata":
				n.meta("s", `{"a":1}`)
			case "two", "soft", "hard":
				n.filled("s", 2)
			}
			switch c.state {
			case "soft":
				n.delete("s").is(t, 204)
			case "hard":
				n.delete("s", "ES-HardDelete", "true").is(t, 204)
			}
			var headers []string
			if c.version != "" {
				headers = []string{"ES-ExpectedVersion", c.version}
			}
			a := n.one("/streams/s", appJSON, "{}", headers...).is(t, c.status)
			switch c.status {
			case 201:
				a.has(t, "Location", base+"/streams/s/"+c.location).has(t, "ES-CurrentVersion", "")
			case 400:
				a.says(t, "Wrong expected EventNumber").has(t, "ES-CurrentVersion", c.location)
			default:
				a.says(t, "Stream deleted").has(t, "ES-CurrentVersion", "")
			}
		})
	}
}

func TestRetriedBatch(t *testing.T) {
	n := newNode(t)
	first := `[{"eventId":"` + n.id() + `","eventType":"t","data":1}`
	second := `,{"eventId":"` + n.id() + `","eventType":"t","data":2}]`
	n.batch("s", first+"]").is(t, 201)
	n.batch("s", first+"]").is(t, 201).has(t, "Location", base+"/streams/s/0")
	n.batch("s", first+"]", "ES-ExpectedVersion", "-1").is(t, 201).has(t, "Location", base+"/streams/s/0")
	for _, version := range []string{"-2", "-1"} {
		n.batch("s", first+second, "ES-ExpectedVersion", version).is(t, 400).has(t, "ES-CurrentVersion", "0")
	}
	f := n.feed("/streams/s")
	check.Equal(t, f.numbers(), "0", "events")
}

func TestValuesComeBack(t *testing.T) {
	n := newNode(t)
	const data = `{"big":9223372036854775807,"f":1.250,"when":"1987-11-07T00:00:00.000+01:00","$type":"foo","in":{"l":[1,null,true,"é"]}}`
	n.put("s", data)
	check.Equal(t, n.get("/streams/s/0", appJSON).body, data, "data")
}

func TestStreamNames(t *testing.T) {
	for _, c := range []struct{ path, name, encoded string }{
		{"a%20b", "a b", "a%20b"},
		{"a@b", "a@b", "a%40b"},
		{"%C3%A9", "é", "%C3%A9"},
		{"a+b", "a+b", "a%2Bb"},
		{"a%2Bb", "a+b", "a%2Bb"},
		{"a.b~c-d_e", "a.b~c-d_e", "a.b~c-d_e"},
		{"50%25", "50%", "50%25"},
		{"%2541", "%41", "%2541"},
		{"a%2Fb", "a/b", "a%2Fb"},
		{"a%2fb%20c", "a/b c", "a%2Fb%20c"},
		{"%24ce-x", "$ce-x", "%24ce-x"},
		{"$ce-x", "$ce-x", "%24ce-x"},
		{`q"<&'>`, `q"<&'>`, "q%22%3C%26%27%3E"},
		{"%FF", "\ufffd", "%FF"},
	} {
		t.Run(c.path, func(t *testing.T) {
			n := newNode(t)
			n.one("/streams/"+c.path, appJSON, "{}").is(t, 201).has(t, "Location", base+"/streams/"+c.encoded+"/0")
			f := n.feed("/streams/" + c.path)
			check.Equal(t, f.StreamID, c.name, "streamId")
			check.Equal(t, f.Title, "Event stream '"+c.name+"'", "title")
			check.Equal(t, f.ID, base+"/streams/"+c.encoded, "id")
			check.Equal(t, f.Entries[0].Title, "0@"+c.name, "entry")
			check.Equal(t, f.Entries[0].Links[1].URI, base+"/streams/"+c.encoded+"/0", "entry's link")
			n.get("/streams/"+c.path+"/0", appJSON).is(t, 200)
		})
	}
}

func TestLimits(t *testing.T) {
	n := newNode(t)
	big := strings.Repeat("x", 4<<20)
	n.one("/streams/s", octets, big).is(t, 201)
	n.one("/streams/s", octets, big+"x").is(t, 413).says(t, "Too large events received. Limit is 4mb")
	n.batch("s", `[{"eventId":"`+n.id()+`","eventType":"t","data":1},{"eventId":"`+n.id()+`","eventType":"t","data":"`+big+`y"}]`).is(t, 413)
	f := n.feed("/streams/s")
	check.Equal(t, f.numbers(), "0", "events")

	small := newNode(t, func(o *httpapi.Options) { o.MaxEventBytes = 10 })
	small.one("/streams/s", octets, "0123456789").is(t, 201)
	small.one("/streams/s", octets, "0123456789a").is(t, 413)
}

// endless is a body that only ends by being refused.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestBodyIsBounded(t *testing.T) {
	for _, declared := range []int64{-1, 1 << 40} {
		n := newNode(t)
		body := &endless{}
		r := check.Value(http.NewRequest("POST", base+"/streams/s", body)).Must(t)
		r.ContentLength = declared
		r.Header = admin("Content-Type", octets, "ES-EventType", "t", "ES-EventId", n.id())
		n.serve(r).is(t, 413).says(t, "Too large events received. Limit is 4mb")
		if body.read > 64<<20 {
			t.Errorf("read %d bytes", body.read)
		}
	}
}

func TestAppendLimit(t *testing.T) {
	n := newNode(t, func(o *httpapi.Options) { o.MaxAppendBytes = 10 })
	const says = "Too large events received. All events of one write together are limited to 10 bytes"
	n.one("/streams/s", octets, "0123456789").is(t, 201)
	n.one("/streams/s", octets, "0123456789a").is(t, 413).says(t, says)
	two := func(data string) answer {
		return n.batch("s", `[{"eventId":"`+n.id()+`","eventType":"t","data":12345},{"eventId":"`+n.id()+`","eventType":"t","data":`+data+`}]`)
	}
	two("12345").is(t, 201)
	two("123456").is(t, 413).says(t, says)
	f := n.feed("/streams/s")
	check.Equal(t, f.numbers(), "2 1 0", "events")
}
