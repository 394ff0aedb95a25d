package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/certs"
)

// Bounds of one connection. A body may take its time, as long as it comes.
const (
	headerTimeout  = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 256 << 10 // a stream name of the greatest length fits percent-encoded
	drainTimeout   = 10 * time.Second
)

// httpServer serves the HTTP interface on one address.
type httpServer struct {
	listener net.Listener
	server   *http.Server
	silent   silentConns
	logger   hclog.Logger
	owned    sync.WaitGroup

	connContext func(context.Context, net.Conn) context.Context // default: as package http needs it; not with TLS
}

// listen binds the address. Nothing is answered before serve.
func listen(address string, t *traffic, logger hclog.Logger) (*httpServer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve HTTP: %w", err)
	}
	return newServer(t.listener(l), logger), nil
}

func newServer(l net.Listener, logger hclog.Logger) *httpServer {
	return &httpServer{listener: l, logger: logger, connContext: httpapi.ConnContext}
}

// serve answers requests, with TLS if there are certificates for it.
func (s *httpServer) serve(handler http.Handler, security *certs.Store) {
	s.server = &http.Server{
		Handler:           handler,
		ConnContext:       s.connContext,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	l := s.listener
	if security != nil {
		secure := newTLSListener(l, security, s.logger)
		l, s.server.ConnContext = secure, secure.connContext
	}
	s.server.ConnState = s.silent.note
	s.owned.Go(func() {
		if err := s.server.Serve(httpapi.Listener(l)); !errors.Is(err, http.ErrServerClosed) {
			s.logger.Error("HTTP is no longer served", "error", err)
		}
	})
}

func (s *httpServer) addr() net.Addr { return s.listener.Addr() }

// close lets the requests under way finish, and cuts off those that take too long.
func (s *httpServer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if s.server == nil {
		return s.listener.Close()
	}
	s.silent.close()
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.logger.Warn("requests still under way are cut off")
		err = s.server.Close()
	}
	s.owned.Wait()
	return err
}
