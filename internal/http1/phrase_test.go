package http1

import (
	"errors"
	"io"
	"net"
	"testing"
)

// brokenConn takes some bytes and fails.
type brokenConn struct {
	net.Conn
	takes int
}

func (c *brokenConn) Write([]byte) (int, error) { return c.takes, io.ErrShortWrite }

func TestPhraseOfABrokenConnection(t *testing.T) {
	const head = "HTTP/1.1 410 Gone\r\n\r\nbody"
	for takes, want := range map[int]int{0: 0, 5: 2, 28: 25} {
		c := wrapConn(&conn{net: &brokenConn{takes: takes}})
		c.(phraser).setReason(410, "Deleted")
		if n, err := c.Write([]byte(head)); n != want || !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("took %d: %d, %v, want %d", takes, n, err, want)
		}
	}
}

func TestStatusLine(t *testing.T) {
	for line, want := range map[string]int{
		"HTTP/1.1 200 OK\r\n": 200, "HTTP/1.0 404 \r\n": 404, "HTTP/1.1 100 Continue\r\n\r\n": 100, "HTTP/1.1 200 OK": 0, "HTTP/1.1 2x0 OK\r\n": 0,
		"": 0, "HTTP/1.1": 0, "HTTP/2.0 200 OK\r\n": 0, "body HTTP/1.1 200 OK\r\n": 0,
	} {
		if code, _, _ := statusLine([]byte(line)); code != want {
			t.Errorf("%q: %d, want %d", line, code, want)
		}
	}
}
