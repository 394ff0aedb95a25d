package wire

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// serveHTTP runs a server on the connections of a kind.
func serveHTTP(t testing.TB, p *Port, k Kind, h http.Handler) {
	t.Helper()
	s := p.HTTPServer(h)
	l := p.Listener(k)
	var tasks sync.WaitGroup
	tasks.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if want := node(2).String() + " true true please /join"; err != nil || strings.Join(strings.Fields(string(got)), "") != strings.Join(strings.Fields(want), "") {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if n := from.metrics.dialled.Value(); n != 1 {
		t.Errorf("%d connections", n)
	}
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

// Connections of HTTP are renewed between two requests: none fails, although
// none of them could be repeated, and a long download is not broken off.
func TestHTTPConnectionsAreRenewed(t *testing.T) {
	const renew = 400 * time.Millisecond
	to := open(t, Options{Node: node(1), Renew: renew})
	from := open(t, Options{Node: node(2), Renew: renew})
	serveHTTP(t, to, KindService, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			pieces := time.NewTicker(renew / 8)
			defer pieces.Stop()
			for range 20 {
				<-pieces.C
				_, _ = io.CopyN(w, rand.Reader, 1000)
				_ = http.NewResponseController(w).Flush()
			}
			return
		}
		_, _ = io.Copy(w, r.Body)
	}))
	transport := from.HTTPTransport(KindService)
	defer transport.CloseIdleConnections()
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
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	tasks.Wait()
	if n := from.metrics.dialled.Value(); n < 4 {
		t.Errorf("%d connections", n)
	}
	// What is idle goes away by itself.
	testkit.Eventually(t, 5*time.Second, func() error {
		from.mu.Lock()
		defer from.mu.Unlock()
		if n := len(from.conns); n != 0 {
			return fmt.Errorf("%d connections are left", n)
		}
		return nil
	})
}
