package httpapi_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

var zeros = strings.Repeat("0", 32)

func position(p int64) string { return fmt.Sprintf("%016X%016X", p, p) }

func TestAllPages(t *testing.T) {
	n := newNode(t)
	n.filled("s", 5) // positions 0 to 400
	for _, c := range []struct{ path, titles, links string }{
		{"", "4@s 3@s 2@s 1@s 0@s", "self= first=/head/backward/20 previous=/" + position(500) + "/forward/20 metadata=/metadata"},
		{"/head/backward/2", "4@s 3@s", "self= first=/head/backward/2 last=/" + zeros + "/forward/2 next=/" + position(300) + "/backward/2 previous=/" + position(500) + "/forward/2 metadata=/metadata"},
		{"/" + position(300) + "/2", "2@s 1@s", "self= first=/head/backward/2 last=/" + zeros + "/forward/2 next=/" + position(100) + "/backward/2 previous=/" + position(300) + "/forward/2 metadata=/metadata"},
		{"/" + zeros + "/backward/2", "", "self= first=/head/backward/2 previous=/" + zeros + "/forward/2 metadata=/metadata"},
		{"/" + zeros + "/forward/3", "2@s 1@s 0@s", "self= first=/head/backward/3 previous=/" + position(300) + "/forward/3 metadata=/metadata"},
		{"/" + position(300) + "/forward/3", "4@s 3@s", "self= first=/head/backward/3 last=/" + zeros + "/forward/3 next=/" + position(300) + "/backward/3 previous=/" + position(500) + "/forward/3 metadata=/metadata"},
		{"/" + position(500) + "/forward/3", "", "self= first=/head/backward/3 last=/" + zeros + "/forward/3 next=/" + position(500) + "/backward/3 metadata=/metadata"},
		{"/7FFFFFFFFFFFFFFF7FFFFFFFFFFFFFFF/forward/3", "", "self= first=/head/backward/3 last=/" + zeros + "/forward/3 next=/7FFFFFFFFFFFFFFF7FFFFFFFFFFFFFFF/backward/3 metadata=/metadata"},
		{"/7FFFFFFFFFFFFFFF7FFFFFFFFFFFFFFF/backward/1", "4@s", "self= first=/head/backward/1 last=/" + zeros + "/forward/1 next=/" + position(400) + "/backward/1 previous=/" + position(500) + "/forward/1 metadata=/metadata"},
		{"/head/forward/3", "", "self= first=/head/backward/3 last=/" + zeros + "/forward/3 next=/" + position(500) + "/backward/3 metadata=/metadata"},
	} {
		t.Run(c.path, func(t *testing.T) {
			a := n.get("/streams/%24all"+c.path, appJSON)
			f := decode[feed](t, a)
			var titles []string
			for _, e := range f.Entries {
				titles = append(titles, e.Title)
			}
			check.Equal(t, strings.Join(titles, " "), c.titles, "entries")
			check.Equal(t, f.links(), c.links, "links")
			check.Equal(t, fmt.Sprint(f.Title, f.ID, f.HeadOfStream, f.StreamID, f.SelfURL == nil, f.ETag == nil), fmt.Sprint("All events", base+"/streams/%24all", false, "", true, true), "fields")
			if strings.Contains(a.body, "streamId") {
				t.Error("streamId is there")
			}
		})
	}
	f := n.feed("/streams/$all?embed=rich")
	check.Equal(t, *f.Entries[0].StreamID, "s", "rich")
	x := decodeXML[atomFeed](t, n.get("/streams/$all", atomXML))
	check.Equal(t, x.Title, "All events", "XML title")
	n.get("/streams/$all", streamDesc).is(t, 200).has(t, "Content-Type", atomJSON+"; charset=utf-8")
}

func TestAllArguments(t *testing.T) {
	n := newNode(t)
	n.filled("s", 1)
	lower := strings.ToLower(position(0xAB00))
	for path, text := range map[string]string{
		"x/backward/3":        "Invalid position argument: x",
		zeros + "0/forward/3": "Invalid position argument: " + zeros + "0",
		"FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF/forward/3": "Invalid position argument: FFFF",
		position(1) + "/backward/3":                  "Invalid position argument: " + position(1),
		"0/3":                                        "Invalid position argument: 0",
		"filtered/3":                                 "Invalid position argument: filtered",
		"head/backward/x":                            "Invalid count argument: x",
		zeros + "/forward/0":                         "Invalid count argument: 0",
		"head/4097":                                  "Read size too big",
		"x":                                          "'x' is not valid event number",
	} {
		n.get("/streams/$all/"+path, appJSON).is(t, 400).says(t, text)
	}
	n.get("/streams/$all/"+lower+"/forward/3", appJSON).is(t, 200)
	n.get("/streams/$all/head", appJSON).is(t, 404)
	n.get("/streams/$all/0", appJSON).is(t, 404)
	n.get("/streams/$all", appJSON, "ES-ResolveLinkTos", "x").is(t, 400).says(t, "ES-ResolveLinkTos header in wrong format.")
	n.get("/streams/$all/"+zeros+"/forward/3", appJSON, "ES-LongPoll", "x").is(t, 400).says(t, "ES-LongPoll header in wrong format.")
	n.get("/streams/$all", appJSON, "ES-LongPoll", "x").is(t, 200)
	n.get("/streams/$all/metadata", appJSON).is(t, 404)
	n.one("/streams/$all", appJSON, "{}").is(t, 401)
	n.one("/streams/$all/incoming/"+n.id(), appJSON, "{}").is(t, 401)
	for _, path := range []string{"", "/head/backward/3", "/0", "/filtered", "/metadata"} {
		n.do("GET", "/streams/$all"+path, "", with("Accept", appJSON)).is(t, 401)
		n.do("GET", "/streams/%24all"+path, "", with("Accept", appJSON, "Authorization", "Basic b3BzOmNoYW5nZWl0")).is(t, 401)
	}
}

func TestAllResolvesOnRequest(t *testing.T) {
	n := newNode(t)
	n.filled("t", 1)
	n.one("/streams/k", octets, "0@t", "ES-EventType", "$>").is(t, 201)
	f := n.feed("/streams/$all/head/1")
	check.Equal(t, f.Entries[0].Title, "0@k", "as it is")
	f = n.feed("/streams/$all/head/1", "ES-ResolveLinkTos", "True")
	check.Equal(t, f.Entries[0].Title, "0@t", "resolved")
	f = n.feed("/streams/$all/filtered/head/1?context=eventtype&type=prefix&data=$")
	check.Equal(t, f.Entries[0].Title, "0@t", "filtered")
}

func TestAllLeavesOut(t *testing.T) {
	n := newNode(t)
	n.filled("s", 2)
	for _, stream := range []string{"$epoch-information", "$persistentsubscription-$all::g-checkpoint", "$persistentsubscription-$all::g-parked"} {
		n.one("/streams/"+stream, appJSON, "{}").is(t, 201)
	}
	n.one("/streams/$persistentsubscription-s::g-parked", appJSON, "{}").is(t, 201)
	for _, path := range []string{"/head/backward/3", "/filtered/head/backward/3?context=streamid&type=regex&data=."} {
		f := n.feed("/streams/$all" + path)
		check.Equal(t, f.Entries[0].Title+" "+f.Entries[1].Title+" "+f.Entries[2].Title, "0@$persistentsubscription-s::g-parked 1@s 0@s", path)
	}
}

func TestAllShowsTheDeleted(t *testing.T) {
	n := newNode(t)
	n.filled("s", 1)
	n.delete("s", "ES-HardDelete", "true").is(t, 204)
	f := n.feed("/streams/$all?embed=rich")
	check.Equal(t, fmt.Sprint(*f.Entries[0].EventNumber, " ", *f.Entries[0].EventType), "9223372036854775807 $streamDeleted", "tombstone")
	check.Equal(t, f.Entries[1].Title, "0@s", "event")
}

func TestAllFreshness(t *testing.T) {
	n := newNode(t)
	n.filled("s", 5)
	const open, closed = "max-age=0, no-cache, must-revalidate", "max-age=31536000, private"
	for path, want := range map[string]string{
		"":                                  open,
		"/head/backward/2":                  open,
		"/" + position(500) + "/backward/2": open,
		"/" + position(300) + "/backward/2": closed,
		"/" + zeros + "/forward/5":          closed,
		"/" + zeros + "/forward/6":          open,
		"/" + position(500) + "/forward/1":  open,
	} {
		a := n.get("/streams/$all"+path, appJSON).is(t, 200).has(t, "Cache-Control", want)
		tag := ""
		if want == open {
			tag = `"500;248368668"`
		}
		a.has(t, "ETag", tag)
		n.get("/streams/$all"+path, appJSON, "If-None-Match", `"500;248368668"`).is(t, 304)
		n.get("/streams/$all"+path, appJSON, "If-None-Match", `"400;248368668", W/"500;248368668"`).is(t, 304).has(t, "ETag", `"500;248368668"`)
		n.get("/streams/$all"+path, appJSON, "If-None-Match", "*").is(t, 304)
		n.get("/streams/$all"+path, appJSON, "If-None-Match", `"400;248368668"`).is(t, 200)
		n.get("/streams/$all"+path, atomJSON, "If-None-Match", `"500;248368668"`).is(t, 200)
	}
}

func TestFollowingAll(t *testing.T) {
	n := newNode(t)
	n.filled("a", 7)
	n.filled("b", 6)
	for _, way := range []struct{ start, rel string }{
		{"/streams/$all/head/backward/4", "next"}, {"/streams/$all/" + zeros + "/forward/4", "previous"},
		{"/streams/$all/filtered/head/backward/4?exclude-system-events=true", "next"},
		{"/streams/$all/filtered/" + zeros + "/forward/4?exclude-system-events=true", "previous"},
	} {
		seen := map[string]int{}
		_, query, _ := strings.Cut(way.start, "?")
		for path := way.start; path != ""; {
			f := n.feed(path)
			path = ""
			for _, e := range f.Entries {
				seen[e.Title]++
			}
			for _, l := range f.Links {
				if l.Relation == way.rel {
					path = strings.TrimPrefix(l.URI, base) + "?" + query
				}
			}
		}
		check.Equal(t, len(seen), 13, way.start)
		for title, times := range seen {
			check.Equal(t, times, 1, title)
		}
	}
}

func TestFiltered(t *testing.T) {
	n := newNode(t)
	n.one("/streams/red-1", appJSON, "{}", "ES-EventType", "$system").is(t, 201)
	n.one("/streams/red-2", appJSON, "{}", "ES-EventType", "made").is(t, 201)
	n.one("/streams/blue", appJSON, "{}", "ES-EventType", "painted").is(t, 201)
	for _, c := range []struct{ query, titles, text string }{
		{"exclude-system-events=true", "0@blue 0@red-2", ""},
		{"exclude-system-events=true&context=nonsense", "0@blue 0@red-2", ""},
		{"exclude-system-events=false", "", "exclude-sytem-events should have a value of true."},
		{"context=streamid&type=prefix&data=red-", "0@red-2 0@red-1", ""},
		{"context=StreamId&type=Prefix&data=red-2,bl", "0@blue 0@red-2", ""},
		{"context=eventtype&type=prefix&data=pain,$", "0@blue 0@red-1", ""},
		{"context=eventtype&type=regex&data=^.ade%24", "0@red-2", ""},
		{"context=streamid&type=regex&data=u", "0@blue", ""},
		{"context=streamid&type=regex&data=d-%5B12%5D", "0@red-2 0@red-1", ""},
		{"context=streamid&type=regex&data=^(%3F!red)", "0@blue", ""},
		{"context=streamid&type=prefix&data=none", "", ""},
		{"", "", "Invalid context please provide one of the following: StreamId, EventType."},
		{"context=other", "", "Invalid context please provide one of the following: StreamId, EventType."},
		{"context=streamid", "", "Invalid type please provide one of the following:"},
		{"context=streamid&type=glob", "", "Invalid type please provide one of the following:"},
		{"context=streamid&type=prefix", "", "Please provide a comma delimited list of data with at least one item."},
		{"context=streamid&type=regex&data=", "", "Please provide a comma delimited list of data with at least one item."},
		{"context=streamid&type=regex&data=(", "", "Invalid regular expression"},
	} {
		t.Run(c.query, func(t *testing.T) {
			for _, path := range []string{"", "/head/20", "/head/backward/20"} {
				a := n.get("/streams/$all/filtered"+path+"?"+c.query, appJSON)
				if c.text != "" {
					a.is(t, 400).says(t, c.text)
					continue
				}
				f := decode[feed](t, a)
				var titles []string
				for _, e := range f.Entries {
					titles = append(titles, e.Title)
				}
				check.Equal(t, strings.Join(titles, " "), c.titles, "entries")
				check.Equal(t, f.links(), "self= first=/head/backward/20 previous=/"+position(300)+"/forward/20", "links")
				check.Equal(t, f.Links[0].URI, base+"/streams/%24all/filtered", "self")
			}
		})
	}
	a := n.get("/streams/$all/filtered/"+zeros+"/forward/1?context=streamid&type=prefix&data=blue", appJSON)
	f := decode[feed](t, a)
	check.Equal(t, f.links(), "self= first=/head/backward/1 previous=/"+position(300)+"/forward/1", "links")
	if !regexp.MustCompile(`/streams/%24all/filtered/[0-9A-F]{32}/forward/1"`).MatchString(a.body) {
		t.Error(a.body)
	}
}

// A filter that takes too long is refused, and what it did not judge is not shown.
func TestFilterTooSlow(t *testing.T) {
	n := newNode(t)
	n.put(strings.Repeat("a", 40)+"!", "{}")
	const slow = "^(%3F!z)(a%2B)%2B$"
	n.get("/streams/$all/filtered?context=streamid&type=regex&data="+slow, appJSON).is(t, 400).says(t, "The regular expression takes too long.")
	for _, resolve := range []string{"true", "false"} {
		n.get("/streams/$all?from=start&to=end&resolve="+resolve+"&streams=/"+slow+"/", eventStream).is(t, 400).says(t, "The regular expression takes too long.")
	}
}

// growing is a store to which an event is appended when its end was looked at so many times.
type growing struct {
	*memStore
	looks int
}

func (s *growing) LogEnd() int64 {
	end := s.memStore.LogEnd()
	if s.looks--; s.looks == 0 {
		w := event.Write{Kind: event.Append, Stream: "s", ExpectedVersion: event.AnyVersion, Events: []event.Proposed{{ID: event.ID{9}, Type: "t"}}}
		if _, err := s.Write(context.Background(), &w); err != nil {
			panic(err)
		}
	}
	return end
}

// TestAllBackwardFromTheEnd: a page before a position never shows events after it, even if the
// position was the end of the log a moment ago.
func TestAllBackwardFromTheEnd(t *testing.T) {
	for looks := range 4 {
		store := &growing{}
		n := newNode(t, func(o *httpapi.Options) { store.memStore, o.Store = o.Store.(*memStore), store })
		n.filled("s", 5)
		store.looks = looks
		f := decode[feed](t, n.get("/streams/%24all/"+position(500)+"/backward/2", appJSON))
		var titles []string
		for _, e := range f.Entries {
			titles = append(titles, e.Title)
		}
		check.Equal(t, strings.Join(titles, " "), "4@s 3@s", "entries")
	}
}
