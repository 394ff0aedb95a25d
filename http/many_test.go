package httpapi_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// many posts a write to several streams as administrator.
func (n *node) many(body string, headers ...string) answer {
	n.t.Helper()
	return n.do("POST", "/streams", body, admin(append(headers, "Content-Type", appJSON)...))
}

// to returns an event for a stream, with an id of its own.
func (n *node) to(stream string) string {
	return fmt.Sprintf(`{"stream":%q,"eventId":%q,"eventType":"T","data":{}}`, stream, n.id())
}

// manyOf makes the body of events and checks.
func manyOf(events []string, checks ...string) string {
	return `{"events":[` + strings.Join(events, ",") + `],"checks":[` + strings.Join(checks, ",") + `]}`
}

func expects(stream, version string) string {
	return fmt.Sprintf(`{"stream":%q,"expectedVersion":%s}`, stream, version)
}

// doneMany is the answer to one that holds.
type doneMany struct {
	Position int64
	Repeated bool
	Streams  []doneStream
}

type doneStream struct {
	Stream      string
	First, Last int64
}

// notDone is the answer to one that was refused by what streams are like.
type notDone struct {
	Message    string
	Checks     []violated
	Conditions []any
	Position   int64
}

type violated struct {
	Index            *int
	Stream           string
	Expected, Actual any
}

// parsed reads an answer whatever its status.
func parsed[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	check.Must(t, json.Unmarshal([]byte(a.body), &v))
	return v
}

func TestAppendMany(t *testing.T) {
	n := newNode(t)
	a := n.many(`{
		"stream": "b",
		"checks": [{"stream": "c", "expectedVersion": "none"}, {"stream": "a", "expectedVersion": -1}],
		"events": [
			{"stream": "a", "eventId": "`+n.id()+`", "eventType": "A", "data": {"x": 1}, "metadata": {"by": "ann"}},
			{"EVENTID": "`+n.id()+`", "eventtype": "B", "data": "text", "tags": ["x:1"]},
			{"stream": "a", "eventId": "`+n.id()+`", "eventType": "C", "dataBase64": "AP8=", "metadata": {"m": 1}},
			{"stream": "$$b", "eventId": "`+n.id()+`", "eventType": "$metadata", "data": {"$maxCount": 5}}
		] }`).is(t, 201).has(t, "Content-Type", "application/json; charset=utf-8")
	got := parsed[doneMany](t, a)
	want := []doneStream{{"a", 0, 1}, {"b", 0, 0}, {"$$b", 0, 0}}
	check.Equal(t, fmt.Sprint(got.Repeated, got.Streams), fmt.Sprint(false, want))
	checkCORS(t, a, "POST, OPTIONS")
	var types []string
	for _, e := range n.store.Log() {
		types = append(types, fmt.Sprintf("%d@%s %s %s %v", e.Number, e.Stream, e.Type, e.Data, e.Flags&event.FlagJSON != 0))
	}
	check.Equal(t, strings.Join(types, "|"), "0@a A {\"x\": 1} true|0@b B text true|1@a C \x00\xff false|0@$$b $metadata {\"$maxCount\": 5} true")

	for _, c := range []struct {
		method, body string
		headers      []string
		status       int
	}{
		{"GET", "", nil, 405},
		{"DELETE", "", nil, 405},
		{"OPTIONS", "", nil, 200},
		{"POST", "{}", []string{"Content-Type", "text/plain"}, 415},
		{"POST", "{}", []string{"Content-Type", eventsJSON}, 415},
		{"POST", "{}", nil, 415},
		{"POST", manyOf([]string{n.to("a")}), []string{"Content-Type", "application/vnd.annals.append+json", "Accept", "image/png"}, 201},
		{"POST", "{", []string{"Content-Type", appJSON, "ES-RequireLeader", "perhaps"}, 400},
	} {
		a := n.do(c.method, "/streams", c.body, admin(c.headers...)).is(t, c.status)
		checkCORS(t, a, "POST, OPTIONS")
	}
	// Credentials come before the media type.
	n.do("POST", "/streams", "", with("Authorization", wrongCredentials)).is(t, 401)
	check.Equal(t, strings.Contains(n.get("/info", "").body, `"multiStream": true`), true, "the feature")
}

// TestManyBodies: what is wrong with a body names its place.
func TestManyBodies(t *testing.T) {
	n := newNode(t)
	const id = `"eventId":"c322e299-cb73-4b47-97c5-5054f920746e"`
	const ok = `{"stream":"s",` + id + `,"eventType":"t"}`
	const invalid = "Write request body invalid."
	for _, c := range []struct{ body, text string }{
		{``, invalid}, {`[]`, invalid}, {`{"events":[` + ok + `]`, invalid}, {`{"events":[` + ok + `]}}`, invalid}, {`x`, invalid}, {`{"events":`, invalid}, {`{"checks":[`, invalid}, {`{"checks":[{"stream":"a"`, invalid}, {"{\"stream\":\"\xe9\"}", invalid},
		{`{}`, "events is missing or empty."}, {`{"events":[]}`, "events is missing or empty."}, {`{"events":{}}`, "events must be an array."},
		{`{"events":[1]}`, "events[0]: must be an object."}, {`{"checks":[[]]}`, "checks[0]: must be an object."}, {`{"checks":1}`, "checks must be an array."},
		{`{"check":[],"events":[` + ok + `]}`, `"check" is not a member that is known here.`},
		{`{"condition":1,"events":[` + ok + `]}`, "condition[0]: must be an object."},
		{`{"events":[],"EVENTS":[]}`, "events is there twice."}, {`{"stream":1}`, "stream must be a text."},
		{`{"events":[{"stream":"s","stream":"t"}]}`, "events[0]: stream is there twice."},
		{`{"events":[` + ok + `,{"steam":"s"}]}`, `events[1]: "steam" is not a member that is known here.`},
		{`{"events":[{` + id + `,"eventType":"t"}]}`, "events[0]: stream is missing."},
		{`{"events":[{"stream":"",` + id + `,"eventType":"t"}]}`, "events[0]: the name of a stream is empty"},
		{`{"events":[{"stream":1}]}`, "events[0]: stream must be a text."}, {`{"events":[{"eventType":1}]}`, "events[0]: eventType must be a text."},
		{`{"events":[` + ok + `,{"stream":"s","eventType":"t"}]}`, "events[1]: eventId is missing."},
		{`{"events":[{"stream":"s","eventId":"x","eventType":"t"}]}`, "events[0]: eventId is not a GUID."},
		{`{"events":[{"stream":"s","eventId":"00000000-0000-0000-0000-000000000000","eventType":"t"}]}`, "events[0]: the id of an event is zero"},
		{`{"events":[{"stream":"s",` + id + `}]}`, "events[0]: eventType is missing."},
		{`{"events":[{"stream":"s",` + id + `,"eventType":""}]}`, "events[0]: the type of an event is empty"},
		{`{"events":[{"stream":"s",` + id + `,"eventType":"t","data":1,"dataBase64":""}]}`, "events[0]: data and dataBase64 exclude each other."},
		{`{"events":[{"stream":"s",` + id + `,"eventType":"t","dataBase64":"AP8"}]}`, "events[0]: dataBase64 is not base64."},
		{`{"events":[` + ok + `,` + ok + `]}`, `events[1]: stream "s" gets the event id c322e299-cb73-4b47-97c5-5054f920746e twice`},
		{`{"events":[` + ok + `],"checks":[{"expectedVersion":1}]}`, "checks[0]: stream is missing."},
		{`{"events":[` + ok + `],"checks":[{"stream":"s"}]}`, "checks[0]: expectedVersion is missing."},
		{`{"events":[` + ok + `],"checks":[{"stream":"s","expectedVersion":true}]}`, "checks[0]: expectedVersion must be a number or a text."},
		{`{"events":[` + ok + `],"checks":[{"stream":"s","expectedVersion":"1"}]}`, "checks[0]: expectedVersion must be the number"},
		{`{"events":[` + ok + `],"checks":[{"stream":"s","expectedVersion":"any"}]}`, "checks[0]: expectedVersion must be the number"},
		{`{"events":[` + ok + `],"checks":[{"stream":"s","expectedVersion":-2}]}`, "checks[0]: expectedVersion must be the number"},
		{`{"events":[` + ok + `],"checks":[{"stream":"s","expectedVersion":1.5}]}`, "checks[0]: expectedVersion must be the number"},
		{`{"events":[` + ok + `],"checks":[{"stream":"s","expectedVersion":9223372036854775808}]}`, "checks[0]: expectedVersion must be the number"},
		{`{"events":[` + ok + `],"checks":[{"stream":"s","expectedVersion":9223372036854775807}]}`, `checks[0]: stream "s": the version 9223372036854775807 cannot be checked`},
		{`{"events":[` + ok + `],"checks":[{"stream":"s","expectedVersion":-3}]}`, `checks[0]: stream "s": the version -3 cannot be checked`},
		{`{"events":[{"stream":"s",` + id + `,"eventType":"t","tags":"a,b"}]}`, "events[0]: tags"},
		{`{"events":[{"stream":"s",` + id + `,"eventType":"t","tags":["a,b"]}]}`, "events[0]: $tags"},
		{`{"events":[{"stream":"s",` + id + `,"eventType":"t","tags":["a"],"metadata":[]}]}`, "events[0]: tags"},
		{`{"events":[{"stream":"s",` + id + `,"eventType":"t","tags":["a"],"metadata":{"$tags":["b"]}}]}`, "events[0]: tags"},
		{manyOf([]string{ok}, expects("a", "1"), expects("a", "1")), "checks[1]: Each stream can only appear once in consistency checks."},
	} {
		n.many(c.body).is(t, 400).says(t, c.text)
	}
	n.get("/streams/s", appJSON).is(t, 404)
}

// TestManyTable holds every state that a stream can have against everything that can be expected,
// of a stream that is written to and of one that is not.
func TestManyTable(t *testing.T) {
	states := []string{"never", "meta", "live", "soft", "gone"}
	const none, deleted, gone = "none", "deleted", "tombstoned"
	// What is actual where it does not hold, by state, then for a gone one that is written.
	type row = []any
	for _, c := range []struct {
		expected, told any
		actual         row
	}{
		{1, 1, row{none, none, nil, nil, gone, gone}},
		{0, 0, row{none, none, 1, 1, gone, gone}},
		{7, 7, row{none, none, 1, 1, gone, gone}},
		{`"none"`, none, row{nil, nil, 1, nil, nil, gone}},
		{-4, "exists", row{none, nil, nil, deleted, gone, gone}},
		{`"deleted"`, deleted, row{none, none, 1, nil, gone, gone}},
		{-6, gone, row{none, none, 1, 1, nil, gone}},
		{nil, "any", row{nil, nil, nil, nil, nil, gone}},
	} {
		n := newNode(t)
		for i, state := range states {
			for j, s := range []string{state, state + "-written"} {
				if i >= 2 {
					n.filled(s, 2)
				}
				switch state {
				case "meta":
					n.meta(s, `{"$maxAge":1000}`)
				case "soft":
					n.delete(s).is(t, 204)
				case "gone":
					n.delete(s, "ES-HardDelete", "True").is(t, 204)
				}
				want, written := c.actual[i+j*(i/4)], []string{n.to("other")}
				if j == 1 {
					written = append(written, n.to(s))
				}
				var checks []string
				index := any(0.0)
				if c.expected != nil {
					checks = append(checks, expects(s, fmt.Sprint(c.expected)))
				} else if index = nil; j == 0 {
					continue
				}
				a := n.many(manyOf(written, checks...))
				if want == nil {
					a.is(t, 201)
					if j == 1 {
						first := map[string]int64{"live": 2, "soft": 2}[state]
						check.Equal(t, parsed[doneMany](t, a).Streams[1], doneStream{s, first, first})
						n.get("/streams/"+s, appJSON).is(t, 200)
					}
					continue
				}
				var got map[string]any
				check.Must(t, json.Unmarshal([]byte(a.is(t, 409).has(t, "Content-Type", "application/json; charset=utf-8").body), &got))
				wanted := check.Value(json.Marshal([]any{map[string]any{"index": index, "stream": s, "expected": c.told, "actual": want}})).Must(t)
				check.Equal(t, string(check.Value(json.Marshal(got["checks"])).Must(t)), string(wanted))
				check.Equal(t, got["message"], any("Append failed due to consistency violations."))
			}
		}
	}
}

// TestManyRepeated sends writes again, whole, in part, and after appends to one stream.
func TestManyRepeated(t *testing.T) {
	n := newNode(t)
	a1, b1, b2, c1 := n.to("a"), n.to("b"), n.to("b"), n.to("c")
	first := parsed[doneMany](t, n.many(manyOf([]string{a1, b1, b2}, expects("x", "-1"))).is(t, 201))
	n.put("x", "{}")
	n.filled("b", 2)
	repeated := func(body string) {
		t.Helper()
		got := parsed[doneMany](t, n.many(body).is(t, 201))
		check.Equal(t, got.Repeated, true)
		got.Repeated = false
		check.Equal(t, fmt.Sprint(got), fmt.Sprint(first))
	}
	repeated(manyOf([]string{a1, b1, b2}, expects("x", "-1"))) // Whatever the check says now.
	repeated(manyOf([]string{a1, b1, b2}, expects("b", "-1"), expects("y", "7")))
	for _, c := range []struct {
		name   string
		events []string
		checks []string
		want   string
	}{
		{"half of a stream", []string{a1, b1, n.to("b")}, nil, "a:any:0 b:any:3"},
		{"one stream of two is new", []string{a1, c1}, nil, "a:any:0"},
		{"with a check", []string{a1, c1}, []string{expects("c", "-1"), expects("a", "-1")}, "a:none:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := parsed[notDone](t, n.many(manyOf(c.events, c.checks...)).is(t, 409))
			var told []string
			for _, v := range got.Checks {
				told = append(told, fmt.Sprintf("%s:%v:%v", v.Stream, v.Expected, v.Actual))
			}
			check.Equal(t, strings.Join(told, " "), c.want)
		})
	}
	n.get("/streams/c", appJSON).is(t, 404)

	// Appends to single streams and to several recognise one another.
	id1, id2 := n.id(), n.id()
	one := func(id string) string { return fmt.Sprintf(`[{"eventId":%q,"eventType":"T","data":{}}]`, id) }
	of := func(stream, id string) string {
		return fmt.Sprintf(`{"stream":%q,"eventId":%q,"eventType":"T","data":{}}`, stream, id)
	}
	n.batch("p", one(id1)).is(t, 201)
	n.batch("q", one(id2)).is(t, 201)
	check.Equal(t, parsed[doneMany](t, n.many(manyOf([]string{of("p", id1), of("q", id2)})).is(t, 201)).Repeated, true)
	n.batch("a", `[`+strings.ReplaceAll(a1, `"stream":"a",`, "")+`]`).is(t, 201).has(t, "Location", base+"/streams/a/0")
	// The same id in two streams is two events.
	check.Equal(t, parsed[doneMany](t, n.many(manyOf([]string{of("v", id1), of("w", id1)})).is(t, 201)).Repeated, false)
}

func TestManyLimits(t *testing.T) {
	n := newNode(t)
	events, checks := make([]string, api.MaxManyStreams), make([]string, api.MaxManyChecks)
	for i := range events {
		events[i], checks[i] = n.to(fmt.Sprint("s", i)), expects(fmt.Sprint("c", i), "-1")
	}
	got := parsed[doneMany](t, n.many(manyOf(events, checks...)).is(t, 201))
	check.Equal(t, len(got.Streams), api.MaxManyStreams)
	n.many(manyOf(append(events, n.to("more")), checks...)).is(t, 400).says(t, "events[1000]: at most 1000 streams are written to at once")
	n.many(manyOf(events[:1], append(checks, expects("more", "-1"))...)).is(t, 400).says(t, "checks[1000]: at most 1000 checks are made at once")

	sized := func(stream string, bytes int) string { // Of data and type.
		return fmt.Sprintf(`{"stream":%q,"eventId":%q,"eventType":"T","data":"%s"}`, stream, n.id(), strings.Repeat("x", bytes-1))
	}
	const most = event.MaxEventBytes
	n.many(manyOf([]string{sized("l", most)})).is(t, 201)
	n.many(manyOf([]string{n.to("m"), sized("m", most+1)})).is(t, 413).says(t, "Too large events received. Limit is 4mb")
	n.many(manyOf([]string{sized("m", most), sized("n", most), sized("m", most), sized("n", most), sized("m", 6)})).is(t, 413).
		says(t, "Too large events received. All events of one write together are limited to 16mb")
	n.get("/streams/m", appJSON).is(t, 404)
	n.many(manyOf([]string{sized("m", 3<<20), sized("n", most), sized("m", most), sized("n", most)})).is(t, 201)
	n.many(`{"events":[`+strings.Repeat(" ", 30_000_000)+`]}`).is(t, 413).says(t, "Too large events received. All events of one write together are limited to 16mb")
	small := newNode(t, func(o *httpapi.Options) { o.MaxAppendBytes = 100 })
	small.many(manyOf([]string{sized("a", 61), sized("b", 51)})).is(t, 413).says(t, "Too large events received. All events of one write together are limited to 100 bytes")
	small.many(manyOf([]string{sized("a", 51), sized("b", 51)})).is(t, 201)
}

// TestManyRights: written streams need the right to write, those that are only checked the right to
// read. Rights are looked at after the shape of a body and before its values.
func TestManyRights(t *testing.T) {
	n := newNode(t)
	for _, stream := range []string{"r", "w", "mr", "mw", "none"} {
		acl := map[string]any{"$r": []string{}, "$w": []string{}, "$mr": []string{}, "$mw": []string{}}
		acl["$"+stream] = "jane"
		n.meta(stream, string(check.Value(json.Marshal(map[string]any{"$acl": acl})).Must(t)))
	}
	for _, c := range []struct {
		name   string
		events []string
		checks []string
		status int
	}{
		{"may write", []string{"w", "open"}, nil, 201},
		{"may write, and checks it", []string{"w"}, []string{"w"}, 409},
		{"may only read", []string{"w", "r"}, nil, 401},
		{"may read what it checks", []string{"w"}, []string{"r"}, 201},
		{"may not read what it checks", []string{"open"}, []string{"none"}, 401},
		{"writes metadata", []string{"$$mw"}, nil, 201},
		{"may not write metadata", []string{"$$w"}, nil, 401},
		{"reads metadata", []string{"w"}, []string{"$$mr"}, 409},
		{"may not read metadata", []string{"w"}, []string{"$$r"}, 401},
		{"system stream", []string{"w", "$x"}, nil, 401},
		{"all", []string{"w", "$all"}, nil, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			var events, checks []string
			for _, s := range c.events {
				events = append(events, n.to(s))
			}
			for _, s := range c.checks {
				checks = append(checks, expects(s, "-1"))
			}
			jane := as("jane", "changeit")
			jane.Set("Content-Type", appJSON)
			a := n.do("POST", "/streams", manyOf(events, checks...), jane).is(t, c.status)
			if c.status == 401 {
				check.Equal(t, a.body, "Unauthorized")
			}
		})
	}
	n.many(manyOf([]string{n.to("$all")})).is(t, 401)
	anyone := with("Content-Type", appJSON)
	n.do("POST", "/streams", `{"events":[{"stream":"r","eventId":1}]}`, anyone).is(t, 400)
	n.do("POST", "/streams", `{"events":[{"stream":"r","eventId":"x"}]}`, anyone).is(t, 401)
	n.do("POST", "/streams", `{"events":[{"stream":"open","eventId":"x"}],"checks":[{"stream":"none","expectedVersion":-3}]}`, anyone).is(t, 401)
	n.do("POST", "/streams", `{"events":[{"stream":"open","eventId":"x"}]}`, anyone).is(t, 400)
}

// TestManyIsTold: requests that change who may do what are recorded, all are counted, and the log
// says how much was written, but not to which streams.
func TestManyIsTold(t *testing.T) {
	noted, registry := &notes{}, new(stats.Registry)
	log, lines := logged()
	n := newNode(t, func(o *httpapi.Options) {
		o.Activity, o.Many, o.Logger, o.LogRequests = noted, api.NewManyMetrics(registry), log, true
	})
	n.many(manyOf([]string{n.to("secret"), n.to("b"), n.to("b")})).is(t, 201)
	if text := lines(); !strings.Contains(text, " streams=2 events=3") || strings.Contains(text, "secret") {
		t.Errorf("the log has %s", text)
	}
	check.Equal(t, fmt.Sprint(noted.taken()), "[]")
	meta := manyOf([]string{n.to("a"), n.to("$$a")})
	n.many(meta).is(t, 201)
	n.many(meta).is(t, 201)
	n.do("POST", "/streams", meta, with("Content-Type", appJSON)).is(t, 201)
	n.do("POST", "/streams", manyOf([]string{n.to("$settings")}), with("Content-Type", appJSON)).is(t, 401)
	n.many(manyOf([]string{n.to("$$a")}, expects("a", "7"))).is(t, 409)
	check.Equal(t, strings.Join(noted.taken(), "|"), "admin POST /streams 201 from 192.0.2.1:1234|admin POST /streams 201 from 192.0.2.1:1234|"+
		" POST /streams 201 from 192.0.2.1:1234| POST /streams 401 from 192.0.2.1:1234|admin POST /streams 409 from 192.0.2.1:1234")
	noted.closed = true
	n.many(meta).is(t, 503)
	n.many("{").is(t, 400)
	got := map[string]string{}
	registry.Each(func(s stats.Sample) {
		if len(s.Labels) > 0 && s.Labels[0].Value != api.DoorHTTP {
			return
		}
		key := s.Name
		if len(s.Labels) > 0 {
			key = s.Labels[1].Value
		}
		got[key] = fmt.Sprint(s.Value)
		if s.Kind == stats.HistogramKind {
			got[key] = fmt.Sprint(s.Histogram.Count, s.Histogram.Sum)
		}
	})
	check.Equal(t, fmt.Sprint(got), "map[annals_multistream_checks:5 1 annals_multistream_streams:5 9 refused:2 repeated:2 violated:1 written:2]")
}

// TestManyAtOnce sends crossed requests at once. Each answer must be what the final log says: a
// request that was done lies in it as a whole, with the numbers that were answered, and its checks
// held where it lies. One that was not done rests on what the log held at the position
// in its answer.
func TestManyAtOnce(t *testing.T) {
	const streams, workers, requests = 20, 50, 20
	n := newNode(t)
	type outcome struct {
		written []string         // streams of its events
		checks  map[string]int64 // numbers of last events
		done    *doneMany
		not     *notDone
	}
	outcomes := make([][]outcome, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			known := map[string]int64{}
			for i := range requests {
				o := outcome{checks: map[string]int64{}}
				var events, checks []string
				order := r.Perm(streams)
				for _, s := range order[:2+r.IntN(3)] {
					name := fmt.Sprint("s", s)
					o.written = append(o.written, name)
					events = append(events, fmt.Sprintf(`{"stream":%q,"eventId":"00000000-0000-4000-9000-%04x%04x%04x","eventType":"T"}`, name, w, i, s))
				}
				for _, s := range order[1 : 1+r.IntN(4)] {
					name := fmt.Sprint("s", s)
					last, ok := known[name]
					if !ok {
						last = event.NoStream
					}
					o.checks[name] = last
					checks = append(checks, expects(name, fmt.Sprint(last)))
				}
				a := n.do("POST", "/streams", manyOf(events, checks...), admin("Content-Type", appJSON))
				switch a.status {
				case http.StatusCreated:
					o.done = new(doneMany)
					if err := json.Unmarshal([]byte(a.body), o.done); err != nil {
						t.Error(err)
					}
					for _, s := range o.done.Streams {
						known[s.Stream] = s.Last
					}
				case http.StatusConflict:
					o.not = new(notDone)
					if err := json.Unmarshal([]byte(a.body), o.not); err != nil {
						t.Error(err)
					}
					for _, v := range o.not.Checks {
						if last, ok := v.Actual.(float64); ok {
							known[v.Stream] = int64(last)
						}
					}
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
				outcomes[w] = append(outcomes[w], o)
			}
		})
	}
	wg.Wait()

	log := n.store.Log()
	lastAt := func(stream string, end int) int64 { // Of the events before an index of the log.
		last := int64(event.NoStream)
		for _, e := range log[:end] {
			if e.Stream == stream {
				last = e.Number
			}
		}
		return last
	}
	done, events := 0, 0
	for _, o := range slices.Concat(outcomes...) {
		if o.done != nil {
			done++
			events += len(o.written)
			end := 0
			for end < len(log) && log[end].Position <= o.done.Position {
				end++
			}
			begin := end - len(o.written)
			for i, name := range o.written {
				check.Equal(t, log[begin+i].Stream, name, "the events of one request lie together")
				check.Equal(t, o.done.Streams[i], doneStream{name, log[begin+i].Number, log[begin+i].Number})
			}
			for name, last := range o.checks {
				check.Equal(t, lastAt(name, begin), last, "a check did not hold where the request lies")
			}
			continue
		}
		end := 0
		for end < len(log) && log[end].Position <= o.not.Position {
			end++
		}
		wrong := map[string]any{}
		for name, last := range o.checks {
			if actual := lastAt(name, end); actual != last {
				wrong[name] = actual
			}
		}
		check.Equal(t, len(o.not.Checks), len(wrong), "violations")
		for _, v := range o.not.Checks {
			actual, expected := wrong[v.Stream], any(v.Actual)
			if v.Actual == "none" {
				expected = float64(event.NoStream)
			}
			check.Equal(t, fmt.Sprint(actual), fmt.Sprint(expected), "actual number of "+v.Stream)
		}
	}
	check.Equal(t, len(log), events, "events of all requests that were done")
	if done == 0 || done == workers*requests {
		t.Errorf("%d of %d requests were done: nothing was contended", done, workers*requests)
	}
}
