package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// manages sends an operation on groups with a JSON body.
func (n *node) manages(method, path, body string, headers ...string) answer {
	n.t.Helper()
	return n.do(method, path, body, admin(append(headers, "Content-Type", appJSON)...))
}

func TestSubscriptionRoutes(t *testing.T) {
	const list, group, read, write = "GET, OPTIONS", "PUT, POST, DELETE, GET, OPTIONS", "GET, OPTIONS", "POST, OPTIONS"
	n, _ := newSubscriber(t)
	const guid = "0f9fad5b-d9cb-469f-a165-70867728950e"
	for path, methods := range map[string]string{
		"/subscriptions": list, "/subscriptions/s": list, "/subscriptions/restart": "GET, POST, OPTIONS", "/subscriptions/%72estart": "GET, POST, OPTIONS",
		"/subscriptions/s/g": group, "/subscriptions/restart/g": group, "/subscriptions/viewparkedmessages/g": group, "/subscriptions/s/info": group,
		"/subscriptions/s/g/1": read, "/subscriptions/s/g/one": read, "/subscriptions/s/g/info": read, "/subscriptions/s/g/Info": read, "/subscriptions/s/g/replayparked": read,
		"/subscriptions/s/g/ack": write, "/subscriptions/s/g/nack": write, "/subscriptions/s/g/ack/" + guid: write, "/subscriptions/s/g/nack/x": write,
		"/subscriptions/s/g/replayParked": write, "/subscriptions/s/g/reset": "GET, POST, OPTIONS", "/subscriptions/%24all/g": group, "/%73ubscriptions/s": list, "/subscriptions/a%2Fb/c%2Fd": group,
		"/subscriptions/viewparkedmessages/s/g/head/backward/1": read, "/subscriptions/viewparkedmessages/s/g/0/forward/1": read,
		"/subscriptions/viewparkedmessages/s/g": read, // A count of that group.
		"/subscriptions/s/g/parked":             read, "/subscriptions/s/g/parked/replay": write, "/subscriptions/s/g/parked/drop": write, "/subscriptions/s/g/parked/note": write,
		"/subscriptions/s/g/pause": write, "/subscriptions/s/g/resume": write, "/subscriptions/s/pause": group,
		"/subscriptions/s/parked": group, "/subscriptions/s/g/parked/": "", "/subscriptions/s/g/parked/x": "", "/subscriptions/s/g/parked/note/1": "",

		"/subscriptions/": "", "/subscriptions//": "", "/subscriptions/s/": "", "/subscriptions/s/g/": "", "/subscriptions//g": "", "/subscriptions/s//1": "",
		"/subscriptions/s/g/1/": "", "/subscriptions/s/g/1/2": "", "/subscriptions/s/g/ack/": "", "/subscriptions/s/g/info/x": "", "/subscriptions/s/g/ack/1/2": "",
		"/subscriptions/viewparkedmessages/s/g/0/sideways/1": "", "/subscriptions/viewparkedmessages/s/g/0/1": "", "/subscriptions/viewparkedmessages/s/g/0/forward/1/": "",
		"/subscriptions/x/s/g/0/forward/1": "", "/subscriptions/viewparkedmessages/s/g/0/forward/1/2": "", "/Subscriptions": "", "/subscriptions%2Fs": "", "/subscriptionsx": "",
	} {
		t.Run(path, func(t *testing.T) {
			status, other := 200, 405
			if methods == "" {
				status, other = 404, 404
			}
			checkCORS(t, n.do("OPTIONS", path, "", nil).is(t, status), methods)
			a := n.do("PATCH", path, "", admin()).is(t, other)
			checkCORS(t, a, methods)
			n.do("PATCH", path, "", as("admin", "wrong")).is(t, 401)
		})
	}
	without := newNode(t)
	without.get("/subscriptions", appJSON).is(t, 404)
	without.get("/subscriptions/s/g", competingJSON).is(t, 404)
}

// TestSubscriptionNames follows names of all kinds from the path to the group.
func TestSubscriptionNames(t *testing.T) {
	for path, want := range map[string]string{
		"/subscriptions/S/g":                         "create S::g by admin",
		"/subscriptions/a%2Fb/c%2Fd":                 "create a/b::c/d by admin",
		"/subscriptions/a%20b/%F0%9D%92%9C":          "create a b::𝒜 by admin",
		"/subscriptions/a+b/%252F":                   "create a+b::%2F by admin",
		"/subscriptions/$ce-x/info":                  "create $ce-x::info by admin",
		"/subscriptions/restart/restart":             "create restart::restart by admin",
		"/subscriptions/viewparkedmessages/x":        "create viewparkedmessages::x by admin",
		"/subscriptions/a%3A%3Ab/c::d":               "create a::b::c::d by admin",
		"/subscriptions/%22%5C%3C%26%3E/%0A?x=y&z=%": "create \"\\<&>::\n by admin",
	} {
		n, subs := newSubscriber(t)
		a := n.manages("PUT", path, "").is(t, 200)
		check.Equal(t, subs.made(), want, path)
		back := strings.TrimPrefix(a.header.Get("Location"), base)
		n.get(back+"/info", appJSON).is(t, 200)
		n.get(back+"/5?embed=rich", competingJSON).is(t, 200)
		n.get(back, competingXML).is(t, 200)
		n.manages("DELETE", back, "").is(t, 200)
		key := strings.TrimSuffix(strings.TrimPrefix(want, "create "), " by admin")
		check.Equal(t, subs.made(), fmt.Sprintf("info of %s; read 5 of %s; read 1 of %s; delete %s by admin", key, key, key, key), path)
	}
}

func TestSubscriptionOrderOfChecks(t *testing.T) {
	n, subs := newSubscriber(t)
	const path = "/subscriptions/$x/g"
	jane := as("jane", "changeit", "Content-Type", "text/plain", "Accept", "image/png")
	n.do("PUT", path, "", as("jane", "wrong")).is(t, 401)
	n.do("PATCH", path, "", jane).is(t, 405)
	n.do("PUT", path, "", jane).is(t, 415)
	jane.Set("Content-Type", "application/json; charset=utf-8")
	n.do("PUT", path, "", jane).is(t, 406)
	n.do("GET", path, "", jane).is(t, 406)
	jane.Set("Accept", "*/*")
	n.do("PUT", path, "{nonsense", jane).is(t, 401)
	n.do("GET", path+"/0", "", jane).is(t, 401)
	n.do("POST", path+"/ack?ids=x", "", jane).is(t, 401)
	n.do("GET", "/subscriptions?offset=x", "", nil).is(t, 401)
	n.get(path+"/0", "").is(t, 400)
	check.Equal(t, subs.made(), "", "calls")
}

func TestSubscriptionMedia(t *testing.T) {
	n, subs := newSubscriber(t)
	subs.define("s", "g")
	n.put(subscription.Key{Stream: "s", Group: "g"}.ParkedStream(), `{}`)
	const utf8 = "; charset=utf-8"
	for _, path := range []string{"/subscriptions/s/g", "/subscriptions/s/g/1", "/subscriptions/viewparkedmessages/s/g/head/backward/1", "/subscriptions/viewparkedmessages/s/g/0/forward/1"} {
		for accept, want := range map[string]string{
			"": competingXML, "*/*": competingXML, "application/*": competingXML, competingXML: competingXML, competingJSON: competingJSON,
			"application/json, " + competingJSON: competingJSON, "application/json": "", "text/xml": "", "text/*": "", atomJSON: "", atomXML: "",
			competingJSON + ";q=0.5, " + competingXML + ";q=0.4": competingJSON,
		} {
			a := n.get(path, accept)
			if want == "" {
				a.is(t, 406)
				continue
			}
			a.is(t, 200).has(t, "Content-Type", want+utf8)
		}
	}
	for _, path := range []string{"/subscriptions", "/subscriptions?count=1", "/subscriptions/s", "/subscriptions/s/g/info"} {
		for accept, want := range map[string]string{
			"": appJSON, "*/*": appJSON, "application/*": appJSON, "text/*": textXML, appJSON: appJSON, textXML: textXML,
			"application/json, text/plain, */*": appJSON, competingJSON: "", "image/png": "",
		} {
			a := n.get(path, accept)
			if want == "" {
				a.is(t, 406)
				continue
			}
			a.is(t, 200).has(t, "Content-Type", want+utf8)
		}
		n.get(path+map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")]+"format=xml", appJSON).is(t, 200).has(t, "Content-Type", textXML+utf8)
	}
	for contentType, status := range map[string]int{
		"": 415, "text/plain": 415, "application/xml": 415, "application/json; charset=latin1": 415,
		appJSON: 200, "application/json; charset=utf-8": 200, "Text/XML": 200,
	} {
		h := admin()
		if contentType != "" {
			h.Set("Content-Type", contentType)
		}
		n.do("POST", "/subscriptions/s/g", "", h).is(t, status)
	}
	for _, contentType := range []string{"", "text/plain", appJSON, "nonsense"} {
		for _, path := range []string{"/ack?ids=" + n.id(), "/nack?ids=" + n.id(), "/ack/" + n.id(), "/replayParked"} {
			n.do("POST", "/subscriptions/s/g"+path, "{}", admin("Content-Type", contentType)).is(t, 200)
		}
	}
	n.do("POST", "/subscriptions/s/g/ack/"+n.id(), "", admin("Accept", "image/png")).is(t, 200)
}

// result is what came of a command, as a client reads it.
type result struct{ CorrelationID, Reason, Result string }

// results checks a command's result.
func (a answer) results(t testing.TB, status int, word, reason string) answer {
	t.Helper()
	a.is(t, status).has(t, "Content-Type", "application/json; charset=utf-8")
	var r result
	check.Must(t, json.Unmarshal([]byte(a.body), &r), a.body)
	check.Equal(t, r.Result+": "+r.Reason, word+": "+reason, "result")
	check.NoError(t, check.Err(event.ParseID(r.CorrelationID)), "correlation id", r.CorrelationID)
	return a
}

func TestGroupCommands(t *testing.T) {
	for _, reference := range []bool{false, true} {
		created, answered := 200, 200
		if reference {
			created, answered = 201, 202
		}
		n, subs := newSubscriber(t, func(o *httpapi.Options) { o.ReferenceStatusCodes = reference })
		const group = "/subscriptions/s/g"
		n.manages("PUT", group, "").results(t, created, "Success", "").has(t, "Location", base+group)
		n.manages("PUT", group, "").results(t, 409, "AlreadyExists", "Group 'g' already exists.").has(t, "Location", base+group)
		n.manages("POST", group, "").results(t, 200, "Success", "").has(t, "Location", base+group)
		n.manages("POST", group+"x", "").results(t, 404, "DoesNotExist", "Group 'gx' does not exist.").has(t, "Location", base+group+"x")
		n.manages("POST", group+"/replayParked", "").results(t, 200, "Success", "").has(t, "Location", "")
		n.manages("POST", group+"x/replayParked", "").results(t, 404, "DoesNotExist", "Unable to locate 's::gx'")
		for _, verb := range []string{"/ack", "/nack"} {
			for _, form := range []string{"/" + n.id(), "?ids=" + n.id()} {
				for _, g := range []string{group, group + "x"} {
					a := n.do("POST", g+verb+form, "{}", admin()).is(t, answered)
					check.Equal(t, a.body, "", "body")
				}
			}
		}
		for _, p := range []string{"PUT", "POST"} {
			n.manages(p, group, `{"namedConsumerStrategy":"roundrobin","startFrom":-2}`).results(t, 400, "Fail", "Consumer strategy roundrobin does not exist.")
			n.manages(p, group, `{"startPosition":"-2"}`).results(t, 400, "Fail", "Invalid Start From position: event number must be greater than or equal to -1.")
		}
		n.manages("POST", group+"x", `{"startFrom":-2}`).results(t, 404, "DoesNotExist", "Group 'gx' does not exist.")
		n.manages("DELETE", group, "").results(t, 200, "Success", "")
		n.manages("DELETE", group, "").results(t, 404, "DoesNotExist", "Group 'g' does not exist.")
		n.get(group, competingJSON).is(t, 404)
		subs.made()

		const all = "Persistent subscriptions to $all are only supported over gRPC through gRPC clients"
		for _, path := range []string{"/subscriptions/$all/g", "/subscriptions/%24all/g"} {
			n.manages("PUT", path, `{"bufferSize":0}`).results(t, 400, "Fail", all)
			n.manages("POST", path, "").results(t, 400, "Fail", all)
			n.manages("DELETE", path, "").results(t, 404, "DoesNotExist", "Group 'g' does not exist.")
			n.get(path, competingJSON).results(t, 400, "Fail", all)
			n.get(path+"/5", competingJSON).results(t, 400, "Fail", all)
			n.manages("POST", path+"/replayParked", "").results(t, 404, "DoesNotExist", "Unable to locate '$all::g'")
			n.manages("POST", path+"/pause", "").results(t, 404, "DoesNotExist", "Group 'g' does not exist.")
			n.manages("POST", path+"/parked/drop?numbers=1", "").results(t, 404, "DoesNotExist", "Group 'g' does not exist.")
			n.manages("POST", path+"/ack/5b9a7c0e-3d0f-4c5e-9a39-9f5f4a3c1c01", "").is(t, 400).says(t, all)
			n.manages("POST", path+"/nack?ids=5b9a7c0e-3d0f-4c5e-9a39-9f5f4a3c1c01", "").is(t, 400).says(t, all)
			n.get(path, competingXML).is(t, 400).has(t, "Content-Type", "text/xml; charset=utf-8")
		}
		const calls = "delete $all::g by admin; replay $all::g to -1; pause $all::g by admin; drop [1] of $all::g"
		check.Equal(t, subs.made(), calls+"; "+calls, "calls")
		check.Equal(t, n.get("/subscriptions/$all", appJSON).is(t, 404).body, "[]", "list")
	}
}

func TestGroupNamesThatAreLong(t *testing.T) {
	n, subs := newSubscriber(t)
	const around = len("$$$persistentsubscription-s::-checkpoint")
	longest := strings.Repeat("g", event.MaxNameBytes-around)
	n.manages("PUT", "/subscriptions/s/"+longest, "").is(t, 200)
	subs.made()
	n.manages("PUT", "/subscriptions/s/"+longest+"g", "").is(t, 400).says(t, "Stream name or event type is too long.")
	n.manages("PUT", "/subscriptions/s%FF/g", "").is(t, 400).says(t, "The names of the stream and the group must be UTF-8.")
	check.Equal(t, subs.made(), "", "calls")
	n.manages("POST", "/subscriptions/s/"+longest+"g", "").is(t, 404)
}

func TestReplayParked(t *testing.T) {
	n, subs := newSubscriber(t)
	subs.define("s", "g")
	for query, want := range map[string]string{
		"": "-1", "?stopAt=0": "0", "?stopAt=12": "12", "?StopAt=9223372036854775807&x=1": "9223372036854775807",
		"?stopAt=": "", "?stopAt=-1": "", "?stopAt=two": "", "?stopAt=1.0": "", "?stopAt=9223372036854775808": "",
	} {
		a := n.manages("POST", "/subscriptions/s/g/replayParked"+query, "{}")
		if want == "" {
			a.is(t, 400).says(t, "stopAt should be a properly formed positive long")
			check.Equal(t, subs.made(), "", query)
			continue
		}
		a.is(t, 200)
		check.Equal(t, subs.made(), "replay s::g to "+want, query)
	}
}

func TestNackAfter(t *testing.T) {
	n, subs := newSubscriber(t)
	subs.define("s", "g")
	const id = "0f9fad5b-d9cb-469f-a165-70867728950e"
	for query, want := range map[string]string{
		"":                           ", action 0: Nacked from HTTP",
		"after=5s":                   ", action 0: Nacked from HTTP, after 5s",
		"action=Retry&after=0":       ", action 0: Nacked from HTTP, after 0s",
		"action=sometime&After=1m5s": ", action 0: Nacked from HTTP, after 1m5s",
		"action=retry&after=24h":     ", action 0: Nacked from HTTP, after 24h0m0s",
		"after=":                     "", "after=5": "", "after=-1s": "", "after=soon": "", "after=24h0m0.001s": "",
		"action=park&after=5s": "park", "action=skip&after=0": "park",
	} {
		a := n.do("POST", "/subscriptions/s/g/nack/"+id+"?"+query, "", admin())
		switch want {
		case "":
			a.is(t, 400).says(t, "after should be a duration from 0s to 24h, such as 5s")
		case "park":
			a.is(t, 400).says(t, "after is for the action Retry alone")
		default:
			a.is(t, 200)
			want = "nack [" + id + "] of s::g" + want
		}
		if a.status != 200 {
			want = ""
		}
		check.Equal(t, subs.made(), want, query)
	}
}

func TestPause(t *testing.T) {
	n, subs := newSubscriber(t)
	g := subs.define("s", "g")
	n.manages("POST", "/subscriptions/s/g/pause", "").results(t, 200, "Success", "")
	g.Paused.At, g.Delayed = time.Unix(1_000_000_000, 0), 3
	info := decode[map[string]any](t, n.get("/subscriptions/s/g/info", appJSON).is(t, 200))
	for name, want := range map[string]string{"status": "Paused", "delayedMessages": "3", "paused": "map[at:2001-09-09T01:46:40Z by:admin]"} {
		check.Equal(t, fmt.Sprint(info[name]), want, name)
	}
	check.Equal(t, strings.Contains(n.get("/subscriptions/s/g/info", textXML).is(t, 200).body, "<Paused><By>admin</By><At>2001-09-09T01:46:40Z</At></Paused>"), true, "XML")
	n.manages("POST", "/subscriptions/s/g/resume", "").results(t, 200, "Success", "")
	n.manages("POST", "/subscriptions/s/none/resume", "").results(t, 404, "DoesNotExist", "Group 'none' does not exist.")
	n.get("/subscriptions/s/g/pause", appJSON).is(t, 405)
	check.Equal(t, subs.made(), "pause s::g by admin; info of s::g; info of s::g; resume s::g by admin; resume s::none by admin", "calls")
}

func TestRestart(t *testing.T) {
	n, subs := newSubscriber(t)
	check.Equal(t, n.manages("POST", "/subscriptions/restart", "").is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8").body, `"Restarting"`, "body")
	check.Equal(t, subs.made(), "restart", "calls")
	subs.fail = event.ErrNotReady
	n.manages("POST", "/subscriptions/restart", "").is(t, 400).says(t, "Persistent subscriptions are not running.")
	subs.fail = event.ErrBusy
	n.manages("POST", "/subscriptions/restart", "").is(t, 503)
	subs.fail = nil
	subs.define("restart", "g")
	n.get("/subscriptions/restart", appJSON).is(t, 200)
	check.Equal(t, subs.made(), `restart; restart; list "restart"`, "calls")
}

func TestMessageCount(t *testing.T) {
	n, subs := newSubscriber(t)
	subs.define("s", "g")
	for count, want := range map[string]string{"": "1", "/1": "1", "/100": "100", "/007": "7"} {
		n.get("/subscriptions/s/g"+count, competingJSON).is(t, 200)
		check.Equal(t, subs.made(), "read "+want+" of s::g", count)
	}
	for count, text := range map[string]string{"0": "0", "-1": "-1", "101": "101", "one": "one", "10.1": "10.1", "99999999999999999999": "99999999999999999999", "%3Cx%3E": "<x>"} {
		a := n.get("/subscriptions/s/g/"+count, competingJSON).is(t, 400).says(t, "Message count")
		check.Equal(t, a.body, "Message count must be an integer between 1 and 100 'count' ='"+text+"'", count)
	}
	for _, accept := range []string{competingJSON, competingXML} {
		a := n.get("/subscriptions/s/none/5", accept).is(t, 404)
		if accept == competingJSON {
			check.Equal(t, a.body, `"Not found."`, "body")
		} else {
			check.Equal(t, a.body, xmlProlog+"<string>Not found.</string>", "body")
		}
	}
	n.get("/subscriptions/s/none/info", appJSON).is(t, 404).bare(t)
	n.get("/subscriptions/s/g", competingJSON, "ES-LongPoll", "nonsense").is(t, 200).has(t, "ETag", "").has(t, "Cache-Control", "")
}

const xmlProlog = `<?xml version="1.0" encoding="utf-8"?>`

// Reading the feed does not take messages.
func TestHeadTakesNoMessages(t *testing.T) {
	n, subs := newSubscriber(t)
	g := subs.define("s", "g")
	g.messages = someMessages()
	check.Equal(t, n.do("HEAD", "/subscriptions/s/g/100", "", admin()).is(t, 200).body, "", "body")
	check.Equal(t, subs.made(), "info of s::g", "calls")
	n.do("HEAD", "/subscriptions/s/none/100", "", admin()).is(t, 404)
	check.Equal(t, len(g.messages), 5, "messages")
}

// messages is the feed as a client reads it.
type messages struct {
	Title, ID, Updated string
	HeadOfStream       bool
	StreamID, SelfURL  *string
	ETag               *string
	Links              []feedLink
	Entries            []messageEntry
}

type messageEntry struct {
	entry
	RetryCount *int
}

// of returns the address with a relation.
func of(links []feedLink, relation string) string {
	for _, l := range links {
		if l.Relation == relation {
			return l.URI
		}
	}
	return ""
}

func TestMessageFeed(t *testing.T) {
	n, subs := newSubscriber(t)
	g := subs.define("s", "g")
	for _, c := range []struct{ name, header, value, root string }{
		{"own address", "X-Other", "", base},
		{"proxy", "X-Forwarded-Host", "db.example:8443", "http://db.example:8443"},
		{"port", "X-Forwarded-Port", "81", "http://node.example:81"},
		{"TLS", "X-Forwarded-Proto", "https", "https://node.example:2113"},
		{"prefix", "X-Forwarded-Prefix", "store", base + "/store"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g.messages = someMessages()
			var ids []string
			for _, m := range g.messages[:3] {
				ids = append(ids, m.ID.String())
			}
			f := decode[messages](t, n.get("/subscriptions/s/g/3", competingJSON, c.header, c.value))
			group := c.root + "/subscriptions/s/g"
			check.Equal(t, fmt.Sprint(f.Links), fmt.Sprint([]feedLink{
				{group + "/ack?ids=" + strings.Join(ids, ","), "ackAll"}, {group + "/nack?ids=" + strings.Join(ids, ","), "nackAll"},
				{group + "/3", "previous"}, {group, "self"},
			}), "links")
			check.Equal(t, f.ID, group, "id")
			check.Equal(t, f.Title, "Messages for 's/g'", "title")
			if f.HeadOfStream || f.StreamID != nil || f.SelfURL != nil || f.ETag != nil {
				t.Errorf("%+v", f)
			}
			for i, e := range f.Entries {
				id := ids[len(ids)-1-i]
				check.Equal(t, fmt.Sprint(e.Links), fmt.Sprint([]feedLink{{e.ID, "edit"}, {e.ID, "alternate"}, {group + "/ack/" + id, "ack"}, {group + "/nack/" + id, "nack"}}), "entry")
				check.Equal(t, *e.RetryCount, 2-i, "retries")
			}
			check.Equal(t, f.Entries[0].ID, c.root+"/streams/target%20%26%20%3Cco%3E/7", "newest first")
			f = decode[messages](t, n.get("/subscriptions/s/g", competingJSON, c.header, c.value))
			check.Equal(t, of(f.Links, "previous"), group+"/1", "previous")
		})
	}
	// An answer goes where the links lead.
	g.messages = someMessages()
	f := decode[messages](t, n.get("/subscriptions/s/g/2?embed=rich", competingJSON))
	subs.made()
	n.do("POST", strings.TrimPrefix(of(f.Links, "ackAll"), base), "", admin()).is(t, 200)
	n.do("POST", strings.TrimPrefix(of(f.Links, "nackAll"), base)+"&action=park", "", admin()).is(t, 200)
	n.do("POST", strings.TrimPrefix(of(f.Entries[1].Links, "nack"), base)+"?action=skip", "{}", admin()).is(t, 200)
	first, second := someMessages()[0].ID, someMessages()[1].ID
	check.Equal(t, subs.made(), fmt.Sprintf("ack [%s %s] of s::g; nack [%s %s] of s::g, action 1: Nacked from HTTP; nack [%s] of s::g, action 2: Nacked from HTTP",
		first, second, first, second, first), "calls")
}

func TestAnswerIDs(t *testing.T) {
	n, subs := newSubscriber(t)
	subs.define("s", "g")
	const a, b = "0f9fad5b-d9cb-469f-a165-70867728950e", "1f9fad5b-d9cb-469f-a165-70867728950e"
	const single, several = "messageid should be a properly formed guid", "ids should be a comma separated list of properly formed guids"
	for _, c := range []struct{ path, ids, text string }{
		{"/" + a, a, ""},
		{"/" + strings.ToUpper(a), a, ""},
		{"/" + strings.ReplaceAll(a, "-", ""), a, ""},
		{"/" + a + "?ids=" + b, a, ""},
		{"/nonsense", "", single},
		{"/%7B" + a + "%7D", "", single},
		{"/" + a + "," + b, "", single},
		{"/" + a[1:], "", single},
		{"?ids=" + a, a, ""},
		{"?IDS=" + a + "," + strings.ReplaceAll(b, "-", "") + "," + a, a + " " + b + " " + a, ""},
		{"?ids=" + a + "%2C" + b, a + " " + b, ""},
		{"", "", several},
		{"?ids", "", several},
		{"?ids=", "", several},
		{"?ids=,", "", several},
		{"?ids=" + a + ",", "", several},
		{"?ids=" + a + ",nonsense", "", several},
		{"?ids=" + a + ",%20" + b, "", several},
		{"?ids=%28" + a + "%29", "", several},
	} {
		for _, verb := range []string{"ack", "nack"} {
			answer := n.do("POST", "/subscriptions/s/g/"+verb+c.path, "", admin())
			if c.text != "" {
				check.Equal(t, answer.is(t, 400).says(t, c.text).body, c.text, c.path)
				check.Equal(t, subs.made(), "", c.path)
				continue
			}
			answer.is(t, 200)
			if got := subs.made(); !strings.HasPrefix(got, verb+" ["+c.ids+"] of s::g") {
				t.Errorf("%s: %s", c.path, got)
			}
		}
	}
}

func TestNackActions(t *testing.T) {
	n, subs := newSubscriber(t)
	id := n.id()
	for word, want := range map[string]subscription.Action{
		"": subscription.Retry, "retry": subscription.Retry, "Retyr": subscription.Retry, "RETRY": subscription.Retry, "destroy": subscription.Retry,
		"park": subscription.Park, "Park": subscription.Park, "PARK": subscription.Park, "skip": subscription.Skip, "sKip": subscription.Skip,
		"stop": subscription.Stop, "Stop": subscription.Stop, "%20stop": subscription.Stop,
	} {
		for _, path := range []string{"/nack/" + id + "?action=" + word, "/nack?ids=" + id + "&action=" + word, "/nack?Action=" + word + "&ids=" + id} {
			n.do("POST", "/subscriptions/s/g"+path, "", admin()).is(t, 200)
			check.Equal(t, subs.made(), fmt.Sprintf("nack [%s] of s::g, action %d: Nacked from HTTP", id, want), path)
		}
	}
	n.do("POST", "/subscriptions/s/g/nack/"+id, "", admin()).is(t, 200)
	check.Equal(t, subs.made(), fmt.Sprintf("nack [%s] of s::g, action 0: Nacked from HTTP", id), "missing")
}

func TestGroupPages(t *testing.T) {
	n, subs := newSubscriber(t)
	for _, name := range []string{"a", "b", "b", "c", "d", "d", "d"} {
		subs.define(name, fmt.Sprint(name, len(subs.groups)))
	}
	type page struct {
		Links                []struct{ Href, Rel string }
		Offset, Count, Total int
		Subscriptions        []struct{ GroupName string }
	}
	for _, c := range []struct{ query, want string }{
		{"count=2", "0 2 4 a0 b1 b2 self=0,2 first=0,2 next=2,2"},
		{"offset=0&count=2", "0 2 4 a0 b1 b2 self=0,2 first=0,2 next=2,2"},
		{"offset=1&count=2", "1 2 4 b1 b2 c3 self=1,2 first=0,2 previous=0,2 next=3,2"},
		{"count=2&Offset=2", "2 2 4 c3 d4 d5 d6 self=2,2 first=0,2 previous=0,2"},
		{"offset=3&count=5", "3 5 4 d4 d5 d6 self=3,5 first=0,5 previous=0,5"},
		{"offset=9&count=1", "9 1 4 self=9,1 first=0,1 previous=8,1"},
		{"offset=2147483647&count=2147483647", "2147483647 2147483647 4 self=2147483647,2147483647 first=0,2147483647 previous=0,2147483647"},
		{"offset=0", "count must be a positive integer."},
		{"offset=0&count=", "count must be a positive integer."},
		{"count=0", "count must be a positive integer."},
		{"count=-1", "count must be a positive integer."},
		{"count", "count must be a positive integer."},
		{"count=2147483648", "count must be a positive integer."},
		{"offset=-1&count=1", "offset must be a non-negative integer."},
		{"offset=&count=1", "offset must be a non-negative integer."},
		{"offset=x&count=x", "offset must be a non-negative integer."},
	} {
		a := n.get("/subscriptions?"+c.query, appJSON)
		if strings.Contains(c.want, "must") {
			check.Equal(t, a.is(t, 400).says(t, c.want).body, c.want, c.query)
			continue
		}
		p := decode[page](t, a)
		got := fmt.Sprint(p.Offset, " ", p.Count, " ", p.Total)
		for _, g := range p.Subscriptions {
			got += " " + g.GroupName
		}
		for _, l := range p.Links {
			query := strings.TrimPrefix(l.Href, base+"/subscriptions?offset=")
			got += " " + l.Rel + "=" + strings.Replace(query, "&count=", ",", 1)
		}
		check.Equal(t, got, c.want, c.query)
	}
	type list []struct{ GroupName string }
	check.Equal(t, fmt.Sprint(decode[list](t, n.get("/subscriptions", appJSON))), "[{a0} {b1} {b2} {c3} {d4} {d5} {d6}]", "all")
	check.Equal(t, fmt.Sprint(decode[list](t, n.get("/subscriptions?other=1", appJSON))), "[{a0} {b1} {b2} {c3} {d4} {d5} {d6}]", "all")
	check.Equal(t, fmt.Sprint(decode[list](t, n.get("/subscriptions/b?count=1", appJSON))), "[{b1} {b2}]", "of one")
	check.Equal(t, n.get("/subscriptions/B", appJSON).is(t, 404).has(t, "Content-Type", "application/json; charset=utf-8").body, "[]", "of none")
	n.get("/subscriptions/B", textXML).is(t, 404).has(t, "Content-Type", "text/xml; charset=utf-8")
}
