package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
)

// serve starts something that answers like a node.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

// unused is an address at which nothing listens. A free port would not do: the next test server may
// get it.
const unused = "http://127.0.0.1:1"

func open(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"h:1": "http://h:1", "https://h/": "https://h", "http://h/proxy/": "http://h/proxy", "http://[::1]:2113": "http://[::1]:2113",
		"": "", "http://": "", "ftp://h": "", "http://u:secret@h": "", "http://h?a=b": "", "http://h:x": "", "http://h#f": "",
	} {
		if got, err := client.Address(text); got != want || (err == nil) != (want != "") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := client.New(client.Options{Nodes: []string{"h:1", "ftp://h"}}); err == nil {
		t.Error("no error")
	}
}

// TestAppendRepeats: an append without an answer is sent again with the same ids, to another node.
func TestAppendRepeats(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	take := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var events []client.Event
		if err := json.NewDecoder(r.Body).Decode(&events); err != nil || len(events) != 1 {
			t.Errorf("%v: %+v", err, events)
			return
		}
		ids = append(ids, events[0].ID)
	}
	for _, c := range []struct {
		name  string
		first http.HandlerFunc
		sent  int
	}{
		{"answer is lost", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 2},
		{"not ready", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, 2},
		{"outcome is not known", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 2},
		{"redirected in circles", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://"+r.Host+r.URL.Path)
			w.WriteHeader(307)
		}, 6},
		{"nothing listens", nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids = nil
			first := unused
			if c.first != nil {
				first = serve(t, func(w http.ResponseWriter, r *http.Request) { take(r); c.first(w, r) })
			}
			second := serve(t, func(w http.ResponseWriter, r *http.Request) {
				take(r)
				w.Header().Set("Location", "http://"+r.Host+"/streams/a%20b/7")
				w.WriteHeader(201)
			})
			number, err := open(t, client.Options{Nodes: []string{first, second}}).Append(t.Context(), "a b", 6, client.Event{Type: "t", Data: []byte("{}")})
			mu.Lock()
			defer mu.Unlock()
			if err != nil || number != 7 || len(ids) != c.sent || len(slices.Compact(ids)) != 1 || len(ids[0]) != 36 {
				t.Errorf("%d, %v, sent with %q", number, err, ids)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header string
		kind   error
	}{
		{"not there", 404, "", client.ErrNotFound},
		{"deleted", 410, "", client.ErrDeleted},
		{"no password", 401, "", client.ErrUnauthorized},
		{"wrong version", 400, "4", client.ErrWrongVersion},
		{"bad request", 400, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked atomic.Int32
			node := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if c.header != "" {
					w.Header().Set(client.HeaderCurrentVersion, c.header)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, "said\nso")
			})
			_, err := open(t, client.Options{Nodes: []string{node}}).Append(t.Context(), "s", 0, client.Event{Type: "t", Data: []byte("1")})
			var refused *client.Error
			if !errors.As(err, &refused) || refused.Text != "said so" || !client.HasStatus(err, c.status) || asked.Load() != 1 {
				t.Fatalf("%v, asked %d times", err, asked.Load())
			}
			for _, kind := range []error{client.ErrNotFound, client.ErrDeleted, client.ErrUnauthorized, client.ErrWrongVersion} {
				if errors.Is(err, kind) != (kind == c.kind) {
					t.Errorf("is %v: %t", kind, errors.Is(err, kind))
				}
			}
		})
	}
}

// TestSent: whether a node may have got a request is known.
func TestSent(t *testing.T) {
	hanging := make(chan struct{})
	for _, c := range []struct {
		name string
		node string
		sent bool
		want string
	}{
		{"refused connection", unused, false, "no node listens there"},
		{"broken off", serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), true, "does not answer: EOF"},
		{"cut body", serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "abc")
		}), true, "unexpected EOF"},
		{"hangs", serve(t, func(http.ResponseWriter, *http.Request) { <-hanging }), true, "nothing within 50ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := open(t, client.Options{Nodes: []string{c.node}}).Do(t.Context(), client.Request{Path: "/", Body: []byte("x"), Timeout: 50 * time.Millisecond})
			var failed *client.UnreachableError
			if !errors.As(err, &failed) || failed.Sent != c.sent || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %+v", err, failed)
			}
		})
	}
	close(hanging)
}

// TestRedirect: the leader gets the request with its body and credentials, and the next one at
// once.
func TestRedirect(t *testing.T) {
	var asked []string
	leader := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		asked = append(asked, fmt.Sprintf("%s %s %s:%s %s", r.Method, r.URL, user, password, body))
	})
	// Another name for the same machine: the standard client would not send the password there.
	leader = strings.Replace(leader, "127.0.0.1", "localhost", 1)
	var redirected atomic.Int32
	follower := serve(t, func(w http.ResponseWriter, r *http.Request) {
		redirected.Add(1)
		w.Header().Set("Location", leader+r.URL.RequestURI())
		w.WriteHeader(307)
	})
	c := open(t, client.Options{Nodes: []string{follower}, Login: url.UserPassword("u", "p")})
	q := client.Request{Path: "/x?y=z", Body: []byte("b")}
	for i := range 2 {
		a, err := c.Do(t.Context(), q)
		if err != nil || a.Node != leader || asked[i] != "POST /x?y=z u:p b" || (len(a.Via) == 1) != (i == 0) {
			t.Fatalf("%v, %v, via %q, asked %q", a, err, a.Via, asked)
		}
	}
	q.Node, q.Stay = follower, true
	if a, err := c.Do(t.Context(), q); err != nil || a.Status != 307 || redirected.Load() != 2 || c.Node() != leader {
		t.Errorf("%v, %v, redirected %d times, next %s", a, err, redirected.Load(), c.Node())
	}
}

func TestDownloadGoesOn(t *testing.T) {
	const text = "0123456789"
	var ranges []string
	var answers int
	node := serve(t, func(w http.ResponseWriter, r *http.Request) {
		from := 0
		ranges = append(ranges, r.Header.Get("Range"))
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil {
			w.WriteHeader(http.StatusPartialContent)
		}
		if answers++; answers == 3 {
			_, _ = io.WriteString(w, text[from:])
			return
		}
		_, _ = io.WriteString(w, text[from:from+3])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	body, err := open(t, client.Options{Nodes: []string{node}}).Download(t.Context(), client.Request{Path: "/file"}, 2)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	if err != nil || string(got) != text[2:] || !slices.Equal(ranges, []string{"bytes=2-", "bytes=5-", "bytes=8-"}) {
		t.Errorf("%q, %v, asked for %q", got, err, ranges)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	gone := serve(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no such file", 404) })
	if _, err := open(t, client.Options{Nodes: []string{gone}}).Download(t.Context(), client.Request{Path: "/file"}, 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// TestReal reads what it has written from a real node, in each form and direction.
func TestReal(t *testing.T) {
	c := open(t, client.Options{Nodes: []string{address}, Login: url.UserPassword("admin", "changeit")})
	ctx := t.Context()
	if _, err := c.Event(ctx, "real", 0); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	binary := client.Event{ID: client.NewID(), Type: "bytes", Data: []byte("\x00\xff"), Binary: true}
	for i := range 2 { // The second time nothing is written.
		n, err := c.Append(ctx, "real", client.NoStream, binary)
		if err != nil || n != 0 {
			t.Fatal(i, n, err)
		}
	}
	if data, err := c.Data(ctx, "real", 0); err != nil || string(data) != "\x00\xff" {
		t.Errorf("%q, %v", data, err)
	}
	var events []client.Event
	for i := range 9 {
		events = append(events, client.Event{Type: `"<é`, Data: fmt.Appendf(nil, `{"a": "<%d>"}`, i+1), Metadata: []byte(`{"m":1}`)})
	}
	if n, err := c.Append(ctx, "real", 0, events...); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if e, err := c.Event(ctx, "real", -1); err != nil || e.Number != 9 || e.Type != `"<é` || e.Metadata != `{"m":1}` || e.Data != `{"a": "<9>"}` || e.Time.IsZero() {
		t.Errorf("%+v, %v", e, err)
	}
	for _, r := range []struct {
		name string
		r    client.Reading
		want []int64
	}{
		{"forward", client.Reading{Count: 4}, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"forward from", client.Reading{From: 7, Leader: true}, []int64{7, 8, 9}},
		{"behind the end", client.Reading{From: 12}, nil},
		{"backward", client.Reading{Backward: true, Count: 3, Links: true}, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
		{"backward from", client.Reading{Backward: true, From: 1}, []int64{1, 0}},
	} {
		var got []int64
		for e, err := range c.Events(ctx, "real", r.r) {
			if err != nil {
				t.Fatal(r.name, err)
			}
			got = append(got, e.Number)
		}
		if !slices.Equal(got, r.want) {
			t.Errorf("%s: %v", r.name, got)
		}
	}
	if err := c.SetMetadata(ctx, "real", client.AnyVersion, map[string]any{"$maxCount": 2}); err != nil {
		t.Fatal(err)
	}
	var shown []int64
	for e, err := range c.Events(ctx, "real", client.Reading{Count: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, e.Number)
	}
	if !slices.Equal(shown, []int64{8, 9}) {
		t.Errorf("of the two last events %v are read", shown)
	}
	members, err := c.Members(ctx)
	if err != nil || len(members) != 1 || "http://"+members[0].Address() != address || c.Discover(ctx) != nil {
		t.Errorf("%+v, %v", members, err)
	}
	if err := c.Delete(ctx, "real", 9, true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(ctx, "real", client.Reading{}); !errors.Is(err, client.ErrDeleted) {
		t.Errorf("%v", err)
	}
}

// TestSubscribeWaits: a subscriber sees what is appended after it has come to the end, of a
// stream that was not there and of all streams.
func TestSubscribeWaits(t *testing.T) {
	c := open(t, client.Options{Nodes: []string{address}, Login: url.UserPassword("admin", "changeit")})
	for _, stream := range []string{"late", client.AllStream} {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		seen := make(chan client.Recorded)
		failed := make(chan error, 1)
		go func() {
			defer close(seen)
			for e, err := range c.Subscribe(ctx, stream, client.Reading{Wait: 2 * time.Second}) {
				if err != nil {
					failed <- err
					return
				}
				if e.Type == "late" {
					seen <- e
				}
			}
		}()
		for range 3 {
			if _, err := c.Append(ctx, "late", client.AnyVersion, client.Event{Type: "late", Data: []byte(`{}`)}); err != nil {
				t.Fatal(err)
			}
			if e, ok := <-seen; !ok || e.Stream != "late" {
				t.Fatalf("%+v, %v", e, <-failed)
			}
		}
		stop()
		for range seen {
		}
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	}
}

func TestGroupParks(t *testing.T) {
	c := open(t, client.Options{Nodes: []string{address}, Login: url.UserPassword("admin", "changeit")})
	ctx := t.Context()
	g := c.Group("work", "team")
	if _, err := g.Read(ctx, 1); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	if err := errors.Join(g.Create(ctx, nil), g.Update(ctx, map[string]any{"maxRetryCount": 2})); err != nil {
		t.Fatal(err)
	}
	if err := g.Create(ctx, nil); !client.HasStatus(err, http.StatusConflict) {
		t.Fatal(err)
	}
	if _, err := c.Append(ctx, "work", client.NoStream, client.Event{Type: "t", Data: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	take := func() (m []client.Message) {
		for len(m) == 0 && ctx.Err() == nil {
			var err error
			if m, err = g.Read(ctx, 10); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	if err := g.Nack(ctx, "Park", take()...); err != nil {
		t.Fatal(err)
	}
	var info struct {
		Parked int64                       `json:"parkedMessageCount"`
		Config struct{ MaxRetryCount int } `json:"config"`
	}
	for info.Parked == 0 && ctx.Err() == nil {
		if err := g.Info(ctx, &info); err != nil {
			t.Fatal(err)
		}
	}
	if info.Config.MaxRetryCount != 2 {
		t.Errorf("%+v", info)
	}
	if err := g.ReplayParked(ctx); err != nil {
		t.Fatal(err)
	}
	if m := take(); m[0].Stream == "" || g.Ack(ctx, m...) != nil || g.Delete(ctx) != nil {
		t.Errorf("%+v", m)
	}
}
