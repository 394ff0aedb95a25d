package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A tail whose nodes break off, stop or are not ready resumes at another one, and gives each event
// once.
func TestTail(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	answers := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { fmt.Fprint(w, "retry: 2000\n\nevent: live\ndata: {}\n\n") },
		func(w http.ResponseWriter) {
			fmt.Fprint(w, ":\n\nid: 0\ndata: {\"a\":0}\n\nid: 1\ndata: {\"a\":1}\n\nid: 2\ndata: {\"cut")
		},
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		func(w http.ResponseWriter) {
			fmt.Fprint(w, "id: 2\ndata: {\"a\":2}\n\nevent: end\ndata: {\"reason\":\"shutdown\"}\n\n")
		},
		func(w http.ResponseWriter) {
			fmt.Fprint(w, "event: progress\nid: 7\ndata: {}\n\nevent: deleted\ndata: {}\n\n")
		},
		func(w http.ResponseWriter) { fmt.Fprint(w, "event: gone\ndata: {}\n\n") },
	}
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.RawQuery+" "+r.Header.Get("Last-Event-ID"))
		if r.URL.Path != "/streams/s" || r.Header.Get("Accept") != "text/event-stream" || len(asked) > len(answers) {
			t.Errorf("asked for %s, %v", r.URL, r.Header)
			return
		}
		answers[len(asked)-1](w)
	})
	one, two := httptest.NewServer(serve), httptest.NewServer(serve)
	defer one.Close()
	defer two.Close()
	c, err := New(Options{Nodes: []string{one.URL, two.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	for m, err := range c.Tail(ctx, "s", TailOptions{From: End, Types: []string{"T"}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(m.Kind+string(m.ID)+string(m.Data)))
	}
	if want := `[live{} 0{"a":0} 1{"a":1} 2{"a":2} progress7{} deleted{} gone{}]`; fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	want := "[from=end&types=T  from=start&types=T  from=start&types=T 1 from=start&types=T 1 from=start&types=T 2 from=start&types=T 7]"
	if fmt.Sprint(asked) != want {
		t.Errorf("asked %v\nwant  %s", asked, want)
	}
}

// carrier carries requests without a network.
type carrier func(r *http.Request) (io.Reader, error)

func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := c(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Status: "200 OK", Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
}

// A node that says nothing is left after some time, and no node at all is reported.
func TestTailStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hosts []string
		c, err := New(Options{Nodes: []string{"a:1", "b:1"}, Transport: carrier(func(r *http.Request) (io.Reader, error) {
			hosts = append(hosts, r.URL.Host)
			if r.URL.Host == "b:1" {
				return strings.NewReader("id: 1\ndata: {}\n\nevent: end\ndata: {}\n\n"), nil
			}
			silent, w := io.Pipe()
			context.AfterFunc(r.Context(), func() { w.CloseWithError(r.Context().Err()) })
			return io.MultiReader(strings.NewReader("id: 0\ndata: {}\n\n"), silent), nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		begun, n := time.Now(), 0
		for m, err := range c.Tail(t.Context(), "s", TailOptions{}) {
			if n++; err != nil {
				t.Error(m, err)
			}
		}
		if took := time.Since(begun); n != 3 || took < tailStall || took > tailStall+time.Second {
			t.Errorf("%d messages of %q after %v", n, hosts, took)
		}

		refused := errors.New("connection refused")
		if c, err = New(Options{Transport: carrier(func(*http.Request) (io.Reader, error) { return nil, refused })}); err != nil {
			t.Fatal(err)
		}
		begun, n = time.Now(), 0
		for _, err := range c.Subscribe(t.Context(), "s", TailOptions{}) {
			if n++; !errors.Is(err, ErrUnavailable) || !errors.Is(err, refused) {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(begun); n != 1 || took < defaultRetryFor || took > defaultRetryFor+longestPause {
			t.Errorf("%d errors after %v", n, took)
		}
	})
}

// What a node refuses is reported, and a limit holds for all connections together.
func TestTailEnds(t *testing.T) {
	tries := 0
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("from") == "x" {
			http.Error(w, "'x' is not valid from", http.StatusBadRequest)
			return
		}
		tries++
		fmt.Fprintf(w, "id: %d\ndata: {}\n\n", tries)
	}))
	defer node.Close()
	c, err := New(Options{Nodes: []string{node.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	n := 0
	for _, err := range c.Tail(t.Context(), "s", TailOptions{Limit: 2}) {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 2 || tries != 2 {
		t.Errorf("%d events of %d connections", n, tries)
	}
	for _, err := range c.Tail(t.Context(), "s", TailOptions{From: "x"}) {
		if !HasStatus(err, http.StatusBadRequest) {
			t.Errorf("%v", err)
		}
	}
}

// A subscription gives events alone, with their places, and says why it ends.
func TestSubscribe(t *testing.T) {
	const event = "id: 7\ndata: {\"eventId\":\"x\",\"eventNumber\":3,\"streamId\":\"t\",\"data\":\"{\\\"a\\\":5}\"}\n\nevent: live\ndata: {}\n\n"
	for _, c := range []struct {
		name, last string
		want       error
	}{
		{"a tombstone", "gone", ErrDeleted}, {"withdrawn right", "denied", ErrAccessDenied}, {"end", "end", nil},
	} {
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Last-Event-ID") != "6" || r.URL.RawQuery != "" {
				t.Errorf("%s: %s, %v", c.name, r.URL, r.Header)
			}
			fmt.Fprintf(w, "%sevent: %s\ndata: {}\n\n", event, c.last)
		}))
		client, err := New(Options{Nodes: []string{node.URL}})
		if err != nil {
			t.Fatal(err)
		}
		var got []Recorded
		var last error
		for e, err := range client.Subscribe(t.Context(), "s", TailOptions{After: AtNumber(6)}) {
			if last = err; err == nil {
				got = append(got, e)
			}
		}
		var data struct{ A int }
		if len(got) != 1 || got[0].Place != "7" || got[0].Number != 3 || got[0].Stream != "t" || got[0].Decode(&data) != nil || data.A != 5 {
			t.Errorf("%s: %+v", c.name, got)
		}
		if !errors.Is(last, c.want) {
			t.Errorf("%s: %v", c.name, last)
		}
		client.Close()
		node.Close()
	}
}

func TestTailQuery(t *testing.T) {
	yes := true
	for _, c := range []struct {
		name string
		o    TailOptions
		want string // empty: it is refused
	}{
		{"nothing", TailOptions{}, "from=start"},
		{"backward", TailOptions{Backward: true, To: AtNumber(3)}, "backward=true&to=3"},
		{"time", TailOptions{From: AtTime(time.Date(2026, 1, 31, 13, 0, 0, 5, time.FixedZone("", 3600))), To: End}, "from=2026-01-31T12:00:00.000000005Z&to=end"},
		{"filters", TailOptions{Types: []string{"A", "B"}, StreamsLike: "^o.*1$", Contains: "x y", EventID: "id", NoSystem: true, Limit: 3},
			"contains=x y&from=start&id=id&limit=3&streams=/^o.*1$/&system=false&types=A,B"},
		{"payload", TailOptions{Resolve: &yes, NoData: true, MaxData: -1}, "embed=rich&from=start&maxData=0&resolve=true"},
		{"prefixes that a list cannot hold", TailOptions{Types: []string{"a,b", "c."}, Streams: []string{"/x/"}}, `from=start&streams=/^(/x/)/&types=/^(a,b|c\.)/`},
		{"two beginnings", TailOptions{From: Start, After: "3"}, ""},
		{"two filters", TailOptions{Types: []string{"a"}, TypesLike: "b"}, ""},
		{"no prefix", TailOptions{Types: []string{""}}, ""},
		{"negative limit", TailOptions{Limit: -1}, ""},
	} {
		got, err := c.o.query()
		if plain, e := url.QueryUnescape(got); e != nil || plain != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %s, %v", c.name, plain, err)
		}
	}
}

// FuzzMessages: what is read of a text/event-stream does not depend on how its lines end, and no
// text is too bad for it.
func FuzzMessages(f *testing.F) {
	f.Add([]byte("retry: 2000\n\n:\n\nid: 0\ndata: {}\n\nevent: live\ndata: a\ndata:b\n\nid: 9\ndata: cut"))
	f.Add([]byte("data\n\ndata:\n\n\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.IndexByte(text, '\r') >= 0 {
			return
		}
		read := func(text []byte) string {
			var all []string
			for s := (messages{r: bufio.NewReaderSize(bytes.NewReader(text), 16)}); ; {
				m, err := s.next()
				if err != nil {
					return fmt.Sprintf("%q %v", all, err)
				}
				all = append(all, m.Kind, string(m.ID), string(m.Data))
			}
		}
		if unix, dos := read(text), read(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))); unix != dos {
			t.Errorf("%s\nand  %s", unix, dos)
		}
	})
}
