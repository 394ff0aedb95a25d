package wire

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// burst is a listener at which connections have queued up: Accept never waits
// for the first of them.
type burst struct {
	net.Listener
	queue []net.Conn
	taken chan struct{} // closed when all are
}

func (b *burst) Accept() (net.Conn, error) {
	if len(b.queue) == 0 {
		close(b.taken)
		return b.Listener.Accept()
	}
	c := b.queue[0]
	b.queue = b.queue[1:]
	return c, nil
}

// Connections that say nothing make room for those that come after them, also when
// so many come at once that the handshake of none of them has begun yet.
func TestFloodAtOnce(t *testing.T) {
	// so that accepting continues before any handshake
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	b := &burst{Listener: l, taken: make(chan struct{})}
	for range maxHandshakes + 1 {
		far, near := net.Pipe()
		defer func() { _ = far.Close() }()
		b.queue = append(b.queue, near)
	}
	o := Options{Node: node(1), HandshakeTimeout: time.Hour}
	o.EnsureDefaults()
	p := newPort(o, b, func(context.Context, string) (net.Conn, error) { return nil, errors.ErrUnsupported })
	select {
	case <-b.taken:
	case <-time.After(patience):
		t.Error("no connection is taken any more")
	}
	check.NoError(t, p.Close())
}
