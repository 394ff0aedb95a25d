package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/client"
)

// counting is a transport that counts requests for live tails.
type counting struct {
	http.RoundTripper
	tails atomic.Int32
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Accept") == "text/event-stream" {
		c.tails.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestSubscribeWaits: a subscriber sees what is appended after it has come to the end, of a
// stream that was not there and of all streams. It asks once.
func TestSubscribeWaits(t *testing.T) {
	for _, stream := range []string{"late", client.AllStream} {
		network := client.NewTransport(nil)
		t.Cleanup(network.CloseIdleConnections)
		wire := &counting{RoundTripper: network}
		c := open(t, wire)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		seen, failed := make(chan client.Recorded), make(chan error, 1)
		go func() {
			defer close(seen)
			for e, err := range c.Subscribe(ctx, stream, client.TailOptions{}) {
				if err != nil {
					failed <- err
					return
				}
				if e.Type == "late" {
					seen <- e
				}
			}
		}()
		already := 0
		if stream == client.AllStream {
			already = 3
		}
		for n := range already + 3 {
			if n >= already {
				if _, err := c.Append(ctx, "late", client.AnyVersion, client.Event{Type: "late", Data: []byte(`{}`)}); err != nil {
					t.Fatal(err)
				}
			}
			if e, ok := <-seen; !ok || e.Stream != "late" || e.Number != int64(n) || stream == client.AllStream && string(e.Place) != e.Position {
				t.Fatalf("%+v, %v", e, <-failed)
			}
		}
		stop()
		for range seen {
		}
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if n := wire.tails.Load(); n != 1 {
			t.Errorf("asked %d times for %s", n, stream)
		}
	}
}

// cutting is a transport whose answers to live tails break off after some bytes.
type cutting struct{ http.RoundTripper }

func (c cutting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil && r.Header.Get("Accept") == "text/event-stream" {
		resp.Body = &cut{resp.Body, 200 + rand.IntN(4000)}
	}
	return resp, err
}

type cut struct {
	io.ReadCloser
	left int
}

func (c *cut) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// TestSubscribeResumes: a subscriber whose connections break all the time gets each event once, and
// another one continues where the first one stopped.
func TestSubscribeResumes(t *testing.T) {
	network := client.NewTransport(nil)
	t.Cleanup(network.CloseIdleConnections)
	c, writer := open(t, cutting{network}), open(t, nil)
	const many = 300
	done := make(chan error, 1)
	go func() {
		for n := range many {
			e := client.Event{Type: "cut", Data: fmt.Appendf(nil, `{"n":%d,"filler":"%s"}`, n, strings.Repeat("x", n%80))}
			if _, err := writer.Append(t.Context(), "broken", int64(n)-1, e); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for _, stream := range []string{"broken", client.AllStream} {
		var after client.Place
		next := 0
		for next < many {
			o := client.TailOptions{After: after, Types: []string{"cut"}}
			for e, err := range c.Subscribe(t.Context(), stream, o) {
				var data struct{ N int }
				if err != nil || e.Decode(&data) != nil || data.N != next || e.Number != int64(next) {
					t.Fatalf("%s: %+v after %d, %v", stream, e, next-1, err)
				}
				next, after = next+1, e.Place
				if next%100 == 0 {
					break
				}
			}
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSubscribeEnds: it ends where the options say, and when its stream is gone.
func TestSubscribeEnds(t *testing.T) {
	c := open(t, nil)
	ctx := t.Context()
	for n := range 5 {
		e := client.Event{Type: []string{"Odd", "Even"}[(n+1)%2], Data: fmt.Appendf(nil, `{"n":%d}`, n)}
		if _, err := c.Append(ctx, "ends", int64(n)-1, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, one := range []struct {
		name string
		o    client.TailOptions
		want string
	}{
		{"to the end", client.TailOptions{To: client.End}, "[0 1 2 3 4]"},
		{"a part", client.TailOptions{From: client.AtNumber(1), To: client.AtNumber(3)}, "[1 2 3]"},
		{"backward", client.TailOptions{Backward: true, Limit: 2}, "[4 3]"},
		{"types", client.TailOptions{Types: []string{"Ev"}, To: client.End}, "[0 2 4]"},
		{"an expression", client.TailOptions{TypesLike: "^O..$", To: client.End}, "[1 3]"},
		{"text", client.TailOptions{Contains: `"n":3`, To: client.End}, "[3]"},
		{"all is there", client.TailOptions{After: "4", To: client.End}, "[]"},
	} {
		got := []int64{}
		for e, err := range c.Subscribe(ctx, "ends", one.o) {
			if err != nil {
				t.Fatal(one.name, err)
			}
			got = append(got, e.Number)
		}
		if fmt.Sprint(got) != one.want {
			t.Errorf("%s: %v", one.name, got)
		}
	}
	for e, err := range c.Subscribe(ctx, "ends", client.TailOptions{}) {
		switch {
		case err == nil && e.Number == 4:
			if err := c.Tombstone(ctx, "ends", client.AnyVersion); err != nil {
				t.Fatal(err)
			}
		case err != nil && !errors.Is(err, client.ErrDeleted):
			t.Error(err)
		}
	}
	for _, err := range c.Subscribe(ctx, "ends", client.TailOptions{}) {
		if !errors.Is(err, client.ErrDeleted) {
			t.Error(err)
		}
	}
}
