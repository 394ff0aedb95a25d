package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
)

// bounds are what is said of the ends of connections and bodies.
var bounds = regexp.MustCompile(`(?m) (?:true|false) |^length .*$`)

// pair is our server and one of net/http, which are to answer the same, as is our server that
// leaves all to net/http.
type pair struct{ ours, handed, theirs string }

func newPair(t testing.TB) pair {
	_, ours := start(t, obey)
	_, handed := startBy(t, obey, true)
	l := listen(t)
	serve(t, &http.Server{Handler: http.HandlerFunc(obey), ErrorLog: hclog.NewNullLogger().StandardLogger(nil)}, l)
	return pair{ours, handed, l.Addr().String()}
}

// exchange sends the bytes, and no more, and returns all answers in a form in which they can be
// compared.
func exchange(t testing.TB, address string, sent []byte) string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = c.Write(sent)
	if err == nil {
		err = c.(*net.TCPConn).CloseWrite()
	}
	all, readErr := io.ReadAll(c)
	if n, ok := readErr.(net.Error); ok && n.Timeout() {
		t.Fatalf("%q: no end after %q", sent, all)
	}
	_ = err // A server may have closed the connection before it had everything.
	return summary(all, sent)
}

// summary leaves out of answers what may differ: the time, the order of fields, and whether the
// length of a body is given in the header or in chunks.
func summary(all, sent []byte) string {
	var b strings.Builder
	r := bufio.NewReader(bytes.NewReader(all))
	for {
		if _, err := r.Peek(1); err != nil {
			return b.String()
		}
		method := http.MethodGet
		if bytes.HasPrefix(sent, []byte("HEAD ")) {
			method = http.MethodHead
		}
		a, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			fmt.Fprintf(&b, "no answer: %v\n", err)
			return b.String()
		}
		body, err := io.ReadAll(a.Body)
		fmt.Fprintf(&b, "%s %s %v %d %v %x\n", a.Proto, a.Status, a.Close, len(body), err, body[:min(len(body), 4000)])
		if method == http.MethodHead {
			fmt.Fprintln(&b, "length", a.ContentLength)
		}
		for _, name := range slices.Sorted(maps.Keys(a.Header)) {
			if name != "Date" && name != "Content-Length" {
				fmt.Fprintf(&b, "%s: %q\n", name, a.Header[name])
			}
		}
		if err != nil {
			return b.String()
		}
	}
}

func (p pair) compare(t testing.TB, sent []byte) {
	t.Helper()
	ours, handed, theirs := exchange(t, p.ours, sent), exchange(t, p.handed, sent), exchange(t, p.theirs, sent)
	if ours != theirs {
		t.Errorf("%q:\nours   %s\ntheirs %s", sent, ours, theirs)
	}
	if handed != theirs {
		t.Errorf("%q:\nhanded %s\ntheirs %s", sent, handed, theirs)
	}
}

// alike are bytes of clients that get the same answers of us as of net/http.
var alike = []string{
	"",
	"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /a/b%20c?x=1&y HTTP/1.1\r\nHost: h:2113\r\nAccept: */*\r\nACCEPT: text/html\r\naccept-language:\t de \r\n\r\n",
	"HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n",
	"HEAD /?head=Content-Length:12 HTTP/1.1\r\nHost: h\r\n\r\n",
	"HEAD /?flush HTTP/1.1\r\nHost: h\r\n\r\n",
	"HEAD /?write=5000&flush HTTP/1.1\r\nHost: h\r\n\r\n",
	"OPTIONS / HTTP/1.1\r\nHost: h\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST /?all HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET /next HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET /next HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST /?read=2 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET /next HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST /?read=9 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
	"POST /?flush&all HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", "POST /?read=2&flush&all HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
	"POST /?all HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"PUT /?all HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxyDELETE / HTTP/1.1\r\nHost: h\r\n\r\n",
	// Connections that stay or close.
	"GET /1 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /3 HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?head=Connection:close HTTP/1.1\r\nHost: h\r\n\r\nGET /3 HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\nConnection: x, close\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
	"GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
	"GET /?abort HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?write=10&flush&write=4&abort HTTP/1.1\r\nHost: h\r\n\r\n",
	// Answers of all kinds.
	"GET /?status=204 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?head=Content-Length:3&head=Content-Type:x&status=304 HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?status=204&write=3 HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?head=Content-Length:7&status=204 HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?status=418 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?status=599 HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?head=Content-Length:7&write=7 HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?head=Content-Length:7&write=8 HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?head=Content-Length:500000&write=500000 HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?head=Content-Length:5000000&write=7 HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?head=Content-Length:x HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?head=Content-Length:-1 HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?write=300000&write=10&write=200000 HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?write=10&flush&write=10&flush&flush&write=300000 HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?head=Date:now&head=X:1&head=X:2&head=Y:a%0d%0aZ:b HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?head=Content-Encoding:gzip HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?none=Content-Type HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?head=Content-Type:text/x HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?flush&late=X-Late HTTP/1.1\r\nHost: h\r\n\r\n",
	"GET /?status=200&late=X-Late HTTP/1.1\r\nHost: h\r\n\r\n", "GET /?head=Transfer-Encoding:chunked&write=9 HTTP/1.1\r\nHost: h\r\n\r\n",
	// Not plain, or wrong.
	"POST /?all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
	"POST /?all HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"POST /?all HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: h\r\nExpect: x\r\nContent-Length: 3\r\n\r\nabc",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 03\r\n\r\nabc", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: \r\n\r\nabc",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3 \r\n\r\nabc", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\nabc",
	"GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost:\r\n\r\n", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n x\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX y: 1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: \xff\xfe\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n:x\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n",
	"GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
	"GET http://other/x HTTP/1.1\r\nHost: a\r\n\r\n", "GET //x//y HTTP/1.1\r\nHost: a\r\n\r\n", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /? HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", "get / HTTP/1.1\r\nHost: a\r\n\r\n", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nPragma: no-cache\r\n\r\n",
	"GET / HTTP/1.1\r\nHo", "GET / HTT", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "\x16\x03\x01\x00\x05hello", "GET /1 HTTP/1.1\r\nHost: h\r\n\r\nrubbish\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 5000) + "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 100) + "\r\n",
	"POST /?all HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat("z", 10000) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat("z", 10000) + "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /?read=5 HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + strings.Repeat("z", 300000),
}

// TestSameAsNetHTTP: nothing tells a client which of the two answers, but what the package's
// comment names.
func TestSameAsNetHTTP(t *testing.T) {
	p := newPair(t)
	for _, sent := range alike {
		p.compare(t, []byte(sent))
	}
}

func FuzzSameAsNetHTTP(f *testing.F) {
	for _, sent := range alike {
		if len(sent) < 1000 {
			f.Add([]byte(sent))
		}
	}
	p := newPair(f)
	f.Fuzz(func(t *testing.T, sent []byte) {
		// It is requests that this is about, not what handlers can do.
		if bytes.Contains(sent, []byte("head")) {
			t.Skip()
		}
		// We say more: of a body that breaks off, that the connection ends, and of one that HEAD
		// leaves out, its length.
		ours, theirs := bounds.ReplaceAllString(exchange(t, p.ours, sent), ""), bounds.ReplaceAllString(exchange(t, p.theirs, sent), "")
		if ours != theirs {
			t.Errorf("%q:\nours   %s\ntheirs %s", sent, ours, theirs)
		}
	})
}

// TestInPieces: how the bytes of a request come does not matter.
func TestInPieces(t *testing.T) {
	p := newPair(t)
	const sent = "POST /?all HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\r\nGET /next HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\nPragma: x\r\n\r\n"
	want := exchange(t, p.theirs, []byte(sent))
	for _, size := range []int{1, 2, 3, 7, 50} {
		c := dial(t, p.ours)
		go func() {
			for b := sent; b != ""; {
				n := min(size, len(b))
				if _, err := io.WriteString(c, b[:n]); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(100 * time.Microsecond) // So that pieces come alone.
				b = b[n:]
			}
			if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
		}()
		check.Equal(t, summary([]byte(c.ended()), nil), want, fmt.Sprintf("pieces of %d", size))
	}
}

// TestSameAnswers: whatever a handler does in whatever order, its client sees what it sees of
// net/http.
func TestSameAnswers(t *testing.T) {
	p := newPair(t)
	ops := strings.Fields("status=200 status=204 status=304 status=404 status=410 head=Content-Length:10 head=Content-Length:0 head=Content-Length:400 " +
		"head=Connection:close head=Content-Type:text/x head=X:1 head=x-low:%20a%20 none=Content-Type none=Date none=Content-Length write=0 write=1 write=10 " +
		"write=400 write=3000 write=140000 flush late=X-Late head=Content-Encoding:gzip head=Content-Encoding: head=Set-Cookie:a head=Set-Cookie:b head=Bad%20Name:1")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		var sent strings.Builder
		for n := 1 + r.IntN(2); n > 0; n-- {
			method, body := []string{"GET", "GET", "POST", "PUT"}[r.IntN(4)], ""
			if n == 1 && sent.Len() == 0 && r.IntN(4) == 0 {
				method = "HEAD" // Alone: the end of its answer does not show.
			}
			if method == "POST" || method == "PUT" {
				body = "hello"
			}
			// First: net/http lets nothing be read when the answer has begun.
			query := []string{"", "all", "read=2"}[r.IntN(3)]
			for range r.IntN(6) {
				if op := ops[r.IntN(len(ops))]; !strings.Contains(op, "Content-Length") || !strings.Contains(query, "Content-Length") {
					query += "&" + op
				}
			}
			fmt.Fprintf(&sent, "%s /?%s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s", method, query, len(body), body)
		}
		ours, theirs := exchange(t, p.ours, []byte(sent.String())), exchange(t, p.theirs, []byte(sent.String()))
		if bounds.ReplaceAllString(ours, "") != bounds.ReplaceAllString(theirs, "") {
			t.Fatalf("%q:\nours   %.700s\ntheirs %.700s", sent.String(), ours, theirs)
		}
	}
}
