package gossip

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication/wire"
)

// silent takes connections and never says anything. met is filled when the first has come.
func silent(t *testing.T, met chan<- struct{}) string {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	go func() {
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				for _, c := range held {
					_ = c.Close()
				}
				return
			}
			held = append(held, c)
			select {
			case met <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(func() { check.NoError(t, l.Close()) })
	return l.Addr().String()
}

func TestOtherAuthority(t *testing.T) {
	c := newCluster(t)
	c.open(1, newAuthority(t).secured())
	c.open(2, newAuthority(t).secured())
	eventually(t, "the refusal is logged on both sides", func() bool {
		return c.logs.warnings("certificate signed by unknown authority") > 0 && c.logs.warnings("1.wire: another node refuses the certificate of this node") > 0
	})
	c.sees("1+", 1)
	c.sees("2+", 2)
}

func TestPlainAndSecure(t *testing.T) {
	for name, first := range map[string]bool{"joins a secure node": true, "is joined by a secure node": false} {
		t.Run("plain node "+name, func(t *testing.T) {
			c := newCluster(t)
			secure := newAuthority(t).secured()
			if first {
				c.open(1, secure)
				c.open(2)
			} else {
				c.open(1)
				c.open(2, secure)
			}
			eventually(t, "both say why", func() bool {
				return c.logs.warnings("1.wire: refused a connection") > 0 && c.logs.warnings("2.gossip: cannot reach a gossip seed") > 0
			})
			c.sees("1+", 1)
			c.sees("2+", 2)
		})
	}
}

// A node whose certificates no longer count loses its place, and gets it back with new ones.
func TestCertificatesExchanged(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	c := newCluster(t)
	all := map[byte]*papers{}
	for n := byte(1); n <= 3; n++ {
		all[n] = before.papers("127.0.0.1")
		c.open(n, func(o *nodeOptions) { o.wire.Security, o.wire.Renew = all[n], time.Second })
	}
	c.sees("1+ 2+ 3+", 1, 2, 3)
	exchange := func(n byte) {
		cert := after.issue("127.0.0.1")
		all[n].cert.Store(&cert)
		all[n].pool.Store(after.pool)
	}
	exchange(1)
	exchange(2)
	c.sees("1+ 2+ 3x", 1, 2)
	c.sees("1x 2x 3+", 3)
	exchange(3)
	c.sees("1+ 2+ 3+", 1, 2, 3)
}

// Renewing connections has no visible effect.
func TestRenewed(t *testing.T) {
	authority := newAuthority(t)
	c := newCluster(t)
	for n := byte(1); n <= 3; n++ {
		c.open(n, authority.secured(), func(o *nodeOptions) {
			o.wire.Renew = 200 * time.Millisecond
			o.Timeout = 5 * time.Second // No node counts as dead because the machine is busy.
		})
	}
	c.sees("1+ 2+ 3+", 1, 2, 3)
	before, sent := c.nodes[1].Members(), c.nodes[1].metrics.sent.Value()
	eventually(t, "packets go on", func() bool { return c.nodes[1].metrics.sent.Value() > sent+20 })
	if after := c.nodes[1].Members(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("members changed from %v to %v", before, after)
	}
}

// The certificate of a node that advertises a name is to be for this name, for
// seeds as for nodes of which others told.
func TestHostNames(t *testing.T) {
	authority := newAuthority(t)
	c := newCluster(t)
	all := map[byte]*papers{}
	for n := byte(1); n <= 3; n++ {
		all[n] = authority.papers("localhost")
		port := freePort(t)
		c.open(n, func(o *nodeOptions) {
			o.wire.Security = all[n]
			o.wire.Bind, o.wire.Advertise = fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("localhost:%d", port)
			o.Self.ReplicationAddress = o.wire.Advertise
		})
		_, port1, err := net.SplitHostPort(c.nodes[1].Addr())
		check.Must(t, err)
		c.seeds.Store(&[]string{"localhost:" + port1})
	}
	c.sees("1+ 2+ 3+", 1, 2, 3)
	c.kill(1)
	c.sees("1x 2+ 3+", 2, 3)
	// What was asked for before a node knew the others does not count: it may have answered one
	// that pinged it first, of which it had nothing but the address.
	for n := byte(2); n <= 3; n++ {
		all[n].mu.Lock()
		clear(all[n].hosts)
		all[n].mu.Unlock()
	}
	for n := byte(2); n <= 3; n++ {
		wanted := func() map[string]int {
			all[n].mu.Lock()
			defer all[n].mu.Unlock()
			return maps.Clone(all[n].hosts)
		}
		eventually(t, "a node connects to others", func() bool { return len(wanted()) > 0 })
		if hosts := wanted(); len(hosts) != 1 || hosts["localhost"] == 0 {
			t.Errorf("node %d wanted certificates for %v", n, hosts)
		}
	}
}

// While a node turns from one that was announced to one of the view, its host is known at any
// moment.
func TestHostOfAnnounced(t *testing.T) {
	c := newCluster(t)
	g := c.open(1)
	g.refreshing.Lock() // What is done here is done in its place.
	defer g.refreshing.Unlock()
	old := g.view.Load()
	address := netip.MustParseAddrPort("127.0.0.1:1")
	other := Member{Self: Self{Node: id(2), ReplicationAddress: "localhost:1"}, GossipAddress: "127.0.0.2:1"}
	next := &view{members: append(slices.Clone(old.members), other), changed: old.changed}
	for range 2000 {
		g.announce(id(2).String(), "localhost")
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.view.Store(next)
			g.announcing.Lock()
			delete(g.announced, id(2).String())
			g.announcing.Unlock()
		}()
		for asking := true; asking; {
			check.MustEqual(t, g.hostOf(address, id(2).String()), "localhost", "host")
			select {
			case <-done:
				asking = false
			default:
			}
		}
		g.view.Store(old)
	}
}

// freePort returns a port that was free a moment before.
func freePort(t *testing.T) int {
	t.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check.Must(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		check.Must(t, l.Close())
		p, err := wire.Open(wire.Options{Bind: fmt.Sprintf("127.0.0.1:%d", port), Node: id(99)})
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err == nil {
			err = p.Close()
		}
		check.Must(t, err)
		return port
	}
}
