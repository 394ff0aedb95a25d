package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// transportRelay relays as a node does, to an address.
type transportRelay struct {
	address string
	client  *http.Transport
}

func (p *transportRelay) Relay(w http.ResponseWriter, r *http.Request, _ bool) bool {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", p.address, ""
	answer, err := p.client.RoundTrip(out)
	if err != nil {
		w.WriteHeader(500)
		return true
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
	_ = answer.Body.Close()
	return true
}

// TestMessagesAreRelayedOnce breaks the connection to the leader while it is asked
// for messages, which it may have handed out already.
func TestMessagesAreRelayedOnce(t *testing.T) {
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	t.Cleanup(func() { _ = l.Close() })
	var asked, lost atomic.Int32
	serve := func(c net.Conn) {
		defer func() { _ = c.Close() }()
		in := bufio.NewReader(c)
		for asks := 0; ; asks++ {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if asked.Add(1); asks > 0 {
				lost.Add(1)
				return // The outcome is unknown.
			}
			if len(r.TransferEncoding) > 0 || r.ContentLength != 0 {
				t.Errorf("%s has a body: %v, %d", r.URL.Path, r.TransferEncoding, r.ContentLength)
			}
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	for path, again := range map[string]int32{"/subscriptions/s/g/5": 0, "/subscriptions/s/g": 0, "/subscriptions/s/g/info": 1} {
		relay := &transportRelay{l.Addr().String(), &http.Transport{}}
		t.Cleanup(relay.client.CloseIdleConnections)
		n, _ := newSubscriber(t, func(o *httpapi.Options) { o.Relay = relay })
		n.cluster.role, n.cluster.leader = "follower", leader
		address := listen(t, n.handler)
		asked.Store(0)
		lost.Store(0)
		// Usually the second request uses the connection of the first.
		requests := int32(0)
		for ; lost.Load() == 0; requests++ {
			r := check.Value(http.NewRequest("GET", "http://"+address+path, nil)).Must(t)
			r.Header = admin()
			answer := check.Value(http.DefaultTransport.RoundTrip(r)).Must(t)
			_ = answer.Body.Close()
		}
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		check.Equal(t, asked.Load(), requests+again, path)
	}
}
