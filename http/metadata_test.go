package httpapi_test

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestNoMetadata(t *testing.T) {
	n := newNode(t)
	n.filled("s", 1)
	for _, path := range []string{"/streams/s/metadata", "/streams/s/metadata/0", "/streams/s/metadata/head", "/streams/$$s/0", "/streams/$$s/head"} {
		for _, accept := range []string{appJSON, atomJSON, eventJSON} {
			a := n.get(path, accept).is(t, 200).has(t, "ETag", "").has(t, "Content-Type", accept+"; charset=utf-8").
				has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate").has(t, "Vary", "Accept")
			check.Equal(t, a.body, "{}", "JSON")
		}
		for _, accept := range []string{"", textXML, atomXML} {
			check.Equal(t, n.get(path, accept).is(t, 200).body, "", "XML")
		}
		none := strings.Replace(path, "s/metadata", "none/metadata", 1)
		n.get(strings.Replace(none, "$$s", "$$none", 1), appJSON).is(t, 404)
	}
	n.get("/streams/s/metadata/head/backward/5", appJSON).is(t, 404)
	n.get("/streams/$$s", appJSON).is(t, 404)
}

func TestMetadataForms(t *testing.T) {
	const id = "0f9fad5b-d9cb-469f-a165-70867728950e"
	for _, c := range []struct{ name, contentType, body, eventType, id, want string }{
		{"document", appJSON, `{"$maxCount": 3, "own": [1]}`, "-", id, `{"$maxCount": 3, "own": [1]}`},
		{"document with its type", appJSON, `{}`, "$metadata", id, `{}`},
		{"document without id", appJSON, `{"a":1}`, "-", "-", `{"a":1}`},
		{"plain names", appJSON, `{"maxCount":3}`, "-", "-", `{"maxCount":3}`},
		{"batch", eventsJSON, `[{"eventId":"` + id + `","eventType":"x","data":{"a":1}},{"eventId":"1f9fad5b-d9cb-469f-a165-70867728950e","eventType":"y","data":{"a":2}}]`, "-", "-", `{"a":2}`},
		{"item", appJSON, `{"eventId":"` + id + `","eventType":"whatever","data":{"maxAge":60,"maxCount":10,"truncateBefore":3,"cacheControl":"12","acl":{"r":"a","$w":["b"]},"own":1}}`, "-", "-",
			`{"$maxAge":60,"$maxCount":10,"$tb":3,"$cacheControl":12,"$acl":{"$r":"a","$w":["b"]},"own":1}`},
		{"no item: another member", appJSON, `{"eventId":"` + id + `","data":{"maxAge":60},"x":1}`, "-", "-", `{"eventId":"` + id + `","data":{"maxAge":60},"x":1}`},
		{"bytes", octets, `{"$tb":0}`, "-", id, `{"$tb":0}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.filled("a%20b", 1)
			n.one("/streams/a%20b/metadata", c.contentType, c.body, "ES-EventType", c.eventType, "ES-EventId", c.id).is(t, 201).
				has(t, "Location", base+"/streams/%24%24a%20b/0")
			check.Equal(t, n.get("/streams/a%20b/metadata", appJSON).is(t, 200).body, c.want, "data")
			e := decode[entry](t, n.get("/streams/a%20b/metadata?embed=rich", atomJSON))
			check.Equal(t, e.Title+" "+*e.EventType, "0@$$a b $metadata", "entry")
			check.Equal(t, *e.IsJSON, true, "isJson")
			f := n.feed("/streams/a%20b/metadata/head/backward/5")
			check.Equal(t, f.Title+f.ID, "Event stream '$$a b'"+base+"/streams/%24%24a%20b", "feed")
			f = n.feed("/streams/a%20b/metadata/0/forward/5")
			check.Equal(t, f.numbers(), "0", "forward feed")
			f = n.feed("/streams/$$a%20b")
			check.Equal(t, f.numbers(), "0", "the metadata stream")
		})
	}
}

func TestItemKeepsItsID(t *testing.T) {
	n := newNode(t)
	const item = `{"eventId":"0f9fad5b-d9cb-469f-a165-70867728950e","eventType":"$metadata","data":{"maxCount":1}}`
	for range 2 {
		n.one("/streams/s/metadata", appJSON, item, "ES-EventType", "-", "ES-EventId", "-").is(t, 201).has(t, "Location", base+"/streams/%24%24s/0")
	}
	n.one("/streams/s/metadata", appJSON, item, "ES-EventType", "-").is(t, 201).has(t, "Location", base+"/streams/%24%24s/1")
}

func TestMetadataIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		headers          []string
		status           int
		text             string
	}{
		{"of a metadata stream", "/streams/$$s/metadata", "{}", nil, 400, "Invalid request."},
		{"another type", "/streams/s/metadata", "{}", []string{"ES-EventType", "x"}, 400, "Bad Request. You should not include an event type for metadata."},
		{"bad id", "/streams/s/metadata", "{}", []string{"ES-EventType", "-", "ES-EventId", "x"}, 400, "ES-EventId header in wrong format."},
		{"bad version", "/streams/s/metadata", "{}", []string{"ES-EventType", "-", "ES-ExpectedVersion", "x"}, 400, "ES-ExpectedVersion header in wrong format."},
		{"no json", "/streams/s/metadata", "{", []string{"ES-EventType", "-"}, 400, "Write request body invalid."},
		{"conflict", "/streams/s/metadata", "{}", []string{"ES-EventType", "-", "ES-ExpectedVersion", "0"}, 400, "Wrong expected EventNumber"},
		{"hard-deleted", "/streams/gone/metadata", "{}", []string{"ES-EventType", "-"}, 410, "Stream deleted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			n.filled("s", 3) // The version is that of the metadata stream, not of this one.
			n.delete("gone", "ES-HardDelete", "true").is(t, 204)
			n.one(c.path, appJSON, c.body, c.headers...).is(t, c.status).says(t, c.text)
		})
	}
}

func TestReadMetadata(t *testing.T) {
	n := newNode(t)
	n.filled("s", 2)
	n.meta("s", `{"$cacheControl":5,"a":1}`)
	n.meta("s", `{"$cacheControl":5,"a":2}`)
	n.get("/streams/s/metadata", appJSON).is(t, 200).has(t, "ETag", `"1;248368668"`).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate")
	n.get("/streams/s/metadata/1", appJSON).is(t, 200).has(t, "ETag", "").has(t, "Cache-Control", "max-age=31536000, private")
	check.Equal(t, n.get("/streams/s/metadata/0", appJSON).is(t, 200).body, "{}", "replaced")
	for _, path := range []string{"metadata", "metadata/0", "metadata/head/backward/1", "metadata/0/forward/1"} {
		n.get("/streams/$$s/"+path, appJSON).is(t, 400).says(t, "Stream must be non-empty string and should not be metastream")
	}
	n.delete("s").is(t, 204)
	check.Equal(t, n.get("/streams/s/metadata", appJSON).is(t, 200).body, `{"$tb":9223372036854775807}`, "soft-deleted")
	n.delete("s", "ES-HardDelete", "true").is(t, 204)
	n.get("/streams/s/metadata", appJSON).is(t, 410).says(t, "Deleted")
	n.get("/streams/s/metadata/0", appJSON).is(t, 410).says(t, "Deleted")
	n.get("/streams/$$s/0", appJSON).is(t, 410)
}

// TestLateMetadata: after a tombstone an append to the metadata stream is done, through every route
// of appends, and changes nothing of what the stream shows. POST of metadata is refused.
func TestLateMetadata(t *testing.T) {
	n := newNode(t)
	n.filled("s", 2)
	n.meta("s", `{"a":1}`)
	n.delete("s", "ES-HardDelete", "true").is(t, 204)
	typed := []string{"ES-EventType", "$metadata"}
	places := map[string]bool{}
	fresh := func(a answer, status int) string {
		t.Helper()
		at := a.is(t, status).header.Get("Location")
		if places[at] || !strings.HasPrefix(at, base+"/streams/%24%24s/") {
			t.Errorf("at %s", at)
		}
		places[at] = true
		return at
	}
	for _, version := range []string{"-2", "-1", "-4", "0", "7"} {
		id := n.id()
		at := fresh(n.one("/streams/$$s", appJSON, `{"a":2}`, append(typed, "ES-EventId", id, "ES-ExpectedVersion", version)...), 201)
		n.one("/streams/$$s", appJSON, `{"a":2}`, append(typed, "ES-EventId", id, "ES-ExpectedVersion", version)...).is(t, 201).has(t, "Location", at)
		id = n.id()
		at = fresh(n.one("/streams/$$s/incoming/"+id, appJSON, `{"a":2}`, append(typed, "ES-EventId", "-", "ES-ExpectedVersion", version)...), 200)
		n.one("/streams/$$s/incoming/"+id, appJSON, `{"a":2}`, append(typed, "ES-EventId", "-", "ES-ExpectedVersion", version)...).is(t, 200).has(t, "Location", at)
		fresh(n.batch("$$s", `[{"eventId":"`+n.id()+`","eventType":"$metadata","data":{}},{"eventId":"`+n.id()+`","eventType":"x","data":1}]`, "ES-ExpectedVersion", version), 201)
	}
	n.one("/streams/$$s", appJSON, `{}`, append(typed, "ES-ExpectedVersion", "-3")...).is(t, 400).has(t, "ES-CurrentVersion", "-1")
	n.one("/streams/s", appJSON, `{}`).is(t, 410)
	n.one("/streams/s/metadata", appJSON, `{}`, "ES-EventType", "-").is(t, 410).says(t, "Stream deleted")
	n.delete("s").is(t, 410)
	for _, path := range []string{"s", "s/0", "s/metadata", "s/metadata/0", "$$s", "$$s/0", "$$s/head"} {
		n.get("/streams/"+path, appJSON).is(t, 410).says(t, "Deleted")
	}
}

func TestItemTakesEffect(t *testing.T) {
	n := newNode(t)
	n.filled("s", 5)
	n.one("/streams/s/metadata", appJSON, `{"eventId":"`+n.id()+`","eventType":"$metadata","data":{"maxCount":3,"truncateBefore":3,"acl":{"r":"$admins"}}}`, "ES-EventType", "-", "ES-EventId", "-").is(t, 201)
	f := n.feed("/streams/s")
	check.Equal(t, f.numbers(), "4 3", "visible")
	n.do("GET", "/streams/s", "", with("Accept", appJSON)).is(t, 401)
}

func TestRightsAsTheInterfaceWritesThem(t *testing.T) {
	n := newNode(t)
	n.filled("s", 3)
	a := n.one("/streams/$$s", appJSON, `{"$maxCount":1}`, "ES-EventType", "$metadata", "ES-EventId", "-").is(t, 307)
	n.one(strings.TrimPrefix(a.header.Get("Location"), base), appJSON, `{"$maxCount":1}`, "ES-EventType", "$metadata", "ES-EventId", "-").is(t, 200).
		has(t, "Location", base+"/streams/%24%24s/0")
	f := n.feed("/streams/s")
	check.Equal(t, f.numbers(), "2", "visible")
	check.Equal(t, n.get("/streams/$$s/head", appJSON).is(t, 200).body, `{"$maxCount":1}`, "read back")
}

func TestDelete(t *testing.T) {
	for _, c := range []struct {
		name, state string
		headers     []string
		status      int
		text        string // of an error, or the current version of a conflict
		then        int    // status of a read
	}{
		{"soft", "two", nil, 204, "", 404},
		{"soft with version", "two", []string{"ES-ExpectedVersion", "1"}, 204, "", 404},
		{"soft conflict", "two", []string{"ES-ExpectedVersion", "0"}, 400, "1", 200},
		{"soft again", "soft", nil, 204, "", 404},
		{"soft of nothing", "none", nil, 400, "-1", 404},
		{"soft of metadata only", "metadata", nil, 204, "", 404},
		{"soft of hard-deleted", "hard", nil, 410, "Stream deleted", 410},
		{"hard", "two", []string{"ES-HardDelete", "true"}, 204, "", 410},
		{"hard, said not to", "two", []string{"ES-HardDelete", "False"}, 204, "", 404},
		{"hard conflict", "two", []string{"ES-HardDelete", "true", "ES-ExpectedVersion", "5"}, 400, "1", 200},
		{"hard of soft", "soft", []string{"ES-HardDelete", "TRUE"}, 204, "", 410},
		{"hard of nothing", "none", []string{"ES-HardDelete", "true"}, 204, "", 410},
		{"hard again", "hard", []string{"ES-HardDelete", "true"}, 410, "Stream deleted", 410},
		{"new name of the header", "two", []string{"Kurrent-HardDelete", "true"}, 204, "", 410},
		{"bad header", "two", []string{"ES-HardDelete", "perhaps"}, 400, "ES-HardDelete header in wrong format.", 200},
		{"bad version", "two", []string{"ES-ExpectedVersion", "x", "ES-HardDelete", "perhaps"}, 400, "ES-ExpectedVersion header in wrong format.", 200},
		{"bad leader", "two", []string{"ES-RequiresMaster", "x", "ES-HardDelete", "perhaps"}, 400, "ES-RequireLeader header in wrong format.", 200},
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
			a := n.delete("s", c.headers...).is(t, c.status)
			switch {
			case c.status == 204:
				check.Equal(t, a.body+a.header.Get("Location"), "", "body")
			case len(c.text) < 3:
				a.says(t, "Wrong expected EventNumber").has(t, "ES-CurrentVersion", c.text)
			default:
				a.says(t, c.text)
			}
			n.get("/streams/s", appJSON).is(t, c.then)
		})
	}
	n := newNode(t)
	n.filled("x", 1)
	n.delete("$$x").is(t, 401)
	n.delete("$all").is(t, 401)
}

func TestRevived(t *testing.T) {
	n := newNode(t)
	n.filled("s", 3)
	n.meta("s", `{"own":1}`)
	n.delete("s").is(t, 204)
	n.put("s", `{}`).has(t, "Location", base+"/streams/s/3")
	f := n.feed("/streams/s")
	check.Equal(t, f.numbers(), "3", "events")
	check.Equal(t, n.get("/streams/s/metadata", appJSON).body, `{"$tb":3}`, "metadata")

	n.filled("m", 2)
	n.delete("m").is(t, 204)
	n.meta("m", `{"own":1}`)
	f = n.feed("/streams/m")
	check.Equal(t, f.numbers(), "", "revived by metadata")
	n.one("/streams/m", appJSON, "{}", "ES-ExpectedVersion", "1").is(t, 201).has(t, "Location", base+"/streams/m/2")
}
