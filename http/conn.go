package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// Clients of HTTP/1.1 read the text of an error in the status line, but net/http
// writes a fixed phrase for every code. So a connection remembers, on request,
// the phrase of the answer that is about to be written, and exchanges it in the
// Write that begins with that answer's status line. net/http begins every answer
// with an empty write buffer, hence a status line always stands at the beginning
// of a Write, also with keep-alive and pipelined requests.
//
// In the same Write it puts the header lines that are the same in nearly all answers
// behind the status line. In the header map they would be copied, sorted and written
// one by one for each answer, and a map of more than eight is several times as dear.
//
// net/http writes an answer whose body exceeds its buffer in two pieces, which cost the
// server a second system call and the client a second wake-up. A connection keeps the
// first piece for the second when the handler says how long the body is.
//
// Above TLS the connection must sit on top of the *tls.Conn, since below it sees
// encrypted bytes. net/http serves HTTP/2 only on a bare *tls.Conn; on any other
// type it speaks HTTP/1.1 and takes Request.TLS from a ConnectionState method. A
// TLS listener therefore finishes the handshake, hands on the bare *tls.Conn
// when "h2" was negotiated, which has no phrases, and wrapConn of it otherwise.

// Listener returns l with connections that can put phrases into status lines.
// The http.Server that serves it must have ConnContext as its ConnContext.
func Listener(l net.Listener) net.Listener { return phraseListener{l} }

// ConnContext makes a connection of a Listener reachable from its requests.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if p, ok := c.(phraser); ok {
		return context.WithValue(ctx, connKey{}, p)
	}
	return ctx
}

// SetReason puts the phrase into the status line of the answer to the request
// with the context, provided that it has the code and its connection is one of a
// Listener. Otherwise it does nothing.
func SetReason(ctx context.Context, code int, phrase string) {
	if c, ok := ctx.Value(connKey{}).(phraser); ok {
		c.SetReason(code, phrase)
	}
}

// setWhole makes the answer to the request with the context, whose body of so many bytes the
// handler writes with one call of Write, go out in one piece if it is of usual size.
func setWhole(ctx context.Context, body int) {
	if c, ok := ctx.Value(connKey{}).(phraser); ok && body <= maxWhole {
		c.setWhole(body)
	}
}

// maxWhole bounds the bodies of answers that are copied to go out in one piece.
const maxWhole = 128 << 10

// fixedFields are header fields whose values never change.
type fixedFields struct {
	header http.Header
	lines  string // as they stand on the wire
}

// newFixedFields takes names, as the header map holds them, and values by turns.
func newFixedFields(pairs ...string) *fixedFields {
	f := &fixedFields{header: http.Header{}}
	for i := 0; i < len(pairs); i += 2 {
		f.header[pairs[i]] = []string{pairs[i+1]}
		f.lines += pairs[i] + ": " + pairs[i+1] + "\r\n"
	}
	return f
}

// setFixed makes the answer to the request with the context begin with the fields, in
// the place of any that were set before. A nil f takes those back. Where the
// connection cannot, as with HTTP/2, they are set in the header map.
func setFixed(ctx context.Context, h http.Header, f *fixedFields) {
	if c, ok := ctx.Value(connKey{}).(phraser); ok {
		c.setFixed(f)
	} else if f != nil {
		maps.Copy(h, f.header)
	}
}

type connKey struct{}

// phraser is a connection that can put a phrase into its next status line, and
// fields behind it.
type phraser interface {
	SetReason(code int, phrase string)
	setFixed(f *fixedFields)
	setWhole(body int)
}

type phraseListener struct{ net.Listener }

func (l phraseListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	// HTTP/2 has no phrases, and net/http speaks it only on a connection that it knows.
	if t, ok := c.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
		return c, nil
	}
	return wrapConn(c), nil
}

// wrapConn keeps the optional methods that net/http looks for: ReadFrom, by which
// it sends files, CloseWrite, by which it ends a connection gently, and
// ConnectionState, by which it tells the handler about TLS.
func wrapConn(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *tls.Conn:
		return &tlsConn{phraseConn: phraseConn{Conn: c}, tls: c}
	case tcp:
		return &tcpConn{phraseConn: phraseConn{Conn: c}, tcp: c}
	}
	return &phraseConn{Conn: c}
}

// tcp is what a connection of TCP has beyond a net.Conn.
type tcp interface {
	net.Conn
	io.ReaderFrom
	CloseWrite() error
}

// start is what the next answer begins with.
type start struct {
	code   int // which has the phrase; 0: none
	phrase string
	fixed  *fixedFields // nil: none
	body   int          // bytes of the body, where it goes out with the header; 0: as it comes
}

// phraseConn is a connection whose next status line may get another phrase, and
// fields behind it.
type phraseConn struct {
	net.Conn

	// next is set by the handler and taken by the Write of its status line.
	// Both run on the connection's goroutine as a rule; the lock covers the
	// Write of an interim answer by a body that another goroutine reads.
	mu   sync.Mutex
	next start

	// held is the beginning of an answer that goes out with the rest of its body.
	held    *[]byte
	missing int
}

// NetConn returns the connection below.
func (c *phraseConn) NetConn() net.Conn { return c.Conn }

// SetReason makes the next status line with the code carry the phrase.
func (c *phraseConn) SetReason(code int, phrase string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next.code, c.next.phrase = code, phrase
}

func (c *phraseConn) setFixed(f *fixedFields) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next.fixed, c.next.body = f, 0 // Whatever an answer before said of itself.
}

func (c *phraseConn) setWhole(body int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next.body = body
}

// take returns what an answer begins with that has the code, once.
func (c *phraseConn) take(code int) start {
	c.mu.Lock()
	defer c.mu.Unlock()
	if code < 200 || c.next == (start{}) { // Not the beginning of an answer, or an interim one.
		return start{}
	}
	s := c.next
	c.next = start{}
	if s.code != code {
		s.code = 0
	}
	return s
}

func (c *phraseConn) Write(p []byte) (int, error) {
	if c.held != nil {
		return c.writeRest(p)
	}
	code, phraseAt, end := statusLine(p)
	want := c.take(code)
	if want == (start{}) {
		return c.Conn.Write(p)
	}
	buf := writeBuffers.Get().(*[]byte)
	b := append((*buf)[:0], p[:phraseAt]...)
	if want.code != 0 {
		b = appendPhrase(b, want.phrase)
	} else {
		b = append(b, p[phraseAt:end]...)
	}
	if want.fixed != nil {
		b = append(b, "\r\n"...)
		b = append(b, want.fixed.lines...)
		end += len("\r\n")
	}
	grown := len(b) - end
	b = append(b, p[end:]...)
	*buf = b
	if c.missing = want.missing(p); c.missing > 0 {
		c.held = buf
		return len(p), nil
	}
	n, err := c.send(buf)
	// The caller counts its own bytes.
	if err == nil {
		return len(p), nil
	}
	return max(0, min(n-grown, len(p))), err
}

// missing is how much of the body does not stand in p, which begins with the answer; 0 where it is not known.
func (s *start) missing(p []byte) int {
	if s.body == 0 {
		return 0
	}
	const end = "\r\n\r\n"
	at := bytes.Index(p, []byte(end))
	if at < 0 {
		return 0
	}
	return s.body - (len(p) - at - len(end))
}

// writeRest sends what was held once the body is whole.
func (c *phraseConn) writeRest(p []byte) (int, error) {
	*c.held = append(*c.held, p...)
	if c.missing -= len(p); c.missing > 0 {
		return len(p), nil
	}
	buf, before := c.held, len(*c.held)-len(p)
	c.held = nil
	n, err := c.send(buf)
	if err == nil {
		return len(p), nil
	}
	return max(0, n-before), err
}

// send writes a buffer of writeBuffers and gives it back.
func (c *phraseConn) send(buf *[]byte) (int, error) {
	n, err := c.Conn.Write(*buf)
	if cap(*buf) <= maxPooledBuffer {
		writeBuffers.Put(buf)
	}
	return n, err
}

var writeBuffers = sync.Pool{New: func() any { return new([]byte) }}

// statusLine finds the code and the bounds of the phrase in bytes that begin
// with a whole HTTP/1 status line. The code is 0 when they do not.
func statusLine(p []byte) (code, phraseAt, end int) {
	const prefix = "HTTP/1.1 " // Its last digit may differ.
	const at = len(prefix) + len("200 ")
	if len(p) < at || string(p[:7]) != prefix[:7] || p[8] != ' ' || p[at-1] != ' ' {
		return 0, 0, 0
	}
	code, err := strconv.Atoi(string(p[len(prefix) : at-1]))
	if err != nil {
		return 0, 0, 0
	}
	for i := at; i+1 < len(p); i++ {
		if p[i] == '\r' && p[i+1] == '\n' {
			return code, at, i
		}
	}
	return 0, 0, 0
}

// maxPhrase bounds the phrase: some clients refuse long status lines.
const maxPhrase = 512

// appendPhrase appends the phrase without what would end the status line or is
// not allowed in one: controls become blanks, the rest stays.
func appendPhrase(b []byte, phrase string) []byte {
	if len(phrase) > maxPhrase {
		phrase = phrase[:maxPhrase]
	}
	for i := range len(phrase) {
		c := phrase[i]
		if c < ' ' || c == 0x7f {
			c = ' '
		}
		b = append(b, c)
	}
	return b
}

// tcpConn is a phraseConn on TCP.
type tcpConn struct {
	phraseConn
	tcp tcp
}

// ReadFrom sends what r holds, by the kernel if it can. net/http calls it only
// behind a written status line.
func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) { return c.tcp.ReadFrom(r) }

// CloseWrite ends the sending half.
func (c *tcpConn) CloseWrite() error { return c.tcp.CloseWrite() }

// tlsConn is a phraseConn above a TLS connection whose handshake is done.
type tlsConn struct {
	phraseConn
	tls *tls.Conn
}

// ConnectionState is where net/http takes Request.TLS from.
func (c *tlsConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// CloseWrite ends the sending half.
func (c *tlsConn) CloseWrite() error { return c.tls.CloseWrite() }
