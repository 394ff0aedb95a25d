// Package serve answers HTTP on one listener: handshakes of TLS are done before net/http sees a
// connection, its bytes are counted, and it is closed in order.
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/network"
	"github.com/annalsdb/annals/internal/throttle"
)

// Bounds of one connection. A body may take its time, as long as it comes.
const (
	HeaderTimeout = 30 * time.Second
	// not what clients poll by: a call that meets the end of its connection fails with some
	IdleTimeout    = 130 * time.Second
	MaxHeaderBytes = 256 << 10 // a stream name of the greatest length fits percent-encoded
	drainTimeout   = 10 * time.Second
)

// Server answers HTTP on one listener.
type Server struct {
	listener net.Listener
	server   *http1.Server
	silent   silentConns
	idle     time.Duration // after which a connection is closed
	logger   hclog.Logger
	owned    sync.WaitGroup
	tlsLines throttle.Lines[struct{}]

	// PingAfter and PingTimeout are when a client of HTTP/2 that is silent is pinged, and when
	// it counts as gone without an answer. 0: it is not pinged.
	PingAfter, PingTimeout time.Duration

	// Calls serves connections whose first request is a call of gRPC. It may be nil, and it does
	// not block.
	Calls func(context.Context, net.Conn)

	// ConnContext adds to the context of a connection without TLS. Default: nothing.
	ConnContext func(context.Context, net.Conn) context.Context
}

// Listen binds the address. Nothing is answered before Serve.
func Listen(ctx context.Context, n network.Network, address string, t *Traffic, logger hclog.Logger) (*Server, error) {
	l, err := n.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("serve HTTP: %w", err)
	}
	return New(t.listener(l, logger), logger), nil
}

// New returns a server of a listener, which it closes.
func New(l net.Listener, logger hclog.Logger) *Server {
	return &Server{listener: l, logger: logger, idle: IdleTimeout, tlsLines: throttle.Lines[struct{}]{Every: time.Minute}}
}

// Serve answers requests, with TLS if there are certificates for it.
func (s *Server) Serve(handler http.Handler, security *certs.Store) {
	h := &http.Server{
		Handler:           handler,
		ConnContext:       s.ConnContext,
		ReadHeaderTimeout: HeaderTimeout,
		IdleTimeout:       s.idle,
		MaxHeaderBytes:    MaxHeaderBytes,
		ErrorLog:          s.logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	h.Protocols = new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetHTTP2(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	h.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams: http1.MaxStreams, MaxReceiveBufferPerConnection: 16 * http1.StreamWindow, MaxReceiveBufferPerStream: http1.StreamWindow,
		SendPingTimeout: s.PingAfter, PingTimeout: s.PingTimeout,
	}
	l := s.listener
	if security != nil {
		secure := newTLSListener(l, security, s.logger)
		l, h.ConnContext = secure, secure.connContext
	}
	h.ConnState = s.silent.note
	s.server = http1.New(h)
	s.server.Calls = s.Calls
	s.server.TLSClient = s.refusedTLS
	s.owned.Go(func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.logger.Error("HTTP is no longer served", logkey.Error, err)
		}
	})
}

// refusedTLS logs that a client speaks TLS to this port, which does not.
func (s *Server) refusedTLS(remote net.Addr) {
	if skipped, due := s.tlsLines.Due(struct{}{}); due {
		s.logger.Warn("a client speaks TLS to a port without TLS: give it http:// or ?tls=false, or the node certificates",
			logkey.Remote, remote.String(), "times", skipped+1)
	}
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close lets the requests in flight finish, and cuts off those that take too long.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if s.server == nil {
		return s.listener.Close()
	}
	s.silent.close()
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.logger.Warn("requests still in flight are cut off")
		err = s.server.Close()
	}
	s.owned.Wait()
	return err
}
