package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// A tail whose nodes break off, stop or are not ready resumes at another one, and gives each
// event once.
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
	for m, err := range c.Tail(ctx, "s", "types=T") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(m.Kind+m.ID+string(m.Data)))
	}
	if want := `[live{} 0{"a":0} 1{"a":1} 2{"a":2} progress7{} deleted{} gone{}]`; fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	if want := "[types=T  from=start&types=T  from=start&types=T 1 from=start&types=T 1 from=start&types=T 2 from=start&types=T 7]"; fmt.Sprint(asked) != want {
		t.Errorf("asked %v\nwant  %s", asked, want)
	}
}

// A refusal of a node is returned, and a limit holds for all connections together.
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
	for _, err := range c.Tail(t.Context(), "s", "limit=2") {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 2 || tries != 2 {
		t.Errorf("%d events of %d connections", n, tries)
	}
	for _, err := range c.Tail(t.Context(), "s", "from=x") {
		if !HasStatus(err, http.StatusBadRequest) {
			t.Errorf("%v", err)
		}
	}
}
