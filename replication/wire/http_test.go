package wire

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// serveHTTP runs a server on the connections of a kind.
func serveHTTP(t testing.TB, p *Port, k Kind, h http.Handler) {
	t.Helper()
	s := p.HTTPServer(h)
	l := p.Listener(k)
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		check.NoError(t, s.Close())
		tasks.Wait()
	})
}

func TestHTTP(t *testing.T) {
	ca := newAuthority(t)
	to := open(t, Options{Node: node(1), Cluster: member(clusterA), Security: ca.security(1)})
	from := open(t, Options{Node: node(2), Security: ca.security(2)})
	serveHTTP(t, to, KindService, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, ok := PeerFrom(r.Context())
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprint(w, peer.Node, peer.Cluster.IsZero(), ok, string(body), r.URL.Path)
	}))
	transport := from.HTTPTransport(KindService)
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	for range 3 {
		resp, err := client.Post("http://"+to.Advertised()+"/join", "text/plain", strings.NewReader("please"))
		check.Must(t, err)
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := node(2).String() + " true true please /join"; err != nil || strings.Join(strings.Fields(string(got)), "") != strings.Join(strings.Fields(want), "") {
			t.Errorf("got %q, %v", got, err)
		}
	}
	check.Equal(t, from.metrics.dialled.Value(), 1, "connections")
	if _, ok := PeerFrom(t.Context()); ok {
		t.Error("a peer from nowhere")
	}
	// Of another kind there is no server.
	relay := from.HTTPTransport(KindRelay)
	_, err := (&http.Client{Transport: relay}).Get("http://" + to.Advertised() + "/")
	if r := refused(t, err); r.Status != StatusNoCluster {
		t.Errorf("refused with %+v", r)
	}
}

// wires connects ports by their addresses without any network, so that they may
// be used where time is virtual.
type wires map[string]chan net.Conn

// port opens one.
func (w wires) port(t *testing.T, n byte) *Port {
	o := Options{Bind: "virtual", Node: node(n), Advertise: fmt.Sprintf("node-%d:1", n)}
	o.EnsureDefaults()
	end := wireEnd{address: advertised(o.Advertise), queue: make(chan net.Conn), closed: make(chan struct{})}
	w[o.Advertise] = end.queue
	p := newPort(o, end, func(ctx context.Context, address string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case w[address] <- far:
			return near, nil
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), near.Close(), far.Close())
		}
	})
	t.Cleanup(func() { check.NoError(t, p.Close(), "close port") })
	return p
}

// wireEnd is where connections come in.
type wireEnd struct {
	address advertised
	queue   chan net.Conn
	closed  chan struct{}
}

func (e wireEnd) Accept() (net.Conn, error) {
	select {
	case c := <-e.queue:
		return c, nil
	case <-e.closed:
		return nil, net.ErrClosed
	}
}

func (e wireEnd) Close() error {
	close(e.closed)
	return nil
}

func (e wireEnd) Addr() net.Addr { return e.address }

// Connections of HTTP are renewed between two requests: none fails, although
// none of them could be repeated, and a long download is not broken off.
func TestHTTPConnectionsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := wires{}
		to, from := w.port(t, 1), w.port(t, 2)
		renew := to.opts.Renew
		serveHTTP(t, to, KindService, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				for range 20 {
					time.Sleep(renew / 8)
					_, _ = io.CopyN(w, rand.Reader, 1000)
					_ = http.NewResponseController(w).Flush()
				}
				return
			}
			_, _ = io.Copy(w, r.Body)
		}))
		transport := from.HTTPTransport(KindService)
		t.Cleanup(transport.CloseIdleConnections)
		client := http.Client{Transport: transport}
		var tasks sync.WaitGroup
		tasks.Go(func() {
			resp, err := client.Get("http://" + to.Advertised() + "/long")
			if err != nil {
				t.Error(err)
				return
			}
			n, err := io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if n != 20_000 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
		for i, begun := 0, time.Now(); time.Since(begun) < 6*renew; i++ {
			// Without GetBody and of a method that changes things: sent once or not at all.
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+to.Advertised()+"/", io.NopCloser(strings.NewReader("once")))
			check.Must(t, err)
			resp, err := client.Do(req)
			check.Must(t, err, "request", i)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			// at times for longer than a connection may be idle
			time.Sleep(time.Duration(i%40) * time.Second)
		}
		tasks.Wait()
		if n := from.metrics.dialled.Value(); n < 6 {
			t.Errorf("%d connections", n)
		}
		// What is idle goes away by itself.
		time.Sleep(renew)
		synctest.Wait()
		from.mu.Lock()
		defer from.mu.Unlock()
		check.Equal(t, len(from.conns), 0, "connections are left")
	})
}
