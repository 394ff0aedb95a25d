package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/api"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

const (
	mib       = 1 << 20
	writtenID = "00000000-0000-4000-8000-00000000000a"
)

// stuckBody is a body of which no more comes than there is, until it is closed.
type stuckBody struct {
	io.Reader
	gone context.Context
}

func (b *stuckBody) Read(p []byte) (int, error) {
	if n, err := b.Reader.Read(p); err == nil {
		return n, nil
	}
	<-b.gone.Done()
	return 0, io.ErrUnexpectedEOF
}

// stuckWriter is an answer that its client does not take.
type stuckWriter struct {
	http.ResponseWriter
	gone context.Context
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	if len(p) > api.SmallRequest {
		<-w.gone.Done()
		return 0, io.ErrClosedPipe
	}
	return w.ResponseWriter.Write(p)
}

// All that requests hold is counted while they hold it, and nothing of it afterwards. What
// goes beyond the bound is 503, and small requests are served all the same.
func TestRequestsShareMemory(t *testing.T) {
	events := func(n, size int) string {
		one := `{"eventId":"` + writtenID + `","eventType":"T","data":"` + strings.Repeat("x", size) + `"}`
		return "[" + strings.Repeat(one+",", n-1) + one + "]"
	}
	for _, c := range []struct {
		name         string
		method, path string
		headers      []string
		body         string
		length       int64 // that the client says; 0: that of the body, -1: none
		unread       bool
		least, most  int64 // that one holds
	}{
		{name: "body that stops", method: "POST", path: "/streams/t", headers: []string{"Content-Type", octets, "ES-EventType", "T", "ES-EventId", writtenID},
			body: strings.Repeat("x", 3*mib), length: 28 * mib, least: 3 * mib, most: 16 * mib},
		{name: "chunked body that stops", method: "POST", path: "/streams/t", headers: []string{"Content-Type", octets, "ES-EventType", "T", "ES-EventId", writtenID},
			body: strings.Repeat("x", 3*mib), length: -1, least: 3 * mib, most: 8 * mib},
		{name: "body that is announced", method: "POST", path: "/streams/t", headers: []string{"Content-Type", octets, "ES-EventType", "T", "ES-EventId", writtenID},
			body: "x", length: mib, least: 1, most: 64 << 10},
		{name: "batch that stops", method: "POST", path: "/streams/t", headers: []string{"Content-Type", eventsJSON}, body: events(10, 100_000), length: 28 * mib, least: mib, most: 8 * mib},
		{name: "metadata that stops", method: "POST", path: "/streams/t/metadata", headers: []string{"Content-Type", appJSON}, body: strings.Repeat(" ", 2*mib), length: 28 * mib, least: 2 * mib, most: 8 * mib},
		{name: "page that is not read", method: "GET", path: "/streams/large/head/backward/20?embed=body", headers: []string{"Accept", atomJSON}, unread: true, least: 2 * mib, most: 24 * mib},
		{name: "page of all that is not read", method: "GET", path: "/streams/$all/head/backward/20?embed=body", headers: []string{"Accept", atomJSON}, unread: true, least: 2 * mib, most: 24 * mib},
		{name: "event that is not read", method: "GET", path: "/streams/large/0", headers: []string{"Accept", appJSON}, unread: true, least: mib - api.SmallRequest, most: 4 * mib},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := api.NewMemory(64 * mib)
				n := newNode(t, func(o *httpapi.Options) { o.Memory = memory })
				for i := range 3 {
					n.put("large", large(i, mib))
				}
				n.put("small", "{}")
				check.MustEqual(t, memory.Used(), 0, "bytes are held before")
				ctx, cancel := context.WithCancel(t.Context())
				codes := make(chan int, 64)
				begin := func() {
					r, w := httptest.NewRequestWithContext(ctx, c.method, base+c.path, nil), httptest.NewRecorder()
					r.Header = admin(c.headers...)
					if c.length != 0 {
						r.ContentLength, r.Body = c.length, io.NopCloser(&stuckBody{strings.NewReader(c.body), ctx})
					}
					var out http.ResponseWriter = w
					if c.unread {
						out = &stuckWriter{w, ctx}
					}
					n.handler.ServeHTTP(out, r)
					codes <- w.Code
				}
				go begin()
				synctest.Wait()
				if used := memory.Used(); used < c.least || used > c.most {
					t.Errorf("one holds %d bytes", used)
				}
				for range 39 {
					go begin()
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if used := memory.Used(); used > 64*mib {
					t.Errorf("40 hold %d bytes", used)
				}
				n.get("/streams/small/0", appJSON).is(t, 200)
				n.get("/streams/small", atomJSON).is(t, 200)
				n.put("small", "{}")
				refused := len(codes)
				for range refused {
					check.Equal(t, <-codes, http.StatusServiceUnavailable, "one is answered")
				}
				if 40*c.least > 80*mib && refused == 0 {
					t.Error("none is refused")
				}
				cancel()
				for range 40 - refused {
					<-codes
				}
				synctest.Wait()
				check.Equal(t, memory.Used(), 0, "bytes are held behind them")
			})
		})
	}
}

// A page for which there is no room goes out in pieces and is the same.
func TestPageWithoutRoom(t *testing.T) {
	memory := api.NewMemory(64 * mib)
	n := newNode(t, func(o *httpapi.Options) { o.Memory = memory })
	for i := range 5 {
		n.put("large", large(i, 300<<10))
	}
	for _, accept := range []string{atomJSON, atomXML} {
		whole := n.get("/streams/large/head/backward/20?embed=body", accept)
		var rest api.Claim
		rest.Use(memory)
		for rest.Try(mib) {
		}
		rest.Shrink(mib)
		pieces := n.get("/streams/large/head/backward/20?embed=body", accept)
		if rest.Release(); pieces.body != whole.body || pieces.status != 200 {
			t.Errorf("%s: %d, %d bytes instead of %d", accept, pieces.status, len(pieces.body), len(whole.body))
		}
	}
	check.Equal(t, memory.Used(), 0, "bytes are held behind them")
}

// What an event takes is claimed before it is read: those who wait for their turn hold nothing.
func TestClaimComesFirst(t *testing.T) {
	for _, c := range []struct {
		path, accept string
		status       int
	}{
		{"/streams/large/0", appJSON, http.StatusServiceUnavailable},
		{"/streams/large/head/backward/20?embed=body", atomJSON, http.StatusServiceUnavailable},
		{"/streams/large/metadata", appJSON, http.StatusServiceUnavailable},
		// It ends, and its client comes back.
		{"/streams/large?from=start&to=end", "text/event-stream", http.StatusOK},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory := api.NewMemory(64 * mib)
			n := newNode(t, func(o *httpapi.Options) { o.Memory = memory })
			n.put("large", large(0, mib))
			n.put("$$large", `{"a":"`+strings.Repeat("x", mib)+`"}`)
			var rest api.Claim
			rest.Use(memory)
			for rest.Try(mib / 2) {
			}
			a := n.get(c.path, c.accept)
			if rest.Release(); a.status != c.status || n.store.Payloads.Load() > 0 || memory.Used() != 0 {
				t.Errorf("%s: %d, %d events were read, %d bytes are held", c.path, a.status, n.store.Payloads.Load(), memory.Used())
			}
			check.Equal(t, n.get(c.path, c.accept).status, http.StatusOK, c.path, "with room")
		})
	}
}

// No long poll waits for longer than an hour.
func TestPollForTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("s", "{}")
		begun := time.Now()
		n.get("/streams/s/1/forward/5", appJSON, "ES-LongPoll", "2147483647").is(t, 200)
		check.Equal(t, time.Since(begun), time.Hour, "it took")
	})
}
