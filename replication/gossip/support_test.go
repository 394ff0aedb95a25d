package gossip

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication/wire"
)

// patience is how long a test waits for what must happen. A test that reaches it has
// found something that hangs, not a busy machine.
const patience = 3 * time.Minute

// quick are the periods of tests: a fifth of the defaults.
func quick(o *Options) {
	o.Interval, o.Timeout = 400*time.Millisecond, 500*time.Millisecond
	o.timing = timing{retryMin: 20 * time.Millisecond, retryMax: 200 * time.Millisecond, heal: 300 * time.Millisecond, seeds: time.Millisecond}
}

func id(n byte) event.ID { return event.ID{0: n, 15: n} }

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// logs collects what nodes log.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// warnings counts the lines at that level which hold a text.
func (l *logs) warnings(what string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "[WARN]") && strings.Contains(line, what) {
			n++
		}
	}
	return n
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// nodeOptions are those of a node and of its port between nodes.
type nodeOptions struct {
	Options
	wire wire.Options
}

// cluster is a set of nodes in this process, of which links can be cut.
type cluster struct {
	t     *testing.T
	logs  logs
	seeds atomic.Pointer[[]string]
	nodes map[byte]*Gossip

	mu  sync.Mutex
	cut map[[2]string]bool // from, to
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t, nodes: map[byte]*Gossip{}, cut: map[[2]string]bool{}}
	c.seeds.Store(&[]string{})
	t.Cleanup(func() {
		// All at the same time, so that leaving takes its time once.
		var wg sync.WaitGroup
		for _, g := range c.nodes {
			wg.Go(func() { check.NoError(t, errors.Join(g.Close(), g.o.Port.Close()), "close") })
		}
		wg.Wait()
		if t.Failed() {
			t.Log(c.logs.String())
		}
	})
	return c
}

// open starts a node. Its first node's address becomes a seed of all.
func (c *cluster) open(n byte, change ...func(*nodeOptions)) *Gossip {
	c.t.Helper()
	logger := hclog.New(&hclog.LoggerOptions{Name: fmt.Sprint(n), Output: &c.logs, Level: hclog.Debug})
	o := nodeOptions{
		Options: Options{
			Self: Self{Node: id(n), ReplicationAddress: fmt.Sprintf("127.0.0.1:%d", 1000+int(n)), HTTPHost: "127.0.0.1", HTTPPort: 2000 + int(n), Format: 1, Phase: "fresh"},
			Seeds: func(context.Context) ([]string, error) {
				return *c.seeds.Load(), nil
			},
			Logger: logger,
		},
		wire: wire.Options{Bind: "127.0.0.1:0", Node: id(n), Logger: logger},
	}
	quick(&o.Options)
	var ready atomic.Pointer[Gossip]
	o.allow = func(to netip.AddrPort) bool {
		g := ready.Load()
		if g == nil {
			return true
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.cut[[2]string{g.Addr(), to.String()}]
	}
	for _, f := range change {
		f(&o)
	}
	first := o.Self.Cluster
	o.wire.Cluster = func() event.ID {
		if g := ready.Load(); g != nil {
			return g.self.Load().Cluster
		}
		return first
	}
	port, err := wire.Open(o.wire)
	check.Must(c.t, err)
	o.Port = port
	g, err := Open(o.Options)
	if err != nil {
		c.t.Fatal(errors.Join(err, port.Close()))
	}
	ready.Store(g)
	if len(*c.seeds.Load()) == 0 {
		c.seeds.Store(&[]string{g.Addr()})
	}
	c.nodes[n] = g
	return g
}

// kill ends a node without a word.
func (c *cluster) kill(n byte) {
	c.t.Helper()
	g := c.nodes[n]
	delete(c.nodes, n)
	g.closing.Do(func() { g.closed = g.end(false) })
	check.NoError(c.t, errors.Join(g.closed, g.o.Port.Close()), "kill")
}

// link cuts or mends what is between two sets of nodes.
func (c *cluster) link(a, b []byte, whole bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range a {
		for _, y := range b {
			from, to := c.nodes[x].Addr(), c.nodes[y].Addr()
			c.cut[[2]string{from, to}], c.cut[[2]string{to, from}] = !whole, !whole
		}
	}
}

// summary is a view in short: each node's number with + for alive, - for left, x for dead.
func summary(g *Gossip) string {
	var b strings.Builder
	for _, m := range g.Members() {
		sign := "x"
		if m.Alive {
			sign = "+"
		} else if m.Left {
			sign = "-"
		}
		fmt.Fprintf(&b, "%d%s ", m.Node[0], sign)
	}
	return strings.TrimSpace(b.String())
}

// sees waits until nodes have a view, by following their changes.
func (c *cluster) sees(want string, nodes ...byte) {
	c.t.Helper()
	deadline := time.After(patience)
	for _, n := range nodes {
		g := c.nodes[n]
		for {
			changed := g.Changed()
			got := summary(g)
			if got == want {
				break
			}
			select {
			case <-changed:
			case <-deadline:
				c.t.Fatalf("node %d sees %q, want %q", n, got, want)
			}
		}
	}
}

// get returns one member of a view.
func get(t *testing.T, g *Gossip, n byte) Member {
	t.Helper()
	members := g.Members()
	i := slices.IndexFunc(members, func(m Member) bool { return m.Node == id(n) })
	if i < 0 {
		t.Fatalf("node %d is not there: %s", n, summary(g))
	}
	return members[i]
}

// authority issues certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	check.Must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{t: t, cert: cert, key: key, pool: pool}
}

// issue makes a node's certificate for host names and addresses.
func (a *authority) issue(hosts ...string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	check.Must(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// papers is a Security whose parts can be exchanged.
type papers struct {
	cert atomic.Pointer[tls.Certificate]
	pool atomic.Pointer[x509.CertPool]

	mu    sync.Mutex
	hosts map[string]int // that were asked for
}

func (a *authority) papers(hosts ...string) *papers {
	a.t.Helper()
	p := &papers{hosts: map[string]int{}}
	cert := a.issue(hosts...)
	p.cert.Store(&cert)
	p.pool.Store(a.pool)
	return p
}

func (p *papers) Server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{*p.cert.Load()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: p.pool.Load()}
}

func (p *papers) Client(host string) *tls.Config {
	p.mu.Lock()
	p.hosts[host]++
	p.mu.Unlock()
	return &tls.Config{Certificates: []tls.Certificate{*p.cert.Load()}, RootCAs: p.pool.Load(), ServerName: host}
}

// secured is an option: certificates of an authority for the local address.
func (a *authority) secured() func(*nodeOptions) {
	return func(o *nodeOptions) { o.wire.Security = a.papers("127.0.0.1") }
}
