package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	adminapi "github.com/annalsdb/annals/http/admin"
	"github.com/annalsdb/annals/internal/check"
)

// memRedactions remembers what it was asked for and answers what a test sets.
type memRedactions struct {
	fail  error
	asked []redact.Request
	lock  chunklock.Lock
}

func (r *memRedactions) Redact(_ context.Context, q redact.Request) ([]redact.Outcome, error) {
	r.asked = append(r.asked, q)
	var all []redact.Outcome
	for i, e := range q.Events {
		all = append(all, redact.Outcome{Event: e.String(), Position: int64(i) * 100, Chunk: "chunk-000000.000000", Status: redact.StatusRedacted})
	}
	return all, r.fail
}

func (r *memRedactions) Positions(stream string, number int64) ([]redact.Position, error) {
	if stream == "none" {
		return nil, r.fail
	}
	return []redact.Position{{Position: 7, File: "chunk-000000.000001", Format: 2, Complete: true, Offset: number}}, r.fail
}

func (r *memRedactions) Session(string) (redact.Session, error) {
	hold, err := r.lock.TryLock()
	if err != nil {
		return nil, redact.ErrLocked
	}
	return switcher{hold}, nil
}

// switcher is a session in which every file is switched.
type switcher struct{ hold *chunklock.Hold }

func (switcher) Switch(context.Context, string, string) error { return nil }
func (s switcher) Close()                                     { s.hold.Unlock() }

func newRedactor(t testing.TB) (*node, *memRedactions) {
	r := new(memRedactions)
	n := newNode(t, func(o *httpapi.Options) { o.Redactions = r })
	return n, r
}

func TestRedact(t *testing.T) {
	n, r := newRedactor(t)
	post := func(body string, header ...string) answer {
		t.Helper()
		h := admin()
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return n.do(http.MethodPost, "/admin/redact", body, h)
	}
	for _, c := range []struct {
		name, accept, body string
		status             int
		want               string
	}{
		{"text", "", `{"events":["1@a","2@b@c"]}`, 200, "1@a: redacted, position 0, chunk-000000.000000\n2@b@c: redacted, position 100, chunk-000000.000000"},
		{"json", "application/json", `{"events":["1@a"],"reason":"r","dryRun":false}`, 200, "{\n  \"events\": [\n    {\n      \"event\": \"1@a\",\n      \"position\": 0,\n      \"chunk\": \"chunk-000000.000000\",\n      \"status\": \"redacted\"\n    }\n  ]\n}"},
		{"metadata", "", `{"events":["1@a"],"metadata":true}`, 200, "1@a: redacted, position 0, chunk-000000.000000"},
		{"xml", "text/xml", `{"events":["1@a"]}`, 200, `<?xml version="1.0" encoding="utf-8"?><RedactResultDto><Events><Event><Event>1@a</Event><Position>0</Position><Chunk>chunk-000000.000000</Chunk><Status>redacted</Status></Event></Events></RedactResultDto>`},
		{"no body", "", ``, 400, `The body must be an object like {"events":["0@stream"],"reason":"","dryRun":false}: EOF`},
		{"misspelt", "", `{"events":["1@a"],"dry-run":true}`, 400, `The body must be an object like {"events":["0@stream"],"reason":"","dryRun":false}: unknown field "dry-run"`},
		{"two objects", "", `{"events":["1@a"]}{}`, 400, "The body must end after the JSON object."},
		{"no number", "", `{"events":["a"]}`, 400, `"a" is not of the form number@stream`},
		{"too many", "", `{"events":["` + strings.Repeat(`1@a","`, redact.MaxEvents) + `1@a"]}`, 400, redact.ErrTooMany.Error()},
		{"too large", "", `{"events":["1@` + strings.Repeat("a", 1<<20) + `"]}`, 413, "Too large a list of events. Limit is 1mb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.asked = nil
			a := post(c.body, "Accept", c.accept)
			if a.status != c.status || string(a.body) != c.want {
				t.Fatalf("%d %s, want %d %s", a.status, a.body, c.status, c.want)
			}
			if c.status == 200 {
				check.Equal(t, r.asked[0].Metadata, c.name == "metadata", "metadata")
			}
			if c.status != 200 && len(r.asked) > 0 {
				t.Errorf("asked for %+v", r.asked)
			}
		})
	}
	for _, c := range []struct {
		fail   error
		status int
		want   string
	}{
		{&redact.Refused{Events: []string{"0@a: no", "0@b: neither"}}, 400, "0@a: no\n0@b: neither"},
		{redact.ErrLocked, 400, "Failed to acquire lock for redaction."},
		{redact.ErrInMemory, 400, "Redaction is not supported on in-memory databases"},
		{redact.ErrNoEvents, 400, "no events are named"},
		{&redact.Unfinished{Err: errors.New("no quorum")}, 500, "the redaction is not finished and continues in the background: no quorum"},
		{event.ErrNotReady, 503, "Server Is Not Ready"},
		{fmt.Errorf("x: %w", event.ErrDiskFull), 503, "Server Is Out Of Disk Space"},
	} {
		r.fail = c.fail
		a := post(`{"events":["1@a"]}`)
		if a.status != c.status || string(a.body) != c.want {
			t.Errorf("%v: %d %s", c.fail, a.status, a.body)
		}
	}
}

// TestRedactionSocket uses the calls of a tool.
func TestRedactionSocket(t *testing.T) {
	r := new(memRedactions)
	s := httptest.NewServer(adminapi.RedactionSocket(r, func(*http.Request) string { return "uid 7" }))
	defer s.Close()
	post := func(path, body string) (int, string) {
		t.Helper()
		a, err := http.Post(s.URL+path, "application/json", strings.NewReader(body))
		check.Must(t, err)
		b, err := io.ReadAll(a.Body)
		if err = errors.Join(err, a.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return a.StatusCode, strings.Join(strings.Fields(string(b)), " ")
	}
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/redaction/positions", `{"event":"3@s"}`, 200, `{ "positions": [ { "logPosition": 7, "fileName": "chunk-000000.000001", "chunkVersion": 2, "isComplete": true, "rawPosition": 3 } ] }`},
		{"/redaction/positions", `{"event":"3@none"}`, 200, `{ "positions": [] }`},
		{"/redaction/positions", `{"event":"s"}`, 400, `"s" is not of the form number@stream`},
		{"/redaction/positions", ``, 400, `The body must be an object like {"event":"0@stream"}.`},
		{"/admin/redact", `{"events":["1@a"]}`, 200, `{ "events": [ { "event": "1@a", "position": 0, "chunk": "chunk-000000.000000", "status": "redacted" } ] }`},
		{"/admin/redact", `{"events":["a"]}`, 400, `"a" is not of the form number@stream`},
		{"/other", ``, 404, `404 page not found`},
	} {
		if status, body := post(c.path, c.body); status != c.status || body != c.want {
			t.Errorf("%s %s: %d %s, want %d %s", c.path, c.body, status, body, c.status, c.want)
		}
	}
	check.Equal(t, r.asked[len(r.asked)-1].User, "uid 7", "asked by")
	in, out := io.Pipe()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/redaction/switch", in)
	check.Must(t, err)
	a, err := http.DefaultClient.Do(q)
	if err != nil || a.StatusCode != 200 {
		t.Fatal(a, err)
	}
	lines := bufio.NewScanner(a.Body)
	if !lines.Scan() || lines.Text() != `{"result":"Locked"}` {
		t.Fatal(lines.Text())
	}
	if _, err := r.lock.TryLock(); !errors.Is(err, event.ErrChunksLocked) {
		t.Error("the lock is free within a session")
	}
	if status, body := post("/redaction/switch", ""); status != 400 || body != redact.ErrLocked.Error() {
		t.Errorf("a second session: %d %s", status, body)
	}
	check.Must(t, check.Err(io.WriteString(out, "no object\n")))
	if !lines.Scan() || !strings.Contains(lines.Text(), `"UnexpectedError"`) {
		t.Error(lines.Text())
	}
	check.Must(t, check.Err(io.WriteString(out, `{"target":"chunk-000000.000000","new":"x.tmp"}`+"\n")))
	if !lines.Scan() || lines.Text() != `{"result":"Success"}` {
		t.Error(lines.Text())
	}
	check.Must(t, errors.Join(out.Close(), a.Body.Close()))
	for {
		hold, err := r.lock.TryLock()
		if err == nil {
			hold.Unlock()
			break
		}
		check.Must(t, t.Context().Err(), "the lock is not free behind the session")
	}
}
