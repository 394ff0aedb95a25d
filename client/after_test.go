package client_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/client"
)

// TestAfter: what is read after a write asks each node for its position, and goes to the next node
// when one does not reach it.
func TestAfter(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	node := func(name string, isBehind bool) string {
		return serve(t, func(w http.ResponseWriter, r *http.Request) {
			waits := r.Header.Get("ES-WaitFor")
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, fmt.Sprint(name, " ", r.Method, " ", r.URL.Path, " ", waits))
			switch {
			case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/streams/"):
				w.Header().Set("Location", "http://"+r.Host+"/streams/s/7")
				w.Header().Set("ES-Position", "123")
				w.WriteHeader(http.StatusCreated)
			case isBehind && waits != "":
				if r.Header.Get("ES-WaitAtMost") != "5s" {
					t.Errorf("waits %q", r.Header.Get("ES-WaitAtMost"))
				}
				w.WriteHeader(http.StatusGatewayTimeout)
			default:
				_, _ = w.Write([]byte("{}"))
			}
		})
	}
	c := open(t, client.Options{Nodes: []string{node("behind", true), node("there", false)}})
	done, err := c.Write(t.Context(), "s", client.AnyVersion, client.Event{Type: "t"}, client.Event{Type: "t"})
	if want := (client.Written{First: 7, Last: 8, Position: 123}); err != nil || done != want {
		t.Fatalf("%+v, %v", done, err)
	}
	after := c.After(done.Position)
	for _, read := range []struct {
		path string
		do   func(c *client.Client) error
	}{
		{"GET /streams/s/7", func(c *client.Client) error { _, err := c.Event(t.Context(), "s", 7); return err }},
		{"GET /streams/$all/00000000000000000000000000000000/forward/500", func(c *client.Client) error {
			_, err := c.Read(t.Context(), client.AllStream, client.Reading{})
			return err
		}},
		{"POST /query", func(c *client.Client) error {
			_, err := c.Query(t.Context(), client.Query{All: true}, client.QueryOptions{})
			return err
		}},
		{"GET /projection/p/state", func(c *client.Client) error { _, err := c.Projection("p").State(t.Context(), ""); return err }},
		{"GET /projection/p/result", func(c *client.Client) error { _, err := c.Projection("p").Result(t.Context(), ""); return err }},
		{"GET /subscriptions/s/g/info", func(c *client.Client) error { _, err := c.Group("s", "g").Info(t.Context()); return err }},
	} {
		asked = nil
		if err := read.do(after); err != nil {
			t.Errorf("%s: %v", read.path, err)
		}
		if err := read.do(c); err != nil {
			t.Errorf("%s: %v", read.path, err)
		}
		got := strings.Join(asked, ", ")
		want := fmt.Sprintf("there %s 123, there %[1]s ", read.path)
		if strings.HasPrefix(got, "behind ") {
			want = fmt.Sprintf("behind %s 123, %s", read.path, want)
		}
		if got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
	}
}
