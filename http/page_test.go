package httpapi_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// large is an event of so many bytes, of which the first tell it from others.
func large(i, bytes int) string {
	return fmt.Sprintf(`{"n":%d,"x":"%s"}`, i, strings.Repeat(string(rune('a'+i)), bytes))
}

// fillLarge appends events of 3 MiB, more than a page holds, and links to them.
func fillLarge(n *node, count int) {
	for i := range count {
		n.put("s", large(i, 3<<20))
		n.one("/streams/links", octets, fmt.Sprintf("%d@s", i), "ES-EventType", "$>").is(n.t, 201)
	}
}

// TestLargePages: pages that are not held whole are the same as others.
func TestLargePages(t *testing.T) {
	const count = 6
	n := newNode(t)
	fillLarge(n, count)
	server := httptest.NewServer(n.handler)
	defer server.Close()
	get := func(method, path, accept string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		check.Must(t, err)
		r.Header = admin("Accept", accept, "ES-ResolveLinkTos", "true")
		answer := check.Value(http.DefaultClient.Do(r)).Must(t)
		body, err := io.ReadAll(answer.Body)
		check.Must(t, errors.Join(err, answer.Body.Close()))
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", path, answer.Status)
		}
		return answer, string(body)
	}
	for _, path := range []string{"/streams/s/head/backward/20", "/streams/s/0/forward/20", "/streams/links/head/backward/20", "/streams/$all/head/backward/20"} {
		isLinks, isAll := strings.Contains(path, "links"), strings.Contains(path, "$all")
		answer, body := get("GET", path+"?embed=body", atomJSON)
		if answer.ContentLength >= 0 || answer.Header.Get("Content-Type") != atomJSON+"; charset=utf-8" {
			t.Errorf("%s: length %d, type %q", path, answer.ContentLength, answer.Header.Get("Content-Type"))
		}
		var f struct {
			Entries []struct {
				PositionStreamID string
				Data             string
			}
		}
		check.Must(t, json.Unmarshal([]byte(body), &f), path)
		at := count - 1
		for _, e := range f.Entries {
			if isAll && e.PositionStreamID != "s" {
				continue // The link before it has the same data.
			}
			check.Equal(t, e.Data, large(at, 3<<20), path, "event", at, "......")
			at--
		}
		check.Equal(t, at, -1, path, len(f.Entries), "entries")
		if isLinks || isAll {
			continue
		}
		_, body = get("GET", path+"?embed=content", atomXML)
		var atom struct {
			Entries []struct {
				Data struct {
					N int    `xml:"n"`
					X string `xml:"x"`
				} `xml:"content>data"`
			} `xml:"entry"`
		}
		check.Must(t, xml.Unmarshal([]byte(body), &atom), path)
		for i, e := range atom.Entries {
			if e.Data.N != count-1-i || len(e.Data.X) != 3<<20 {
				t.Errorf("%s: entry %d is event %d of %d bytes", path, i, e.Data.N, len(e.Data.X))
			}
		}
		check.Equal(t, len(atom.Entries), count, path+" entries")
		if answer, body := get("HEAD", path+"?embed=body", atomJSON); body != "" || answer.Header.Get("Content-Type") == "" {
			t.Errorf("HEAD %s: type %q, body %.20q", path, answer.Header.Get("Content-Type"), body)
		}
	}
	// What the entries do not show is not read.
	answer, body := get("GET", "/streams/s/head/backward/20", atomJSON)
	if answer.ContentLength != int64(len(body)) || strings.Count(body, `"title"`) != count+1 {
		t.Errorf("a page without data has length %d, %d bytes", answer.ContentLength, len(body))
	}
}

// TestLargeMessages: a message that is bare is handed out whole, or as dead when the
// event was removed meanwhile.
func TestLargeMessages(t *testing.T) {
	n, subs := newSubscriber(t)
	n.put("s", `{"n":0}`, `{"n":1}`)
	g := subs.define("s", "g")
	for number := range int64(2) {
		e := check.Value(n.store.ReadEvent(t.Context(), "s", number, nil)).Must(t)
		e.Data, e.Bare = nil, true
		g.messages = append(g.messages, subscription.Message{ID: e.ID, Event: &e})
	}
	n.store.lose(event.ErrEventNotFound, "s", 1)
	body := n.get("/subscriptions/s/g/2?embed=body", "application/vnd.eventstore.competingatom+json").is(t, 200).body
	var f struct {
		Entries []struct {
			Title     string
			EventType *string
			Data      *string
		}
	}
	if err := json.Unmarshal([]byte(body), &f); err != nil || len(f.Entries) != 2 {
		t.Fatalf("%v: %s", err, body)
	}
	for _, e := range f.Entries {
		switch isDead := e.EventType == nil && e.Data == nil; {
		case e.Title == "1@s" && isDead:
		case e.Title == "0@s" && !isDead && *e.Data == `{"n":0}`:
		default:
			t.Errorf("entry %+v", e)
		}
	}
}

// TestLargePageScavenged: what a scavenge removed while its page was written is left out, first,
// last or in between.
func TestLargePageScavenged(t *testing.T) {
	n := newNode(t)
	fillLarge(n, 6)
	n.store.lose(event.ErrEventNotFound, "s", 5, 2, 0)
	var f struct{ Entries []struct{ EventNumber int } }
	body := n.get("/streams/s/5/backward/6?embed=body", atomJSON).is(t, 200).body
	check.Must(t, json.Unmarshal([]byte(body), &f))
	var got []int
	for _, e := range f.Entries {
		got = append(got, e.EventNumber)
	}
	check.Deep(t, got, []int{4, 3, 1})
	for path, want := range map[string]int{"/streams/s/5/backward/6": 6, "/streams/s/5/backward/6?embed=content": 3} {
		body = n.get(path, "application/atom+xml").is(t, 200).body
		check.Equal(t, strings.Count(body, "<entry>"), want, path)
	}
}

// TestLargePageThatCannotBeRead: before anything is sent the client gets an error. Afterwards the
// connection breaks, so that the client does not take a part for the whole.
func TestLargePageThatCannotBeRead(t *testing.T) {
	n := newNode(t)
	fillLarge(n, 6)
	server := httptest.NewServer(n.handler)
	defer server.Close()
	get := func(path string) (status int, err error) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+path, nil)
		check.Must(t, err)
		r.Header = admin("Accept", atomJSON)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, errors.Join(err, answer.Body.Close())
	}
	n.store.lose(event.ErrNotReady, "s", 4)
	if status, err := get("/streams/s/0/forward/5?embed=body"); status != http.StatusServiceUnavailable || err != nil {
		t.Errorf("the entry written first: %d, %v", status, err)
	}
	n.store.lose(event.ErrNotReady, "s", 0)
	if status, err := get("/streams/s/5/backward/6?embed=body"); status != http.StatusOK || err == nil {
		t.Errorf("the entry written last: %d, %v", status, err)
	}
}
