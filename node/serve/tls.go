package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

const (
	handshakeTimeout = 10 * time.Second
	// maxHandshakes is how many connections may be before the end of their handshake. The next one
	// ends the oldest, of the address that has most: no honest one takes long.
	maxHandshakes = 256
)

// tlsListener hands out connections whose handshake is done, so that it is known
// by then which protocol they speak and whether the other side is a node.
type tlsListener struct {
	inner    net.Listener
	security *certs.Store
	logger   hclog.Logger

	ready  chan net.Conn
	silent crowd    // before the end of their handshake
	nodes  sync.Map // connections of nodes, until the server asks for them
	ctx    context.Context
	cancel context.CancelFunc
	owned  sync.WaitGroup
}

func newTLSListener(l net.Listener, security *certs.Store, logger hclog.Logger) *tlsListener {
	t := &tlsListener{inner: l, security: security, logger: logger, ready: make(chan net.Conn), silent: crowd{most: maxHandshakes}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.owned.Go(t.run)
	return t
}

func (t *tlsListener) run() {
	pauses := clock.Pauses{Least: 5 * time.Millisecond, Most: time.Second}
	for begun := int64(1); ; {
		c, err := t.inner.Accept()
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				t.cancel()
				return
			}
			t.logger.Warn("a connection could not be accepted, trying again", logkey.Error, err)
			if !pauses.Wait(t.ctx) {
				return
			}
			continue
		}
		pauses.Failures = 0
		// It has its place before the next one is taken: its goroutine may begin much later.
		age := begun
		begun++
		// Its handshake fails.
		place := &member{used: func() int64 { return age }, end: func() { _ = c.Close() }}
		t.silent.add(place, c.RemoteAddr())
		t.owned.Go(func() { t.handshake(c, place) })
	}
}

func (t *tlsListener) handshake(c net.Conn, place *member) {
	defer t.silent.remove(place)
	ctx, cancel := context.WithTimeout(certs.WithPeer(t.ctx, c), handshakeTimeout)
	defer cancel()
	conn := tls.Server(c, t.security.PublicServer())
	if err := conn.HandshakeContext(ctx); err != nil {
		t.logger.Debug("TLS handshake", logkey.Remote, c.RemoteAddr().String(), logkey.Error, err)
		if errors.Is(err, certs.ErrChain) {
			t.logger.Warn("a client presented a certificate that is not trusted", logkey.Remote, c.RemoteAddr().String(), logkey.Error, err)
		}
		refuseHTTP(err)
		_ = c.Close() // The error is that of the handshake.
		return
	}
	t.silent.remove(place) // It may have to wait for the server, which is not its fault.
	if certs.FromNode(ctx) {
		t.nodes.Store(conn.RemoteAddr().String(), nil)
	}
	select {
	case t.ready <- conn:
	case <-t.ctx.Done():
		_ = c.Close()
	}
}

// refuseHTTP answers a client that speaks HTTP without TLS, as net/http does. The error is that of
// its handshake.
func refuseHTTP(err error) {
	wrong, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || wrong.Conn == nil || !isHTTP(wrong.RecordHeader) {
		return
	}
	if wrong.Conn.SetWriteDeadline(time.Now().Add(time.Second)) == nil {
		_, _ = io.WriteString(wrong.Conn, "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"+
			"Client sent an HTTP request to an HTTPS server.\n")
	}
}

// isHTTP says whether a request of HTTP/1.1 begins like this.
func isHTTP(begin [5]byte) bool {
	switch string(begin[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO", "PATCH":
		return true
	}
	return false
}

// connContext marks the connections of nodes: their callers are the system.
func (t *tlsListener) connContext(ctx context.Context, c net.Conn) context.Context {
	if _, ok := t.nodes.LoadAndDelete(c.RemoteAddr().String()); ok {
		ctx = access.WithNodeConn(ctx)
	}
	return ctx
}

func (t *tlsListener) Accept() (net.Conn, error) {
	select {
	case c := <-t.ready:
		return c, nil
	case <-t.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (t *tlsListener) Close() error {
	t.cancel()
	err := t.inner.Close()
	t.owned.Wait()
	return err
}

func (t *tlsListener) Addr() net.Addr { return t.inner.Addr() }
