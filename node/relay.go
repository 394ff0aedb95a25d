package node

import (
	"io"
	"net/http"
	"strings"
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

// Relay sends the request to the leader and its answer to the client. A request
// that may have reached the leader is never sent again.
func (p *relay) Relay(w http.ResponseWriter, r *http.Request) bool {
	address, ok := p.cluster.LeaderAddress()
	if !ok {
		return false
	}
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = "http", address
	out.RequestURI = ""
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Upgrade"} {
		out.Header.Del(name)
	}
	answer, err := p.client.RoundTrip(out)
	if err != nil {
		p.logger.Warn("request was not relayed", "leader", address, "error", err)
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
