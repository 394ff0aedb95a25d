package wire

import (
	"bytes"
	"io"
	"runtime"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// Bytes are counted for each node over all connections, and stay counted when these are gone.
func TestTraffic(t *testing.T) {
	a := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	b := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	echo(t, b, KindService)
	for _, n := range []int{100, 1000} {
		c := check.Value(a.Dial(t.Context(), KindService, b.Advertised())).Must(t)
		check.Must(t, check.Err(c.Write(make([]byte, n))))
		check.Must(t, check.Err(io.ReadFull(c, make([]byte, n))))
		if p := a.Peer(node(2)); p.Connections != 1 || p.Connection.IsZero() || p.PendingReceived != 0 {
			t.Errorf("%+v", p)
		}
		check.Must(t, c.Close())
	}
	if got, want := a.Peer(node(2)), (Peer{Node: node(2), Sent: 1100, Received: 1100}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	if got, want := a.Peer(node(3)), (Peer{Node: node(3)}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	if got, want := a.Totals(), (Peer{Sent: 1100, Received: 1100}); got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
	// What it sent is counted a moment after it was sent.
	if p := b.Peer(node(1)); p.Received != 1100 {
		t.Errorf("at the other side: %+v", p)
	}
}

// What came and was not read shows as pending.
func TestPendingTraffic(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell")
	}
	a := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	b := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	l := b.Listener(KindRaft)
	c := check.Value(a.Dial(t.Context(), KindRaft, b.Advertised())).Must(t)
	in := check.Value(l.Accept()).Must(t)
	message := bytes.Repeat([]byte("x"), 5000)
	check.Must(t, check.Err(c.Write(message)))
	// The first byte has come when it can be read.
	check.Must(t, check.Err(io.ReadFull(in, message[:1])))
	if p := b.Peer(node(1)); p.PendingReceived <= 0 || p.PendingReceived > 4999 || p.Received != 1 {
		t.Errorf("%+v", p)
	}
	if p := b.Totals(); p.Connections != 1 || p.PendingReceived <= 0 {
		t.Errorf("%+v", p)
	}
	for _, one := range []io.Closer{c, in, l} {
		check.NoError(t, one.Close())
	}
	if p := b.Totals(); p.Connections != 0 || p.PendingReceived != 0 {
		t.Errorf("when it is closed: %+v", p)
	}
}

// Nodes beyond those that have a place are counted together.
func TestTrafficOfManyNodes(t *testing.T) {
	p := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	p.mu.Lock()
	for i := range maxPeers + 10 {
		p.of(event.ID{1, byte(i), byte(i >> 8)}).sent.Add(1)
	}
	p.mu.Unlock()
	if got := p.Totals(); got.Sent != maxPeers+10 || len(p.traffic) != maxPeers {
		t.Errorf("%+v of %d nodes", got, len(p.traffic))
	}
}
