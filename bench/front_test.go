package bench_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/onenode"
)

// startNode starts a node in memory for the time of the test.
func startNode(t *testing.T) string {
	t.Helper()
	base, stop, err := onenode.Start(t.Context())
	check.Must(t, err)
	t.Cleanup(func() {
		check.NoError(t, stop())
	})
	return base
}

// front stands before a node: it counts requests, and misbehaves as a test wants.
type front struct {
	node http.Handler

	mu     sync.Mutex // guards what follows
	leader string     // base of the node that takes writes, when it is another
	fail   int        // how many requests are answered 503 first
	hide   int        // how often each path of a reading is said not to be there
	empty  int        // how many readings of a group find nothing first
	again  int        // how many acknowledgements mean that the messages shall come again
	refuse int        // how many acknowledgements are refused first
	seen   func(f *front)

	requests, deleted int
	asked             map[string]int // readings, by path
	settings          []string       // of the groups created
}

// serve starts a front before a new node.
func serve(t *testing.T, f *front) string {
	t.Helper()
	return f.before(t, startNode(t))
}

// before starts a front before a node.
func (f *front) before(t *testing.T, node string) string {
	t.Helper()
	to := check.Value(url.Parse(node)).Must(t)
	proxy := httputil.NewSingleHostReverseProxy(to)
	network := client.NewTransport(nil)
	proxy.Transport, proxy.ErrorHandler = network, func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	f.node, f.asked = proxy, map[string]int{}
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		server.Close()
		network.CloseIdleConnections()
	})
	return server.URL
}

// less takes one from a number that is above zero.
func less(n *int) bool {
	if *n == 0 {
		return false
	}
	*n--
	return true
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.decides(w, r) {
		return
	}
	f.node.ServeHTTP(w, r)
}

// decides answers a request in place of the node.
func (f *front) decides(w http.ResponseWriter, r *http.Request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.seen != nil {
		f.seen(f)
	}
	group := strings.HasPrefix(r.URL.Path, "/subscriptions/")
	ack := strings.HasSuffix(r.URL.Path, "/ack")
	switch {
	case r.Method == http.MethodGet:
		f.asked[r.URL.Path]++
	case r.Method == http.MethodDelete:
		f.deleted++
	case r.Method == http.MethodPut && group:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return true
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		f.settings = append(f.settings, string(body))
	}
	switch {
	case less(&f.fail), ack && less(&f.refuse):
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Method == http.MethodGet && f.asked[r.URL.Path] <= f.hide:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet && group && less(&f.empty):
		_, _ = io.WriteString(w, `{"links":[],"entries":[]}`)
	case r.Method == http.MethodPost && f.leader != "":
		w.Header().Set("Location", f.leader+r.URL.Path)
		w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		if ack && less(&f.again) {
			r.URL.Path = strings.TrimSuffix(r.URL.Path, "ack") + "nack"
			r.URL.RawQuery += "&action=retry"
		}
		return false
	}
	return true
}

// silent is a server that answers nothing until it is released.
func silent(release <-chan struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
}
