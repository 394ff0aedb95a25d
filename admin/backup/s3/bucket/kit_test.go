package bucket_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/admin/backup/s3/bucket"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a network in memory with one server, so that a test can have a time of its own.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// say writes an answer. The client sees what comes of it.
func say(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// options are those of a client of a store of testkit.
func options(t *testing.T) bucket.Options {
	t.Helper()
	endpoint := check.Value(url.Parse("http://127.0.0.1:9000")).Must(t)
	return bucket.Options{
		Endpoint: endpoint, Region: testkit.ObjectStoreRegion, Name: "bucket",
		Key: testkit.ObjectStoreKey, Secret: testkit.ObjectStoreSecret,
	}
}

// connect returns a client of a server in memory. Both end with the returned function, which a
// bubble needs before its end.
func connect(t *testing.T, h http.Handler, change func(*bucket.Options)) (*bucket.Client, func()) {
	t.Helper()
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h}
	done := make(chan error)
	go func() { done <- server.Serve(p) }()
	o := options(t)
	o.Dial = p.dial
	if change != nil {
		change(&o)
	}
	c := bucket.New(o)
	return c, func() {
		c.Close()
		check.NoError(t, server.Close())
		check.Equal(t, <-done, http.ErrServerClosed)
	}
}
