package http1

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	// maxWhole bounds what is held back of a body, in bytes, so that it goes out in few pieces.
	maxWhole = 128 << 10
	// maxTimed bounds it for a handler that bounds the time of writing: it means a short piece.
	maxTimed = 4 << 10
	// headroom is what is left before it in the buffer, for the header.
	headroom = 2 << 10
	// maxPooled bounds the buffers that are kept.
	maxPooled = 256 << 10
)

// response is a http.ResponseWriter. Each connection has one.
type response struct {
	c       *conn
	request *http.Request
	body    *body // of the request
	header  http.Header
	names   []string // of the fields

	code   int // that the reason is for; 0: none
	reason string
	fixed  *Fields

	status  int    // 0: WriteHeader was not called yet
	head    []byte // status line and fields, without the last ones
	length  int64  // of the body as the handler says; -1: it does not
	written int64  // by the handler
	out     *[]byte
	hasDate bool
	hasType bool // or is not to have one

	isSent    bool // the header is out
	isChunked bool
	isLast    bool // the connection ends with this answer
	isTimed   bool // the handler set a deadline
	isTried   bool // to read what is left of the request
	err       error
}

var buffers = sync.Pool{New: func() any { b := make([]byte, headroom, 8<<10); return &b }}

// begin prepares for the answer to a request.
func (w *response) begin(c *conn, r *http.Request, b *body) {
	header, head, names := w.header, w.head, w.names
	if header == nil {
		header = http.Header{}
	}
	clear(header)
	*w = response{c: c, request: r, body: b, header: header, head: head[:0], names: names[:0], length: -1, isLast: r.Close}
}

// release lets go of the request.
func (w *response) release() {
	w.drop()
	w.request, w.body = nil, nil
}

// drop gives the buffer back.
func (w *response) drop() {
	if w.out != nil && cap(*w.out) <= maxPooled {
		*w.out = (*w.out)[:headroom]
		buffers.Put(w.out)
	}
	w.out = nil
}

// Header returns the fields that WriteHeader sends.
func (w *response) Header() http.Header { return w.header }

// WriteHeader ends the header. Interim answers are not sent: a client need not get them.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status = status
	b := append(w.head, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	switch text := http.StatusText(status); {
	case w.code == status:
		b = appendPhrase(b, w.reason)
	case text != "":
		b = append(b, text...)
	default:
		b = strconv.AppendInt(append(b, "status code "...), int64(status), 10)
	}
	b = append(b, "\r\n"...)
	if w.fixed != nil {
		b = append(b, w.fixed.lines...)
	}
	for name := range w.header {
		w.names = append(w.names, name)
	}
	slices.Sort(w.names) // So that the same answer is the same to the byte.
	for _, name := range w.names {
		values := w.header[name]
		switch name {
		case "Content-Length":
			if n, err := strconv.ParseInt(strings.Join(values, ","), 10, 64); err == nil && n >= 0 && status != http.StatusNoContent && status != http.StatusNotModified {
				w.length = n
			}
			continue
		case "Content-Type":
			w.hasType = true
			if status == http.StatusNotModified {
				continue
			}
		case "Content-Encoding":
			w.hasType = w.hasType || len(values) > 0 && values[0] != ""
		case "Date":
			w.hasDate = true
		case "Connection":
			w.isLast = w.isLast || len(values) > 0 && values[0] == "close"
			continue
		case "Transfer-Encoding": // It is ours to choose.
			w.hasType = true
			continue
		}
		if !httpguts.ValidHeaderFieldName(name) {
			continue
		}
		for _, value := range values {
			b = append(b, name...)
			b = append(b, ": "...)
			b = appendValue(b, value)
			b = append(b, "\r\n"...)
		}
	}
	w.head = b
}

// hasBody reports whether an answer of the status may have a body, be it one that HEAD leaves out.
func (w *response) hasBody() bool {
	return w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

func (w *response) isHead() bool { return w.request.Method == http.MethodHead }

// Write sends bytes of the body, sooner or later.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case len(p) == 0:
		return 0, nil
	case !w.hasBody():
		return 0, http.ErrBodyNotAllowed
	}
	if w.written += int64(len(p)); w.length >= 0 && w.written > w.length {
		return 0, http.ErrContentLength
	}
	if w.isHead() { // Its type is asked for alone.
		w.hold(p[:min(len(p), 512)])
		return len(p), nil
	}
	most := maxWhole
	if w.isTimed {
		most = maxTimed
	}
	if w.out != nil && len(*w.out)-headroom+len(p) > most || w.out == nil && len(p) > most {
		if err := w.send(p, false); err != nil {
			return 0, err
		}
	}
	if len(p) > most {
		return w.sendLarge(p)
	}
	w.hold(p)
	return len(p), nil
}

// hold keeps a part of the body until it is sent.
func (w *response) hold(p []byte) {
	if w.out == nil {
		w.out = buffers.Get().(*[]byte)
	}
	*w.out = append(*w.out, p...)
}

// FlushError sends the bytes written so far.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return w.send(nil, false)
}

// Flush is FlushError for those who do not ask.
func (w *response) Flush() { _ = w.FlushError() }

// SetReadDeadline bounds the reading of the request's body.
func (w *response) SetReadDeadline(t time.Time) error {
	w.isTimed = true
	return w.c.net.SetReadDeadline(t)
}

// SetWriteDeadline bounds the writing of the answer.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.isTimed = true
	return w.c.net.SetWriteDeadline(t)
}

// finish sends the rest of the answer, and reads the rest of the request.
func (w *response) finish() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	err := w.send(nil, true)
	if w.length >= 0 && w.written != w.length && !w.isHead() {
		w.isLast = true // The handler is not to be trusted with more.
	}
	if err == nil && w.isTimed {
		err = w.c.net.SetDeadline(time.Time{})
	}
	return err
}

// send sends the part that is held back, the last of the answer or not. What comes next may tell
// the type of the body.
func (w *response) send(next []byte, last bool) error {
	if w.err != nil {
		return w.err
	}
	var content []byte
	if w.out != nil {
		content = (*w.out)[headroom:]
	}
	if !w.isSent {
		// A client that sends all of its request before it reads must not wait for us.
		if !w.isLast && w.takeRest() != nil {
			w.isLast = true
		}
		if len(content) > 0 {
			next = content
		}
		w.head = w.appendLast(w.head, next, last)
		w.isSent = true
	}
	if w.isHead() {
		w.drop()
		content = nil
	}
	if w.isChunked && len(content) > 0 {
		w.head = appendSize(w.head, len(content))
		*w.out = append(*w.out, "\r\n"...)
	}
	if w.isChunked && last {
		if w.out != nil {
			*w.out = append(*w.out, "0\r\n\r\n"...)
		} else {
			w.head = append(w.head, "0\r\n\r\n"...)
		}
	}
	err := w.failed(w.write())
	w.drop()
	return err
}

// write writes what stands in head and out, with one call if it can.
func (w *response) write() error {
	head := w.head
	w.head = head[:0]
	if w.out != nil && len(head) <= headroom {
		gap := (*w.out)[headroom-len(head):]
		copy(gap, head)
		_, err := w.c.write(gap)
		return err
	}
	if len(head) > 0 {
		if _, err := w.c.write(head); err != nil {
			return err
		}
	}
	if w.out == nil {
		return nil
	}
	_, err := w.c.write((*w.out)[headroom:])
	return err
}

// sendLarge sends a part of the body without a copy of it, after all that was written before.
func (w *response) sendLarge(p []byte) (int, error) {
	if w.isChunked {
		w.head = appendSize(w.head, len(p))
		if err := w.failed(w.write()); err != nil {
			return 0, err
		}
		w.head = append(w.head, "\r\n"...) // It goes out with what follows.
	}
	n, err := w.c.write(p)
	return n, w.failed(err)
}

// appendSize begins a chunk.
func appendSize(b []byte, n int) []byte {
	return append(strconv.AppendInt(b, int64(n), 16), "\r\n"...)
}

// takeRest reads the part of the request's body that the handler did not read.
func (w *response) takeRest() error {
	b := w.body
	if w.isTried || b.isTaken() {
		return nil
	}
	w.isTried = true
	c := w.c
	if most := c.server.others.ReadHeaderTimeout; most > 0 {
		if err := c.net.SetReadDeadline(time.Now().Add(most)); err != nil {
			return err
		}
	}
	if err := b.drain(); err != nil {
		return err
	}
	return c.net.SetReadDeadline(time.Time{})
}

// appendLast ends the header, now that it is known how the body goes out.
func (w *response) appendLast(b, content []byte, last bool) []byte {
	if w.hasBody() {
		if !w.hasType && len(content) > 0 {
			b = append(b, "Content-Type: "...)
			b = append(b, http.DetectContentType(content)...)
			b = append(b, "\r\n"...)
		}
		if w.length < 0 && last && (!w.isHead() || w.written > 0) {
			w.length = w.written
		}
		switch {
		case w.length >= 0:
			b = append(b, "Content-Length: "...)
			b = strconv.AppendInt(b, w.length, 10)
			b = append(b, "\r\n"...)
		case !w.isHead():
			w.isChunked = true
			b = append(b, "Transfer-Encoding: chunked\r\n"...)
		}
	}
	if !w.hasDate {
		b = append(b, *w.c.server.date.Load()...)
	}
	if w.isLast = w.isLast || w.c.server.isClosing(); w.isLast {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// failed takes down that the client can no longer be written to.
func (w *response) failed(err error) error {
	if err != nil {
		w.err = err
		w.c.leave()
	}
	return err
}

// appendValue appends a field's value without what would end it.
func appendValue(b []byte, value string) []byte {
	if strings.ContainsAny(value, "\r\n") {
		value = strings.NewReplacer("\r", " ", "\n", " ").Replace(value)
	}
	return append(b, strings.Trim(value, " \t")...)
}
