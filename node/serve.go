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
}

func listen(address string, api *httpapi.Server, logger hclog.Logger) (*httpServer, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve HTTP: %w", err)
	}
	s := &httpServer{
		listener: l,
		logger:   logger,
		server: &http.Server{
			Handler:           api.Handler(),
			ConnContext:       httpapi.ConnContext,
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		},
	}
	s.server.ConnState = s.silent.note
	s.owned.Go(func() {
		if err := s.server.Serve(httpapi.Listener(l)); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("HTTP is no longer served", "error", err)
		}
	})
	return s, nil
}

func (s *httpServer) addr() net.Addr { return s.listener.Addr() }

// close lets the requests under way finish, and cuts off those that take too long.
func (s *httpServer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	s.silent.close()
	err := s.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.logger.Warn("requests still under way are cut off")
		err = s.server.Close()
	}
	s.owned.Wait()
	return err
}
