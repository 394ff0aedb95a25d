package bench

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/annalsdb/annals/internal/check"
)

func TestReadResponse(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 10_000)
	cases := []struct {
		name     string
		text     string
		status   int
		body     string
		location string
		version  int64
		closing  bool
	}{
		{"length", "HTTP/1.1 201 Created\r\nLocation: http://h/streams/a/5\r\nContent-Length: 2\r\n\r\nhi", 201, "hi", "http://h/streams/a/5", noVersion, false},
		{"no reason", "HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", 200, "", "", noVersion, false},
		{"bare line feeds", "HTTP/1.1 200 OK\nContent-Length: 3\n\nabc", 200, "abc", "", noVersion, false},
		{"not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", 304, "", "", noVersion, false},
		{"no content", "HTTP/1.1 204 x\r\n\r\n", 204, "", "", noVersion, false},
		{"conflict", "HTTP/1.1 400 Wrong\r\nES-CurrentVersion: -1\r\nContent-Length: 1\r\n\r\nx", 400, "x", "", -1, false},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n", 200, "wiki0123456789", "", noVersion, false},
		{"no chunk", "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n", 200, "", "", noVersion, false},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nall of it", 200, "all of it", "", noVersion, true},
		{"close", "HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", 200, "x", "", noVersion, true},
		{"old version", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x", "", noVersion, true},
		{"old version kept alive", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", 200, "x", "", noVersion, false},
		{"continue", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nETag: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x", "", noVersion, false},
		{"long", "HTTP/1.1 200 OK\r\nContent-Length: 160000\r\n\r\n" + long, 200, long, "", noVersion, false},
		{"long chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n27100\r\n" + long + "\r\n0\r\n\r\n", 200, long, "", noVersion, false},
	}
	for _, c := range cases {
		for _, source := range []struct {
			name string
			of   func(io.Reader) io.Reader
		}{{"whole", func(r io.Reader) io.Reader { return r }}, {"by byte", iotest.OneByteReader}, {"data with end", iotest.DataErrReader}} {
			t.Run(c.name+" "+source.name, func(t *testing.T) {
				p := newResponseReader(source.of(strings.NewReader(c.text)))
				var resp response
				check.Must(t, p.read(&resp, true))
				if resp.status != c.status || resp.body.String() != c.body || string(resp.location) != c.location ||
					resp.version != c.version || resp.closing != c.closing || resp.length != int64(len(c.body)) {
					t.Errorf("got %+v", resp)
				}
				check.Equal(t, p.read(&resp, true), io.EOF, "behind it")
			})
		}
	}
}

func TestReadResponsesInARow(t *testing.T) {
	text := strings.Repeat("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"+
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"+
		"HTTP/1.1 404 x\r\nContent-Length: 4\r\n\r\nnone", 3000)
	p := newResponseReader(iotest.HalfReader(strings.NewReader(text)))
	var resp response
	for range 3000 {
		for _, want := range []struct {
			status int
			length int64
			body   string
		}{{200, 5, ""}, {200, 3, ""}, {404, 4, "none"}} {
			check.Must(t, p.read(&resp, false))
			if resp.status != want.status || resp.length != want.length || resp.body.String() != want.body {
				t.Fatalf("got %+v, want %+v", resp, want)
			}
		}
	}
}

func TestReadBadResponse(t *testing.T) {
	cases := map[string]struct {
		text string
		want error
	}{
		"nothing":               {"", io.EOF},
		"half a line":           {"HTTP/1.1 2", io.ErrUnexpectedEOF},
		"half a header":         {"HTTP/1.1 200 OK\r\nContent-Le", io.ErrUnexpectedEOF},
		"half a body":           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", io.ErrUnexpectedEOF},
		"half a chunk":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", io.ErrUnexpectedEOF},
		"no last chunk":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", io.ErrUnexpectedEOF},
		"only continue":         {"HTTP/1.1 100 Continue\r\n\r\n", io.ErrUnexpectedEOF},
		"not http":              {"SSH-2.0-OpenSSH_9.2\r\n", errMalformed},
		"http 2":                {"HTTP/2.0 200 OK\r\n\r\n", errMalformed},
		"status letters":        {"HTTP/1.1 2x0 OK\r\n\r\n", errMalformed},
		"status small":          {"HTTP/1.1 099 OK\r\n\r\n", errMalformed},
		"upgrade":               {"HTTP/1.1 101 OK\r\n\r\n", errMalformed},
		"negative length":       {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", errMalformed},
		"huge length":           {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", errMalformed},
		"two lengths":           {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", errMalformed},
		"folded":                {"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", errMalformed},
		"no colon":              {"HTTP/1.1 200 OK\r\nabc\r\n\r\n", errMalformed},
		"other coding":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", errMalformed},
		"chunks of old version": {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", errMalformed},
		"chunk size":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", errMalformed},
		"chunk size overflow":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", errMalformed},
		"chunk too long":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", errMalformed},
		"endless line":          {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 200_000), errMalformed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var resp response
			err := newResponseReader(strings.NewReader(c.text)).read(&resp, true)
			check.Is(t, err, c.want)
		})
	}
}

// FuzzReadResponse holds the parser against itself with the input cut
// in bytes, and against the standard library where both accept the input.
func FuzzReadResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 201 Created\r\nLocation: http://h/streams/a/5\r\nContent-Length: 2\r\n\r\nhi"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwiki\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 304 x\r\nConnection: close\r\nETag: \"1;2\"\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 400 Bad\r\nES-CurrentVersion: 7\r\n\r\nuntil the end"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var whole, cut response
		wholeErr := newResponseReader(bytes.NewReader(text)).read(&whole, true)
		cutErr := newResponseReader(iotest.OneByteReader(bytes.NewReader(text))).read(&cut, true)
		check.MustEqual(t, wholeErr == nil, cutErr == nil, "whole", wholeErr, "by byte", cutErr)
		if wholeErr != nil {
			return
		}
		if whole.status != cut.status || whole.version != cut.version || whole.closing != cut.closing || whole.body.String() != cut.body.String() ||
			!bytes.Equal(whole.location, cut.location) || whole.length != int64(whole.body.Len()) {
			t.Fatalf("whole: %+v, by byte: %+v", whole, cut)
		}
		if bytes.HasPrefix(text[9:], []byte("1")) {
			return // The library returns interim responses.
		}
		std, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
		if err != nil {
			return
		}
		body, err := io.ReadAll(std.Body)
		if err != nil {
			return
		}
		if std.StatusCode != whole.status || string(body) != whole.body.String() {
			t.Fatalf("library: %d %q, here: %d %q", std.StatusCode, body, whole.status, whole.body.String())
		}
	})
}

func BenchmarkReadResponse(b *testing.B) {
	text := "HTTP/1.1 201 Created\r\nAccess-Control-Allow-Headers: " + strings.Repeat("Content-Type, ", 25) +
		"\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: text/plain; charset=utf-8\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n" +
		"Location: http://127.0.0.1:2113/streams/bench-append-000001/12345\r\nContent-Length: 0\r\n\r\n"
	source := strings.NewReader(text)
	p := newResponseReader(source)
	var resp response
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(text)
		check.Must(b, p.read(&resp, false))
	}
}
