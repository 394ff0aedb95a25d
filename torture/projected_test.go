package torture

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/internal/check"
)

// projected makes a run whose log has events that are copied, and others, and a
// projector that found what it should. It returns the projector and the ledger.
func projected(t *testing.T) (*scene, *projector, *ledger) {
	t.Helper()
	s := newScene(t)
	j := s.client()
	var log []entry
	add := func(stream string, number int64) {
		at := int64(len(log))
		log = append(log, s.shown(s.wrote(j, stream, anyVersion, number, at, at+1), stream, number))
	}
	add("spread-1", 0)
	add("register-1-0", 0)
	add("queue", 0)
	add("spread-1", 1)
	add("shed-1", 0)
	add("spread-2", 0)
	s.log("node 1", log...)
	l := newLoad(1, nil, s.hist, s.book, &targets{})
	p := newProjector(l, true)
	for _, of := range []string{"0@torture-x-spread-1", "0@torture-x-queue", "1@torture-x-spread-1", "0@torture-x-spread-2"} {
		n := int64(len(p.copies))
		p.copies = append(p.copies, copied{number: n, kind: copyType, n: n + 1, of: of})
	}
	p.state = 4
	for _, to := range []string{"0@torture-x-spread-1", "0@torture-x-register-1-0", "0@torture-x-queue", "1@torture-x-spread-1", "0@torture-x-shed-1", "0@torture-x-spread-2"} {
		_, origin, _ := strings.Cut(to, "@")
		p.links = append(p.links, categoryLink{number: int64(len(p.links)), origin: origin, to: to})
	}
	return s, p, newLedger(s.hist, s.book)
}

func TestProjected(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(p *projector)
		text  string // of the violation; empty: none
	}{
		{"all is well", func(*projector) {}, ""},
		{"a link of another run", func(p *projector) {
			p.links = append(p.links, categoryLink{6, "torture-y-spread-1", "0@torture-y-spread-1"})
		}, ""},
		{"what may be removed is gone", func(p *projector) { p.links[4].to = "4@$ce-torture" }, ""},
		{"by category is not ours", func(p *projector) { p.linked, p.links = false, nil }, ""},
		{"a copy is missing at the end", func(p *projector) { p.copies = p.copies[:3] }, "1 events of the log are missing from 0@torture-x-spread-2 on, 3 are there"},
		{"a copy is missing", func(p *projector) { p.copies[1].of = p.copies[2].of }, "event 1 is of 1@torture-x-spread-1 (which is also event 2), it should be of 0@torture-x-queue"},
		{"copies change places", func(p *projector) { p.copies[1].of, p.copies[2].of = p.copies[2].of, p.copies[1].of },
			"event 1 is of 1@torture-x-spread-1, it should be of 0@torture-x-queue (which is also event 2)"},
		{"an event is copied twice", func(p *projector) { p.copies = append(p.copies, copied{4, copyType, 5, "0@torture-x-spread-2"}) },
			"1 events are too many, from 0@torture-x-spread-2 on (which is also event 3)"},
		{"a count begins again", func(p *projector) { p.copies[2].n = 1 }, "has the count 1"},
		{"a number is missing", func(p *projector) { p.copies[2].number = 3 }, "number 2 and count 3 should be there"},
		{"another type", func(p *projector) { p.copies[0].kind = "x" }, `is of type "x"`},
		{"the state counts otherwise", func(p *projector) { p.state = 5 }, "its state has counted 5 events, the log has 4"},
		{"a link is missing", func(p *projector) {
			p.links = append(p.links[:1], p.links[2:]...)
			for i := range p.links {
				p.links[i].number = int64(i)
			}
		}, "event 1 is of 0@torture-x-queue, it should be of 0@torture-x-register-1-0"},
		{"a link leads elsewhere", func(p *projector) { p.links[0].to = "0@torture-x-spread-2" }, "link 0 says that it is of torture-x-spread-1, and leads to 0@torture-x-spread-2"},
		{"a link has a wrong number", func(p *projector) { p.links[5].number = 6 }, "number 6 where 5 of the category should be"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, p, l := projected(t)
			c.spoil(p)
			p.check(l)
			if c.text == "" {
				s.expect()
				return
			}
			s.expect(kindProjected)
			if list, _ := s.find.list(); len(list) == 0 || !strings.Contains(list[0].Text, c.text) {
				t.Errorf("got %+v", list)
			}
		})
	}
}

// fakeProjections answers by method and path; the last answer of a list is repeated.
type fakeProjections struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   []string
}

func (f *fakeProjections) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := r.Method + " " + r.URL.Path
	f.asked = append(f.asked, key)
	status, body := http.StatusNotFound, ""
	if list := f.answers[key]; len(list) > 0 {
		if _, err := fmt.Sscanf(list[0], "%d", &status); err != nil {
			return nil, err
		}
		_, body, _ = strings.Cut(list[0], " ")
		if len(list) > 1 {
			f.answers[key] = list[1:]
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestProjector: what is refused for now is asked for again, and everything is waited for.
func TestProjector(t *testing.T) {
	const of = "/projection/torture-x-copy"
	const done100 = `200 {"status":"Running","progress":100,"position":"C:9/P:9"}`
	answers := func() map[string][]string {
		return map[string][]string{
			"POST /projections/continuous":    {"503 ", "409 "},
			"PUT " + of + "/config":           {"200 {}"},
			"POST " + of + "/command/enable":  {"500 ", "200 {}"},
			"POST " + of + "/command/disable": {"503 ", "200 {}"},
			"GET " + of:                       {"503 ", `200 {"status":"Running","progress":50}`, `200 {"status":"Running","progress":100,"writePendingEventsAfterCheckpoint":1}`, done100},
			"GET " + of + "/state":            {`200 {"n":4}`},
			"GET /streams/copies-torture-x-/0/forward/1000": {`200 {"headOfStream":true,"entries":[{"eventType":"copied","eventNumber":1,"positionEventNumber":1,"data":"{\"n\":2,\"of\":\"1@b\"}"},` +
				`{"eventType":"copied","eventNumber":0,"positionEventNumber":0,"data":"{\"n\":1,\"of\":\"0@a\"}"}]}`},
		}
	}
	for _, c := range []struct {
		name   string
		change func(answers map[string][]string)
		create string // error
		kinds  []string
	}{
		{"all is well", func(map[string][]string) {}, "", nil},
		{"no projections", func(a map[string][]string) { delete(a, "POST /projections/continuous") }, "create torture-x-copy: ", nil},
		{"a bad configuration", func(a map[string][]string) { a["PUT "+of+"/config"] = []string{"400 bad"} }, "configure torture-x-copy: ", nil},
		{"faulted", func(a map[string][]string) {
			a["GET "+of] = []string{`200 {"status":"Faulted (Enabled)","stateReason":"x"}`}
		}, "", []string{kindProjectionStuck}},
		{"no state", func(a map[string][]string) { a["GET "+of+"/state"] = []string{"404 "} }, "", []string{kindAnswer}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				fake := &fakeProjections{answers: answers()}
				c.change(fake.answers)
				list := &targets{}
				node := Target{Name: "node 1", Base: "http://node"}
				list.set([]Target{node})
				p := newProjector(newLoad(1, newHTTP(fake), s.hist, s.book, list), false)
				err := p.create(t.Context())
				if c.create != "" {
					check.Says(t, err, c.create)
					return
				}
				check.Must(t, err)
				p.drain(t.Context())
				p.read(t.Context(), node)
				s.expect(c.kinds...)
				if want := []copied{{0, copyType, 1, "0@a"}, {1, copyType, 2, "1@b"}}; fmt.Sprint(p.copies) != fmt.Sprint(want) {
					t.Errorf("got %v", p.copies)
				}
				if c.kinds == nil && p.state != 4 {
					t.Errorf("state %d", p.state)
				}
			})
		})
	}
}

func TestProjectorScript(t *testing.T) {
	_, p, _ := projected(t)
	for _, part := range []string{`startsWith("torture-x-spread-")`, `!== "torture-x-queue"`, `emit("copies-torture-x-", "copied", `, "  tortured: function"} {
		check.Contains(t, p.script(), part, "is not in")
	}
	for stream, is := range map[string]bool{
		"torture-x-spread-7": true, "torture-x-queue": true, "torture-x-queued": false, "torture-x-links": false, "torture-x-shed-1": false, "copies-torture-x-": false,
	} {
		if p.isCopied(stream) != is {
			t.Errorf("%s is copied: %t", stream, !is)
		}
	}
}
