package relay

import (
	"context"
	"net"
	"net/http"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/node/serve"
	"github.com/annalsdb/annals/replication/wire"
)

// Serve answers the requests of clients that other nodes pass on. A
// connection that is as old as one between nodes may be ends with the next answer.
func Serve(port *wire.Port, handler http.Handler, logger hclog.Logger) *serve.Server {
	s := serve.New(plain{port.Listener(wire.KindRelay)}, logger)
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(address.WithJudged(ctx), connKey{}, c)
	}
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok && wire.Due(c) {
			w.Header().Set("Connection", "close")
		}
		if client := r.Header.Get(headerClient); client != "" {
			r.RemoteAddr = client // For the log, and for who waits in line with whom.
			r.Header.Del(headerClient)
		}
		handler.ServeHTTP(w, r)
	}), nil)
	return s
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// plain hides that a connection is one of TLS: it was made by another node for
// one of its clients, whose rights are not those of the node.
type plain struct{ net.Listener }

func (l plain) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return plainConn{c}, nil
}

// plainConn has none of the methods by which net/http knows a connection of TLS.
type plainConn struct{ net.Conn }

// NetConn is how the port between nodes finds its connection.
func (c plainConn) NetConn() net.Conn { return c.Conn }
