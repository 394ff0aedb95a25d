package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// fixedStore answers at once: what is measured is the interface alone.
type fixedStore struct {
	api.Store
	memCluster
	memSubscriptions
	page event.StreamPage
	full event.StreamPage // of 100
	one  event.Resolved
	// messages are the events of the full page, oldest first.
	messages []subscription.Message
}

func newFixedStore() *fixedStore {
	s := &fixedStore{memCluster: memCluster{role: "leader"}}
	s.page = event.StreamPage{Stream: "account-1234", From: 99, Last: 99}
	s.full = s.page
	data := []byte(`{"account":"1234567890","amount":1234.56,"currency":"EUR","booked":"2024-01-02T03:04:05Z",` +
		`"reference":"0f9fad5b-d9cb-469f-a165-70867728950e","note":"monthly rent of the flat, paid in advance for January",` +
		`"tags":["rent","flat"],"balance":{"before":10000.00,"after":8765.44}}`)
	for i := range 100 {
		s.full.Events = append(s.full.Events, event.Resolved{Record: event.Record{
			Stream: "account-1234", Number: int64(99 - i), Type: "money-deposited", Flags: event.FlagJSON,
			ID: event.ID{1, 2, 3, byte(i)}, Time: time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano(), Data: data,
		}})
	}
	s.page.Events = s.full.Events[:20:20]
	s.one = s.page.Events[0]
	for i := range slices.Backward(s.full.Events) {
		e := &s.full.Events[i]
		s.messages = append(s.messages, subscription.Message{ID: e.ID, Event: e})
	}
	return s
}

func (s *fixedStore) Write(context.Context, *event.Write) (event.Written, error) {
	return event.Written{First: 12345, Last: 12345}, nil
}

func (s *fixedStore) ReadStream(_ context.Context, r event.StreamRead) (event.StreamPage, error) {
	if r.Count == 100 {
		return s.full, nil
	}
	return s.page, nil
}

func (s *fixedStore) Read(_ context.Context, _ subscription.Key, count int, _ event.LinkReader) ([]subscription.Message, error) {
	return s.messages[:count], nil
}

func (s *fixedStore) Ack(context.Context, subscription.Key, []event.ID) error { return nil }

func (s *fixedStore) ReadEvent(context.Context, string, int64, event.LinkReader) (event.Resolved, error) {
	return s.one, nil
}

func (s *fixedStore) ReadEventUpTo(context.Context, string, int64, int, event.LinkReader) (event.Resolved, error) {
	return s.one, nil
}

func (s *fixedStore) ReadPayload(context.Context, *event.Record) error { return nil }

func (s *fixedStore) ReadAll(context.Context, event.AllRead) (event.AllPage, error) {
	return event.AllPage{Events: s.page.Events}, nil
}

func (s *fixedStore) PositionAt(context.Context, int64) (int64, error) { return 0, nil }

func (s *fixedStore) Names(context.Context, event.NamesRead) (event.NamesPage, error) {
	return event.NamesPage{}, nil
}

func (s *fixedStore) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: 99, MetaLast: -1}, nil
}

func (s *fixedStore) LogEnd() int64                                   { return 1 << 40 }
func (s *fixedStore) WaitStream(context.Context, string, int64) error { return nil }
func (s *fixedStore) WaitLog(context.Context, int64) error            { return nil }

func (s *fixedStore) Authenticate(*http.Request) (access.Principal, error) {
	return access.Principal{Login: "jane"}, nil
}

func (s *fixedStore) Renew(_ context.Context, p access.Principal) (access.Principal, error) {
	return p, nil
}

func (s *fixedStore) MayRead(context.Context, *access.Principal, string, *event.StreamInfo) (bool, error) {
	return true, nil
}

func (s *fixedStore) CheckStream(context.Context, access.Principal, string, access.Right) error {
	return nil
}

func fixedHandler() http.Handler {
	s := newFixedStore()
	return httpapi.New(httpapi.Options{Node: api.Node{Store: s, Cluster: s, Access: s, Subscriptions: s}}).Handler()
}

// sink is a ResponseWriter that keeps nothing.
type sink struct {
	header http.Header
	status int
	bytes  int
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(code int) {
	s.status = code
}

func (s *sink) Write(p []byte) (int, error) {
	s.bytes += len(p)
	return len(p), nil
}

// body is a request body that can be read again and again.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// measure serves one request again and again.
func measure(b *testing.B, method, path string, status int, content []byte, headers ...string) {
	h := fixedHandler()
	r := check.Value(http.NewRequest(method, base+path, nil)).Must(b)
	r.Header = with(headers...)
	in := &body{}
	if content != nil {
		r.Body, r.ContentLength = in, int64(len(content))
	}
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		w.bytes = 0
		in.Reset(content)
		h.ServeHTTP(w, r)
	}
	check.MustEqual(b, w.status, status)
	b.SetBytes(int64(w.bytes + len(content)))
}

func BenchmarkAppend(b *testing.B) {
	measure(b, "POST", "/streams/account-1234", 201, bytes.Repeat([]byte("1"), 300), "Content-Type", appJSON, "ES-EventType", "money-deposited",
		"ES-EventId", "0f9fad5b-d9cb-469f-a165-70867728950e", "ES-ExpectedVersion", "12344")
}

func BenchmarkAppendBatch100(b *testing.B) {
	var batch bytes.Buffer
	for i := range 100 {
		sep := ","
		if i == 0 {
			sep = "["
		}
		fmt.Fprintf(&batch, `%s{"eventId":"0f9fad5b-d9cb-469f-a165-%012x","eventType":"money-deposited","data":{"x":"%0200d"}}`, sep, i+1, i)
	}
	batch.WriteByte(']')
	measure(b, "POST", "/streams/account-1234", 201, batch.Bytes(), "Content-Type", eventsJSON)
}

// BenchmarkAppendMany100 appends to 100 streams what BenchmarkAppendBatch100 appends to one.
func BenchmarkAppendMany100(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"events":[`)
	for i := range 100 {
		if i > 0 {
			body.WriteByte(',')
		}
		fmt.Fprintf(&body, `{"stream":"account-%d","eventId":"0f9fad5b-d9cb-469f-a165-%012x","eventType":"money-deposited","data":{"x":"%0200d"}}`, i, i+1, i)
	}
	body.WriteString("]}")
	measure(b, "POST", "/streams", 201, body.Bytes(), "Content-Type", appJSON)
}

func BenchmarkEvent(b *testing.B) {
	measure(b, "GET", "/streams/account-1234/99", 200, nil, "Accept", appJSON)
}

func BenchmarkEventEntry(b *testing.B) {
	measure(b, "GET", "/streams/account-1234/99?embed=body", 200, nil, "Accept", atomJSON)
}

func BenchmarkPage20(b *testing.B) {
	measure(b, "GET", "/streams/account-1234?embed=body", 200, nil, "Accept", appJSON)
}

func BenchmarkPage20XML(b *testing.B) {
	measure(b, "GET", "/streams/account-1234", 200, nil, "Accept", atomXML)
}

func BenchmarkNotModified(b *testing.B) {
	measure(b, "GET", "/streams/account-1234", 304, nil, "Accept", appJSON, "If-None-Match", `"99;248368668"`)
}

func BenchmarkPage100(b *testing.B) {
	measure(b, "GET", "/streams/account-1234/head/backward/100?embed=body", 200, nil, "Accept", atomJSON)
}

func BenchmarkMessages100(b *testing.B) {
	measure(b, "GET", "/subscriptions/account-1234/group/100?embed=body", 200, nil, "Accept", competingJSON)
}

func BenchmarkMessages100XML(b *testing.B) {
	measure(b, "GET", "/subscriptions/account-1234/group/100", 200, nil, "Accept", competingXML)
}

func BenchmarkMessage(b *testing.B) {
	measure(b, "GET", "/subscriptions/account-1234/group/1?embed=body", 200, nil, "Accept", competingJSON)
}

func BenchmarkAck100(b *testing.B) {
	ids := strings.Repeat("0f9fad5b-d9cb-469f-a165-70867728950e,", 100)
	measure(b, "POST", "/subscriptions/account-1234/group/ack?ids="+ids[:len(ids)-1], 200, nil)
}

// BenchmarkLoopback compares the interface with a bare handler that answers with
// as many bytes, over real connections.
func BenchmarkLoopback(b *testing.B) {
	bare := func(size int) http.Handler {
		payload := bytes.Repeat([]byte("x"), size)
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{"application/json"}
			w.Header()["Content-Length"] = []string{fmt.Sprint(size)}
			_, _ = w.Write(payload)
		})
	}
	for _, c := range []struct {
		name, path string
		h          http.Handler
		headers    []string
	}{
		{"bare300", "/", bare(300), nil},
		{"event", "/streams/account-1234/99", fixedHandler(), nil},
		{"notModified", "/streams/account-1234", fixedHandler(), []string{"If-None-Match", `"99;248368668"`}},
		{"bare16k", "/", bare(16 << 10), nil},
		{"page20", "/streams/account-1234?embed=body", fixedHandler(), nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			address := listen(b, c.h)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
			defer client.CloseIdleConnections()
			b.SetParallelism(16)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, err := http.NewRequest("GET", "http://"+address+c.path, nil)
					if err != nil {
						b.Error(err)
						return
					}
					r.Header = with(append(c.headers, "Accept", appJSON)...)
					resp, err := client.Do(r)
					if err != nil {
						b.Error(err)
						return
					}
					check.NoError(b, check.Err(io.Copy(io.Discard, resp.Body)))
					check.NoError(b, resp.Body.Close())
				}
			})
		})
	}
}

// BenchmarkConn is what the server alone does for a request on its connection: the
// client writes the same bytes again and again, and reads as many as the first answer had.
func BenchmarkConn(b *testing.B) {
	for _, c := range []struct{ name, request string }{
		{"event", "GET /streams/account-1234/99 HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n\r\n"},
		{"page20", "GET /streams/account-1234?embed=body HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n\r\n"},
		{"notModified", "GET /streams/account-1234 HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\nIf-None-Match: \"99;248368668\"\r\n\r\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			conn, err := net.Dial("tcp", listen(b, fixedHandler()))
			check.Must(b, err)
			defer func() { _ = conn.Close() }()
			check.Must(b, check.Err(io.WriteString(conn, c.request)))
			var first bytes.Buffer
			r, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &first)), nil)
			check.Must(b, err)
			check.Must(b, check.Err(io.Copy(io.Discard, r.Body)))
			answer := first.Bytes()
			b.ReportAllocs()
			for b.Loop() {
				check.Must(b, check.Err(io.WriteString(conn, c.request)))
				check.Must(b, check.Err(io.ReadFull(conn, answer)))
			}
		})
	}
}
