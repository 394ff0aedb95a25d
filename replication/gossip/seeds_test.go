package gossip

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// otherServer listens and is not a port between nodes: it answers as a server of HTTP does, or is
// silent.
func otherServer(t *testing.T, says string) string {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer func() { _ = c.Close() }()
				_, _ = io.ReadFull(c, make([]byte, 8))
				_, _ = io.WriteString(c, says)
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); tasks.Wait() })
	return l.Addr().String()
}

// TestSeedThatStarts: a node that starts or ends may end a connection. Nothing is said of it before
// it has done so twice.
func TestSeedThatStarts(t *testing.T) {
	c := newCluster(t)
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	var begun atomic.Int32
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			peer, err := l.Accept()
			if err != nil {
				return
			}
			begun.Add(1)
			_ = peer.(*net.TCPConn).CloseWrite() // The peer may have gone.
			_, _ = io.Copy(io.Discard, peer)
			_ = peer.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); tasks.Wait() })
	asked := make(chan int32, 1)
	c.open(1, func(o *nodeOptions) {
		o.Seeds = func(context.Context) ([]string, error) { return []string{l.Addr().String()}, nil }
		o.Ask = func(context.Context, string, string) ([]string, error) {
			select {
			case asked <- begun.Load():
			default:
			}
			return nil, io.ErrUnexpectedEOF
		}
	})
	check.Equal(t, <-asked, 2, "connections before the seed is asked as a client would")
}

// TestSeedsForClients: a seed may be where a node serves clients, whatever that says to who speaks
// as a node.
func TestSeedsForClients(t *testing.T) {
	for name, says := range map[string]string{"refuses": "HTTP/1.1 400 Bad Request\r\n\r\n", "is silent": ""} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, c *cluster, mode func(*nodeOptions)) {
				c.open(1, mode)
				clients := otherServer(t, says)
				port := c.nodes[1].Addr()
				c.open(2, mode, func(o *nodeOptions) {
					o.Timeout = 500 * time.Millisecond
					o.Seeds = func(context.Context) ([]string, error) { return []string{clients}, nil }
					o.Ask = func(_ context.Context, address, host string) ([]string, error) {
						if address != clients || host != "127.0.0.1" {
							t.Errorf("asked %s of %s", address, host)
						}
						return []string{port}, nil
					}
				})
				c.sees("1+ 2+", 1, 2)
			})
		})
	}
}

// TestSeedOfNeitherKind is named, once, with what to write.
func TestSeedOfNeitherKind(t *testing.T) {
	c := newCluster(t)
	clients := otherServer(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	c.open(1, func(o *nodeOptions) {
		o.Seeds = func(context.Context) ([]string, error) { return []string{clients}, nil }
		o.Ask = func(context.Context, string, string) ([]string, error) { return nil, errors.New("404 Not Found") }
	})
	const line = "a gossip seed is neither a port between nodes nor a port for clients: give another node's host with its ReplicationPort"
	eventually(t, "the seed is named", func() bool { return c.logs.warnings(line) > 0 })
	check.Equal(t, c.logs.warnings(line), 1, "lines")
}
