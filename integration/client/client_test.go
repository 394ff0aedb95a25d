package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/testkit"
)

// open returns a client of the node, with a transport that may be nil.
func open(t *testing.T, wire http.RoundTripper) *client.Client {
	t.Helper()
	return openAs(t, wire, url.UserPassword("admin", "changeit"))
}

func openAs(t *testing.T, wire http.RoundTripper, login *url.Userinfo) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Nodes: []string{address}, Login: login, Transport: wire})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestExamples runs the examples of the package, which have no node of their own.
func TestExamples(t *testing.T) {
	root, err := testkit.Root()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), testkit.Go(), "test", "-count=1", "-v", "-run", "^Example", ".")
	command.Dir = filepath.Join(root, "client")
	command.Env = append(os.Environ(), "ANNALS_CLIENT_NODE="+address)
	out, err := command.CombinedOutput()
	if n := strings.Count(string(out), "--- PASS: Example"); err != nil || n < 7 {
		t.Errorf("%d examples, %v\n%s", n, err, out)
	}
}

// TestReal reads what it has written from a real node, in each form and direction.
func TestReal(t *testing.T) {
	c := open(t, nil)
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
		{"after the end", client.Reading{From: 12}, nil},
		{"backward", client.Reading{Backward: true, Count: 3, Resolve: new(false)}, []int64{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}},
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
	var metadata map[string]int
	if err := c.Metadata(ctx, "real", &metadata); err != nil || metadata["$maxCount"] != 2 {
		t.Errorf("%v, %v", metadata, err)
	}
	if err := c.Delete(ctx, "real", 8); !errors.Is(err, client.ErrWrongVersion) {
		t.Errorf("%v", err)
	}
	if err := c.Delete(ctx, "real", 9); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(ctx, "real", client.Reading{}); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if n, err := c.Append(ctx, "real", 9, events[0]); err != nil || n != 10 {
		t.Errorf("%d, %v", n, err)
	}
	if err := c.Tombstone(ctx, "real", client.AnyVersion); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(ctx, "real", client.Reading{}); !errors.Is(err, client.ErrDeleted) {
		t.Errorf("%v", err)
	}
	if _, err := c.Append(ctx, "real", client.AnyVersion, events[1]); !errors.Is(err, client.ErrDeleted) {
		t.Errorf("%v", err)
	}
}
