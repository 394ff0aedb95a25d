package httpapi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
)

// ofUser are the headers of a user, or of an anonymous caller.
func ofUser(login string, headers ...string) http.Header {
	if login == "" {
		return with(headers...)
	}
	return as(login, "changeit", headers...)
}

// tagged appends an event with tags and a correlation id.
func (n *node) tagged(stream, eventType, metadata string) {
	n.t.Helper()
	n.batch(stream, fmt.Sprintf(`[{"eventId":%q,"eventType":%q,"data":{"a":1},"metadata":%s}]`, n.id(), eventType, metadata)).is(n.t, 201)
}

// titles are the titles of the entries.
func (f *feed) titles() string {
	var all []string
	for _, e := range f.Entries {
		all = append(all, e.Title)
	}
	return strings.Join(all, " ")
}

// TestIndexPages is about the forms of pages. Event i lies at position 100 * i.
func TestIndexPages(t *testing.T) {
	n := newNode(t)
	for i := range 6 {
		n.put(fmt.Sprintf("a-%d", i%2), `{"n":1}`) // 0, 200, 400, 600, 800, 1000
		n.put("b", "{}")
	}
	const root = "/streams/%24idx-ce-a"
	for path, want := range map[string]string{
		"/head/backward/2":                "2@a-1 2@a-0 | self= first=/head/backward/2 last=/0/forward/2 next=/799/backward/2 previous=/1001/forward/2 | true",
		"":                                "2@a-1 2@a-0 1@a-1 1@a-0 0@a-1 0@a-0 | self= first=/head/backward/20 previous=/1001/forward/20 | true",
		"/799/backward/2":                 "1@a-1 1@a-0 | self= first=/head/backward/2 last=/0/forward/2 next=/399/backward/2 previous=/601/forward/2 | false",
		"/399/backward/2":                 "0@a-1 0@a-0 | self= first=/head/backward/2 previous=/201/forward/2 | false",
		"/200/backward/1":                 "0@a-1 | self= first=/head/backward/1 last=/0/forward/1 next=/199/backward/1 previous=/201/forward/1 | false",
		"/200/1":                          "0@a-1 | self= first=/head/backward/1 last=/0/forward/1 next=/199/backward/1 previous=/201/forward/1 | false",
		"/99999/backward/1":               "2@a-1 | self= first=/head/backward/1 last=/0/forward/1 next=/999/backward/1 previous=/1001/forward/1 | false",
		"/0/forward/2":                    "0@a-1 0@a-0 | self= first=/head/backward/2 previous=/201/forward/2 | false",
		"/201/forward/2":                  "1@a-1 1@a-0 | self= first=/head/backward/2 last=/0/forward/2 next=/399/backward/2 previous=/601/forward/2 | false",
		"/601/forward/2":                  "2@a-1 2@a-0 | self= first=/head/backward/2 last=/0/forward/2 next=/799/backward/2 previous=/1001/forward/2 | true",
		"/1001/forward/2":                 " | self= first=/head/backward/2 last=/0/forward/2 next=/1000/backward/2 previous=/1001/forward/2 | true",
		"/123456/forward/2":               " | self= first=/head/backward/2 last=/0/forward/2 next=/123455/backward/2 previous=/123456/forward/2 | true",
		"/9223372036854775807/backward/1": "2@a-1 | self= first=/head/backward/1 last=/0/forward/1 next=/999/backward/1 previous=/1001/forward/1 | false",
		"/9223372036854775807/forward/1":  " | self= first=/head/backward/1 last=/0/forward/1 next=/9223372036854775806/backward/1 previous=/9223372036854775807/forward/1 | true",
	} {
		t.Run(path, func(t *testing.T) {
			f := n.feed(root + path)
			check.Equal(t, fmt.Sprintf("%s | %s | %t", f.titles(), f.links(), f.HeadOfStream), want)
			check.Equal(t, f.Title+" "+f.StreamID, "Event stream '$idx-ce-a' $idx-ce-a")
			check.Equal(t, f.ID, base+root)
			n.get(root+path, atomXML).is(t, 200).has(t, "Content-Type", "application/atom+xml; charset=utf-8")
		})
	}
	empty := n.feed("/streams/$idx-tag-none")
	check.Equal(t, empty.titles()+"|"+empty.links(), "|self= first=/head/backward/20 previous=/0/forward/20")
	first := n.get(root+"/head/backward/2?embed=rich", atomJSON)
	rich := decode[feed](t, first)
	e := rich.Entries[0]
	check.Equal(t, fmt.Sprintln(*e.EventNumber, *e.StreamID, *e.PositionEventNumber, *e.PositionStreamID, e.ID, e.Summary), "2 a-1 1000 $idx-ce-a "+base+"/streams/a-1/2 event-type\n")
	check.Equal(t, *rich.ETag, "1200;-1955838367")
	first.has(t, "ETag", `"1200;-1955838367"`).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate, private").has(t, "Vary", "Accept, Authorization")
	again := n.get(root+"/0/forward/1", atomJSON, "If-None-Match", first.header.Get("ETag")).is(t, 304)
	again.has(t, "ETag", first.header.Get("ETag")).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate, private")
	n.put("other", "{}")
	n.get(root+"/0/forward/1", atomJSON, "If-None-Match", first.header.Get("ETag")).is(t, 200)
}

func TestIndexEvents(t *testing.T) {
	n := newNode(t)
	n.put("a-0", `{"n":0}`, `{"n":1}`) // 0, 100
	n.put("b", `{"n":2}`)              // 200
	n.tagged("a-1", "T", `{"$tags":["x"],"$correlationId":"c"}`)
	n.meta("gone", `{"$maxCount":1}`) // 400
	n.put("gone", "{}", "{}")         // 500, 600
	large := fmt.Sprintf("%q", strings.Repeat("x", 100_000))
	n.put("large", large) // 700
	at := func(second int) string {
		return firstTime.Add(1e9*1).Format("2006-01-02T15:04:") + fmt.Sprintf("%02dZ", second)
	}
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"$idx-ce-a/100", 200, `{"n":1}`},
		{"$idx-ce-a/head", 200, `{"a":1}`},
		{"$idx-tag-x/300", 200, `{"a":1}`},
		{"$idx-co-c/head", 200, `{"a":1}`},
		{"$idx-et-T/300", 200, `{"a":1}`},
		{"$idx-all/700", 200, large},
		{"$idx-ce-a/101", 404, "{}"},
		{"$idx-ce-a/200", 404, "{}"},
		{"$idx-all/50", 404, "{}"},
		{"$idx-ce-a/99900", 404, "{}"},
		{"$idx-ce-gone/500", 404, "{}"},
		{"$idx-ce-gone/600", 200, "{}"},
		{"$idx-tag-none/head", 404, "{}"},
		{"$idx-et-%24metadata/400", 200, `{"$maxCount":1}`},
		{"$idx-ce-a/x", 400, "'x' is not valid event number"},
		{"$idx-user-a/0", 404, "Index not found"},
		{"$idx-ce-/head", 404, "Index not found"},
		{"$idx", 404, "Index not found"},
		{"$idx-ce", 404, "Index not found"},
		{"$idxfoo/0/forward/1", 404, "Index not found"},
		{"$idx-x/at/2024-01-01T00:00:00Z", 404, "Index not found"},
		{"$idx-ce-a/at/" + at(14), 200, `{"eventNumber":300,`},
		{"$idx-ce-b/at/2024-01-01T00:00:00Z", 200, `{"eventNumber":200,`},
		{"$idx-ce-b/at/" + at(40), 404, "Not Found"},
	} {
		t.Run(c.path, func(t *testing.T) {
			got := n.get("/streams/"+c.path, appJSON).is(t, c.status)
			if text := strings.Join(strings.Fields(got.body), ""); !strings.Contains(c.path, "/at/") {
				check.Equal(t, got.body, c.body)
			} else if c.status == 200 && !strings.HasPrefix(text, c.body) {
				t.Errorf("got %s", text)
			}
		})
	}
	got := n.get("/streams/$idx-ce-a/100?embed=rich", atomJSON).is(t, 200).has(t, "ETag", `"800;-1955838367"`)
	if !strings.Contains(got.body, `"positionEventNumber":100,"positionStreamId":"$idx-ce-a"`) {
		t.Error(got.body)
	}
	n.get("/streams/$idx-ce-a", streamDesc).is(t, 200).has(t, "Content-Type", streamDesc+"; charset=utf-8")
}

// TestIndexRights is about what each user finds of each stream in an index.
func TestIndexRights(t *testing.T) {
	users := []string{"admin", "ops", "jane", ""}
	n := newNode(t)
	n.put("open", "{}")
	n.meta("janes", `{"$acl":{"$r":"jane","$mr":"$ops"}}`)
	n.put("janes", "{}")
	n.meta("operators", `{"$acl":{"$r":"$ops"}}`)
	n.put("operators", "{}")
	n.meta("closed", `{"$acl":{"$r":[],"$mr":[]}}`)
	n.put("closed", "{}")
	n.put("$system", "{}")
	seen := func(path string) string {
		var all []string
		for _, login := range users {
			a := n.do("GET", path, "", ofUser(login, "Accept", appJSON))
			text := fmt.Sprint(a.status)
			if a.status == 200 {
				f := decode[feed](t, a)
				text = f.titles()
			}
			all = append(all, text)
		}
		return strings.Join(all, " | ")
	}
	all := "0@closed 0@operators 0@janes 0@open | 0@operators 0@open | 0@janes 0@open | 0@open"
	check.Equal(t, seen("/streams/$idx-all"), all)
	check.Equal(t, seen("/streams/$idx-all/0/forward/20"), all)
	check.Equal(t, seen("/streams/$idx-et-event-type"), "0@$system "+all)
	check.Equal(t, seen("/streams/$idx-et-%24metadata"), "0@$$closed 0@$$operators 0@$$janes | 0@$$operators 0@$$janes | 0@$$operators | 0@$$operators")
	for i, login := range users {
		page := decode[foundPage](t, n.do("GET", "/query?types=event-type&backward=true", "", ofUser(login)))
		found, _, _ := strings.Cut(page.String(), " to ")
		check.Equal(t, found, strings.Split(all, " | ")[i], "query", login)
		status := map[bool]int{true: 200, false: 404}
		n.do("GET", "/streams/$idx-ce-operators/head", "", ofUser(login)).is(t, status[login == "admin" || login == "ops"])
	}
	n.meta("$all", `{"$acl":{"$r":["$ops","$admins"]}}`)
	check.Equal(t, strings.Split(seen("/streams/$idx-all"), " | ")[1], "0@closed 0@operators 0@janes 0@open", "who may read the log")
	n.meta("$idx", `{"$acl":{"$r":["jane"]}}`)
	check.Equal(t, seen("/streams/$idx-ce-open"), "0@open | 401 | 0@open | 401", "narrowed")
	check.Equal(t, seen("/streams/$idx-x/0"), "404 | 401 | 404 | 401", "no index")
}

func TestIndexBuilding(t *testing.T) {
	n := newNode(t)
	n.put("a-1", "{}")
	n.store.BeforeReadAll.Set(func(_ context.Context, r event.AllRead) error {
		if r.Query == nil {
			return nil
		}
		return &event.IndexBuilding{Done: 5, Total: 9}
	})
	for _, path := range []string{"", "/0/forward/1", "/head", "/0", "/at/2000-01-01T00:00:00Z"} {
		n.get("/streams/$idx-ce-a"+path, appJSON).is(t, 503).has(t, "Retry-After", "5").says(t, "The index is being built: 5 of 9 bytes of log")
	}
	n.do("GET", "/streams/$idx-ce-a?from=start", "", admin("Accept", eventStream)).is(t, 503).has(t, "Retry-After", "5")
}

func TestIndexLongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("a-1", "{}")
		polled := make(chan answer)
		poll := func(path string) {
			go func() { polled <- n.get(path, appJSON, "ES-LongPoll", "5") }()
			synctest.Wait()
		}
		poll("/streams/$idx-ce-a/100/forward/5")
		n.put("b", "{}")
		n.put("a-2", "{}")
		f := decode[feed](t, <-polled)
		check.Equal(t, f.titles(), "0@a-2")
		poll("/streams/$idx-ce-a/300/forward/5")
		f = decode[feed](t, <-polled) // After five seconds.
		check.Equal(t, f.titles(), "")
	})
}

func TestIndexTails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("a-1", "{}", "{}")                                   // 0, 100
		n.put("b", "{}")                                           // 200
		n.tagged("a-2", "T", `{"$tags":"x,y","$correlationId":7}`) // 300
		for _, c := range []struct{ path, header, want string }{
			{"$idx-ce-a?from=start", "", "0=0@a-1, 100=1@a-1, 300=0@a-2, live"},
			{"$idx-ce-a?from=100", "", "100=1@a-1, 300=0@a-2, live"},
			{"$idx-ce-a?from=100", "100", "300=0@a-2, live"},
			{"$idx-ce-a?from=start&types=T", "", "300=0@a-2, live"},
			{"$idx-ce-a?from=start&to=100", "", "0=0@a-1, 100=1@a-1, end {\"reason\":\"to\"}"},
			{"$idx-ce-a?backward=true&limit=2", "", "300=0@a-2, 100=1@a-1, end {\"reason\":\"limit\"}"},
			{"$idx-ce-a?backward=true&from=100", "", "100=1@a-1, 0=0@a-1, end {\"reason\":\"start\"}"},
			{"$idx-ce-a?backward=true", "100", "0=0@a-1, end {\"reason\":\"start\"}"},
			{"$idx-ce-a", "", "live"},
			{"$all?from=start&tags=y,x&embed=none", "", "12C=0@a-2, live"},
			{"$all?from=start&correlation=7", "", "12C=0@a-2, live"},
			{"$all?from=start&categories=b,c", "", "C8=0@b, live"},
			{"$all?from=start&categories=a&tags=z", "", "live"},
			{"a-2?from=start&tags=x", "", "0=0@a-2, live"},
			{"a-1?from=start&tags=x", "", "live"},
			{"a-1?from=start&categories=a", "", "0=0@a-1, 1=1@a-1, live"},
		} {
			headers := []string{}
			if c.header != "" {
				headers = []string{"Last-Event-ID", c.header}
			}
			d := n.tail("/streams/"+c.path, headers...)
			check.Equal(t, d.says(), c.want, c.path, c.header)
			d.leave()
			<-d.done
		}
		for path, text := range map[string]string{
			"$idx-ce-a?from=0000000000000064000000000000006400000": "'0000000000000064000000000000006400000' is not valid from",
			"$all?tags=":           "'' is not valid tags",
			"$all?tags=a,":         "'a,' is not valid tags",
			"$all?correlation=":    "'' is not valid correlation",
			"$all?categories=a,,b": "'a,,b' is not valid categories",
			"$idx-ce-?from=start":  "Index not found",
		} {
			check.Equal(t, n.get("/streams/"+path, eventStream).is(t, 400, 404).body, text)
		}
		d := n.tailAs("jane", "/streams/$idx-all?embed=rich")
		check.Equal(t, d.says(), "live")
		n.put("c", "{}")
		n.meta("closed", `{"$acl":{"$r":[]}}`)
		n.put("closed", "{}")
		n.put("d", "{}")
		check.Equal(t, d.says(), "400=0@c, 700=0@d")
		n.meta("$idx", `{"$acl":{"$r":[]}}`)
		time.Sleep(2 * time.Second)
		n.put("e", "{}")
		check.Equal(t, d.says(), "denied")
		<-d.done
	})
}

// TestIndexModel compares indexes with what reads of the streams show, over histories of appends,
// deletions, limits and rights.
func TestIndexModel(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n := newNode(t)
	streams := []string{"a-1", "a-2", "b-1", "b", "$a-1"}
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	for range 150 {
		stream := pick(streams)
		switch r.IntN(12) {
		case 0:
			n.meta(stream, fmt.Sprintf(`{"$maxCount":%d}`, 1+r.IntN(5)))
		case 1:
			n.meta(stream, fmt.Sprintf(`{"$tb":%d}`, r.IntN(6)))
		case 2:
			n.meta(stream, `{"$acl":{"$r":`+pick([]string{`"jane"`, `"$ops"`, `[]`, `"$all"`})+`}}`)
		case 3:
			if r.IntN(3) == 0 {
				n.delete(stream).is(t, 204, 404, 410, 400)
			}
		default:
			n.tagged(stream, pick([]string{"T", "U", "$v"}), pick([]string{`{}`, `{"$tags":["x"]}`, `{"$tags":"x,y","$correlationId":"c"}`, `{"$correlationId":"c"}`}))
		}
	}
	all, err := n.store.ReadAll(t.Context(), event.AllRead{Count: 1000})
	check.Must(t, err)
	var reader label.Reader
	for _, name := range []string{"$idx-all", "$idx-ce-a", "$idx-ce-b", "$idx-et-T", "$idx-et-$v", "$idx-et-$metadata", "$idx-tag-x", "$idx-tag-y", "$idx-co-c"} {
		query, ok := label.IndexQuery(name)
		check.MustEqual(t, ok, true)
		for login, who := range map[string]access.Principal{"admin": {Login: "admin", Groups: []string{"$admins"}}, "jane": {Login: "jane"}, "ops": {Login: "ops", Groups: []string{"$ops"}}} {
			var want []string
			for i := range all.Events {
				e := &all.Events[i]
				f, err := reader.Read(e.Stream, e.Type, e.Metadata)
				check.Must(t, err)
				_, gone := n.store.ReadEvent(t.Context(), e.Stream, e.Number, nil)
				if query.Matches(&f) && gone == nil && n.access.CheckStream(t.Context(), who, e.Stream, access.ReadRight) == nil {
					want = append(want, fmt.Sprintf("%d@%s", e.Number, e.Stream))
				}
			}
			count := 1 + r.IntN(7)
			walk := func(path, rel string) (titles []string) {
				for pages := 0; path != "" && pages < 300; pages++ {
					f := decode[feed](t, n.do("GET", path, "", ofUser(login, "Accept", appJSON)))
					var page []string
					for _, e := range f.Entries {
						page = append(page, e.Title)
					}
					if rel == "previous" {
						slices.Reverse(page)
						if f.HeadOfStream {
							rel = ""
						}
					}
					titles = append(titles, page...)
					path = ""
					for _, l := range f.Links {
						if l.Relation == rel {
							path = strings.TrimPrefix(l.URI, base)
						}
					}
				}
				return titles
			}
			escaped := "/streams/" + strings.ReplaceAll(name, "$", "%24")
			check.Slice(t, walk(fmt.Sprintf("%s/0/forward/%d", escaped, count), "previous"), want, name, login, "forward")
			slices.Reverse(want)
			check.Slice(t, walk(fmt.Sprintf("%s/head/backward/%d", escaped, count), "next"), want, name, login, "backward")
		}
	}
}

func TestIndexNames(t *testing.T) {
	n := newOperator(t)
	page := func(path string) string { return strings.Join(strings.Fields(n.get(path, "").is(t, 200).body), "") }
	check.Equal(t, page("/index/types"), `{"names":[]}`)
	n.operations.names = event.IndexNamesPage{Names: []event.IndexName{{Name: "order", Events: 2}}, Next: "order"}
	check.Equal(t, page("/index/categories?prefix=o&count=1&after=a"), `{"names":[{"name":"order","events":2}],"next":"order"}`)
	check.Equal(t, strings.Join(n.operations.calls, " "), "names {Types:true Prefix: After: Count:100} names {Types:false Prefix:o After:a Count:1}")
	n.operations.calls, n.operations.names = nil, event.IndexNamesPage{Next: "a \xff"}
	check.Equal(t, page("/index/types?after=~~a%2520%25FF"), `{"names":[],"next":"~~a%20%FF"}`)
	check.Equal(t, strings.Join(n.operations.calls, " "), "names {Types:true Prefix: After:a \xff Count:100}")
	for _, count := range []string{"0", "1001", "x"} {
		n.get("/index/types?count="+count, "").is(t, 400).says(t, "count must be between 1 and 1000 inclusive")
	}
	n.do("GET", "/index/types", "", ofUser("jane")).is(t, 401)
	n.operations.fail = &event.IndexBuilding{Done: 1, Total: 3}
	n.get("/index/types", "").is(t, 503).says(t, "The index is being built: 1 of 3 bytes of log")
}

func TestIndexStatus(t *testing.T) {
	n := newOperator(t)
	status := func() string { return strings.Join(strings.Fields(n.get("/index", "").is(t, 200).body), "") }
	n.operations.index = event.IndexStatus{Position: 12, LogEnd: 12, Tables: 2, Bytes: 30, MemoryBytes: 4, MalformedTags: 7, Kinds: []event.IndexKind{{Name: "tag", Keys: 2, Postings: 3}}}
	check.Equal(t, status(), `{"state":"live","position":12,"logEnd":12,"tables":2,"bytes":30,"memoryBytes":4,"kinds":{"tag":{"keys":2,"postings":3}},"malformedTags":7}`)
	n.do("POST", "/admin/index/rebuild", "", ofUser("ops")).is(t, 202)
	n.operations.index = event.IndexStatus{IsBuilding: true, LogEnd: 12}
	check.Equal(t, status(), `{"state":"building","position":0,"logEnd":12,"tables":0,"bytes":0,"memoryBytes":0,"kinds":{},"malformedTags":0}`)
	n.do("POST", "/admin/index/rebuild", "", admin()).is(t, 409).says(t, "The index is being built already")
	n.do("POST", "/admin/index/rebuild", "", ofUser("jane")).is(t, 401)
	check.Equal(t, strings.Join(n.operations.calls, " "), "rebuild rebuild")
	n.operations.fail = event.ErrNotReady
	n.get("/index", "").is(t, 503)
	n.do("GET", "/index", "", nil).is(t, 401)
}
