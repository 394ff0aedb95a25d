package http1

import (
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// MaxBody bounds the bodies of plain requests, in bytes.
const MaxBody = 256 << 10

// maxFields bounds the lines of a plain request's header.
const maxFields = 64

// parse makes a request of a header, up to and with the blank line. It is nil if the request
// is not plain. The body is not set.
func parse(head []byte) *http.Request {
	text := string(head[:len(head)-len("\r\n")]) // All of the request's strings are parts of it.
	line, rest, _ := strings.Cut(text, "\r\n")
	method, target := requestLine(line)
	if method == "" {
		return nil
	}
	lines := strings.Count(rest, "\n")
	if lines > maxFields {
		return nil
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil
	}
	r := &http.Request{
		Method: method, RequestURI: target, URL: u,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, lines),
	}
	values := make([]string, lines)
	for i := range lines {
		line, rest, _ = strings.Cut(rest, "\r\n")
		name, value := field(line)
		if name == "" || !isPlain(r, name, value) {
			return nil
		}
		if name == "Host" {
			r.Host = value
			continue
		}
		if before := r.Header[name]; before != nil {
			r.Header[name] = append(before, value)
			continue
		}
		values[i] = value
		r.Header[name] = values[i : i+1 : i+1]
	}
	if r.Host == "" {
		return nil
	}
	return r
}

// requestLine takes the line apart. The method is empty if it is not plain.
func requestLine(line string) (method, target string) {
	method, rest, _ := strings.Cut(line, " ")
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions:
	default:
		return "", ""
	}
	target, version, _ := strings.Cut(rest, " ")
	if version != "HTTP/1.1" || target == "" || target[0] != '/' || !httpguts.ValidHeaderFieldValue(target) {
		return "", ""
	}
	return method, target
}

// field takes a line of the header apart. The name is empty if the line is not well-formed.
func field(line string) (name, value string) {
	colon := strings.IndexByte(line, ':')
	if colon < 0 || !httpguts.ValidHeaderFieldName(line[:colon]) {
		return "", ""
	}
	value = strings.Trim(line[colon+1:], " \t")
	if !httpguts.ValidHeaderFieldValue(value) {
		return "", ""
	}
	return textproto.CanonicalMIMEHeaderKey(line[:colon]), value
}

// isPlain reports whether the request stays plain with the field, and takes down what it says of
// the request.
func isPlain(r *http.Request, name, value string) bool {
	switch name {
	case "Host":
		return r.Host == "" && value != "" && httpguts.ValidHostHeader(value)
	case "Content-Length":
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil || n > MaxBody || r.Header[name] != nil || value[0] == '0' && len(value) > 1 {
			return false
		}
		r.ContentLength = int64(n)
	case "Connection":
		r.Close = value == "close"
		return r.Header[name] == nil && (r.Close || strings.EqualFold(value, "keep-alive"))
	case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Pragma", "Http2-Settings":
		return false
	}
	return true
}

// body is that of a request. A handler may leave it to another goroutine, which may read on
// when the request is over: it finds it closed then.
type body struct {
	mu     sync.Mutex
	c      *conn
	left   int64
	closed bool
}

// Read reads from the body.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

func (b *body) read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.c.read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if b.left == 0 {
		b.c.taken()
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close ends the reading. The connection reads the rest.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

func (b *body) isTaken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left == 0
}

// drain throws away the rest, which is short. A reader that continues must not take that for the
// end.
func (b *body) drain() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for b.left > 0 {
		if _, err := b.read(b.c.buf); err != nil {
			return err
		}
	}
	return nil
}
