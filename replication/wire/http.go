package wire

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	maxIdle        = 30 * time.Second // of an HTTP connection, on the side of the client
	maxIdlePerNode = 4
	maxHeaderBytes = 64 << 10
	headerTimeout  = 10 * time.Second
)

// idle is how long an HTTP connection may be idle on the side of the client: at
// most a twentieth of the age at which connections are renewed. The server waits
// much longer, a quarter of that age: if it closed a connection first, the client
// might just be sending a request on it that must not be repeated.
func (p *Port) idle() time.Duration { return min(maxIdle, p.opts.Renew/20) }

// connKey is the key of a request's connection in its context.
type connKey struct{}

// PeerFrom says which node sent a request, given the context of a request that
// an HTTPServer handles.
func PeerFrom(ctx context.Context) (Identity, bool) {
	c, ok := ctx.Value(connKey{}).(*conn)
	if !ok {
		return Identity{}, false
	}
	return c.peer, true
}

// HTTPServer returns a server for the connections of a Listener. It has no time
// limits for reading and writing bodies. The caller starts and closes it.
func (p *Port) HTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c, ok := r.Context().Value(connKey{}).(*conn); ok && c.isDue() {
				w.Header().Set("Connection", "close")
			}
			h.ServeHTTP(w, r)
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if ours, ok := unwrap(c); ok {
				ctx = context.WithValue(ctx, connKey{}, ours)
			}
			return ctx
		},
		IdleTimeout:       p.opts.Renew / 4,
		ReadHeaderTimeout: headerTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          p.logger.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}

// HTTPTransport returns a transport that makes connections of a kind to the
// host:port of a URL, whose scheme is always http: what the port does about TLS
// lies below. The caller ends with CloseIdleConnections.
func (p *Port) HTTPTransport(k Kind) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return p.Dial(ctx, k, address)
		},
		DisableCompression:  true,
		MaxIdleConnsPerHost: maxIdlePerNode,
		IdleConnTimeout:     p.idle(),
	}
}
