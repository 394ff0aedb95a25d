package node

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/wire"
)

// relay passes requests that need the leader on to it, over the port between nodes.
type relay struct {
	cluster *replication.Cluster
	client  *http.Transport
	logger  hclog.Logger
	owned   sync.WaitGroup
	failed  atomic.Int64 // when a failure was logged last, Unix seconds
}

var _ httpapi.Relay = (*relay)(nil)

// relayTimeout bounds the wait for the leader's answer. The leader bounds its own
// work, and well before.
const relayTimeout = 30 * time.Second

// relayFailed tells that the outcome of a request is not known: it may have reached the leader.
const relayFailed = "Error while forwarding request"

func newRelay(c *replication.Cluster, logger hclog.Logger) *relay {
	client := c.Port().HTTPTransport(wire.KindRelay)
	client.MaxIdleConnsPerHost, client.ResponseHeaderTimeout = 64, relayTimeout
	return &relay{cluster: c, logger: logger, client: client}
}

// A leader that falls silent keeps its connections: whoever waits for its answer is
// told once another node, or none, has led for so long.
const (
	leaderPace  = 250 * time.Millisecond
	leaderGrace = 4 // times leaderPace
)

// whileLeading returns a context that ends when the node at the address has not
// led for a while, and a function that must be called at the end.
func (p *relay) whileLeading(ctx context.Context, address string) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	p.owned.Go(func() {
		ticker := time.NewTicker(leaderPace)
		defer ticker.Stop()
		for away := 0; away < leaderGrace; {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			away++
			if now, ok := p.cluster.LeaderAddress(); ok && now == address {
				away = 0
			}
		}
		cancel()
	})
	return ctx, cancel
}

// complain logs that a request was not relayed, once a second at most: behind the
// death of a leader there are many.
func (p *relay) complain(leader string, err error) {
	now := time.Now().Unix()
	if last := p.failed.Load(); last != now && p.failed.CompareAndSwap(last, now) {
		p.logger.Warn("requests are not relayed", "leader", leader, "error", err)
	}
}

// close waits for what watches over requests, which have ended.
func (p *relay) close() { p.owned.Wait() }

// Relay sends the request to the leader and its answer to the client. A request
// that may have reached the leader is never sent again.
func (p *relay) Relay(w http.ResponseWriter, r *http.Request) bool {
	address, ok := p.cluster.LeaderAddress()
	if !ok {
		return false
	}
	ctx, stop := p.whileLeading(r.Context(), address)
	defer stop()
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = "http", address
	out.RequestURI = ""
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade"} {
		out.Header.Del(name)
	}
	answer, err := p.client.RoundTrip(out)
	if err != nil {
		p.complain(address, err)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		httpapi.SetReason(r.Context(), http.StatusInternalServerError, relayFailed)
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, relayFailed) // A client that has gone is told nothing.
		return true
	}
	defer func() { _ = answer.Body.Close() }()
	header := w.Header()
	for name, values := range answer.Header {
		if name != "Connection" && name != "Keep-Alive" && name != "Transfer-Encoding" {
			header[name] = values
		}
	}
	if _, phrase, ok := strings.Cut(answer.Status, " "); ok {
		httpapi.SetReason(r.Context(), answer.StatusCode, phrase)
	}
	w.WriteHeader(answer.StatusCode)
	if _, err := io.Copy(w, answer.Body); err != nil {
		p.logger.Debug("answer was not passed on whole", "error", err)
	}
	return true
}
