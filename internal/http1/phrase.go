package http1

import (
	"context"
	"crypto/tls"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// Clients of HTTP/1.1 read the text of an error in the status line, but net/http writes a fixed
// phrase for every code. So a connection that is handed over to it remembers, on request, the
// phrase of the answer that is about to be written, and exchanges it in the Write that begins with
// that answer's status line. net/http begins every answer with an empty write buffer, hence a
// status line always stands at the beginning of a Write, also with keep-alive and pipelined
// requests.
//
// Above TLS the connection must sit on top of the *tls.Conn, since below it sees
// encrypted bytes. net/http serves HTTP/2 only on a bare *tls.Conn; on any other
// type it speaks HTTP/1.1 and takes Request.TLS from a ConnectionState method. A
// TLS listener therefore finishes the handshake, and the bare *tls.Conn is handed on
// when "h2" was negotiated, which has no phrases, and wrapConn of it otherwise.

// SetReason puts the phrase into the status line of the answer to the request
// with the context, provided that it has the code and its connection speaks
// HTTP/1. It must be called before WriteHeader.
func SetReason(ctx context.Context, code int, phrase string) {
	if c, ok := ctx.Value(connKey{}).(phraser); ok {
		c.setReason(code, phrase)
	}
}

// Fields are header fields whose values never change.
type Fields struct {
	header http.Header
	lines  string // as they stand on the wire
}

// NewFields takes names, as the header map holds them, and values by turns.
func NewFields(pairs ...string) *Fields {
	f := &Fields{header: http.Header{}}
	for i := 0; i < len(pairs); i += 2 {
		f.header[pairs[i]] = []string{pairs[i+1]}
		f.lines += pairs[i] + ": " + pairs[i+1] + "\r\n"
	}
	return f
}

// SetFields makes the answer to the request with the context have the fields, in the place of any
// that were set before; a nil f takes those back. If net/http writes the answer they are put into
// its header map h, whose other fields stay.
func SetFields(ctx context.Context, h http.Header, f *Fields) {
	if w, ok := ctx.Value(connKey{}).(*response); ok {
		w.fixed = f
	} else if f != nil {
		maps.Copy(h, f.header)
	}
}

type connKey struct{}

// phraser can put a phrase into the next status line.
type phraser interface {
	setReason(code int, phrase string)
}

func (w *response) setReason(code int, phrase string) { w.code, w.reason = code, phrase }

// wrapConn makes a connection ready for net/http. It keeps the optional methods that net/http looks
// for: ReadFrom, by which it sends files, CloseWrite, by which it ends a connection gently, and
// ConnectionState, by which it tells the handler about TLS.
func wrapConn(c *conn) net.Conn {
	p := &phraseConn{begunConn: begunConn{c.net, c.ctx, c.buf[c.from:c.to]}}
	switch c := c.net.(type) {
	case *tls.Conn:
		return &tlsConn{phraseConn: p, tls: c}
	case tcp:
		return &tcpConn{phraseConn: p, tcp: c}
	}
	return p
}

// tcp is what a connection of TCP has beyond a net.Conn.
type tcp interface {
	net.Conn
	io.ReaderFrom
	CloseWrite() error
}

// begunConn is a connection of which something was read before.
type begunConn struct {
	net.Conn
	ctx  context.Context
	rest []byte // what was read
}

// NetConn returns the connection below.
func (c *begunConn) NetConn() net.Conn { return c.Conn }

func (c *begunConn) context() context.Context { return c.ctx }

// Read returns the bytes that were read before, and then new ones.
func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		if c.rest = c.rest[n:]; len(c.rest) == 0 {
			c.rest = nil // It holds a buffer.
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// phraseConn is a connection whose next status line may get another phrase.
type phraseConn struct {
	begunConn

	// The phrase is set by the handler and taken by the Write of its status line.
	// Both run on the connection's goroutine as a rule; the lock covers the
	// Write of an interim answer by a body that another goroutine reads.
	mu     sync.Mutex
	code   int // which has the phrase; 0: none
	phrase string
}

func (c *phraseConn) setReason(code int, phrase string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.code, c.phrase = code, phrase
}

// take returns the phrase of an answer that has the code, once.
func (c *phraseConn) take(code int) (phrase string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if code < 200 { // Not the beginning of an answer, or an interim one.
		return "", false
	}
	phrase, ok = c.phrase, c.code == code
	c.code, c.phrase = 0, ""
	return phrase, ok
}

func (c *phraseConn) Write(p []byte) (int, error) {
	code, phraseAt, end := statusLine(p)
	phrase, ok := c.take(code)
	if !ok {
		return c.Conn.Write(p)
	}
	b := append(make([]byte, 0, len(p)+len(phrase)), p[:phraseAt]...)
	b = appendPhrase(b, phrase)
	grown := len(b) - end
	n, err := c.Conn.Write(append(b, p[end:]...))
	// The caller counts its own bytes.
	if err == nil {
		return len(p), nil
	}
	return max(0, min(n-grown, len(p))), err
}

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
	*phraseConn
	tcp tcp
}

// ReadFrom sends what r holds, by the kernel if it can. net/http calls it only after it has written
// a status line.
func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) { return c.tcp.ReadFrom(r) }

// CloseWrite ends the sending half.
func (c *tcpConn) CloseWrite() error { return c.tcp.CloseWrite() }

// tlsConn is a phraseConn above a TLS connection whose handshake is done.
type tlsConn struct {
	*phraseConn
	tls *tls.Conn
}

// ConnectionState is where net/http takes Request.TLS from.
func (c *tlsConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// CloseWrite ends the sending half.
func (c *tlsConn) CloseWrite() error { return c.tls.CloseWrite() }
