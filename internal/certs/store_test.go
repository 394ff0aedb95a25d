package certs_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

// connect does a handshake over a loopback connection, and sends a byte each
// way: in TLS 1.3 a client learns only then that it was refused. It returns what
// each side failed with.
func connect(t testing.TB, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	s, c := dial(t, server, client)
	return s.err, c.err
}

// side is one end of a connection.
type side struct {
	conn *tls.Conn
	err  error
}

func dial(t testing.TB, server, client *tls.Config) (s, c side) {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	defer l.Close()
	done := make(chan side, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			done <- side{err: err}
			return
		}
		conn := tls.Server(raw, server)
		done <- side{conn, talk(conn)}
	}()
	raw := check.Value(net.Dial("tcp", l.Addr().String())).Must(t)
	conn := tls.Client(raw, client)
	c = side{conn, talk(conn)}
	s = <-done
	t.Cleanup(func() {
		// Closing tells what went wrong before.
		_ = conn.Close()
		if s.conn != nil {
			_ = s.conn.Close()
		}
	})
	return s, c
}

// patience bounds waits for what must happen, however slow the machine is.
const patience = 3 * time.Minute

// talk does the handshake and an exchange.
func talk(conn *tls.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	err := conn.Handshake()
	if err == nil {
		err = exchange(conn)
	}
	if err != nil {
		// The other side learns that the connection is closed.
		return errors.Join(err, conn.NetConn().Close())
	}
	return nil
}

func exchange(conn *tls.Conn) error {
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// tls12 limits a configuration to TLS 1.2.
func tls12(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.MaxVersion = tls.VersionTLS12
	return c
}

func storeOf(t testing.TB, node, root *pair, intermediates ...*pair) *certs.Store {
	t.Helper()
	return certs.NewStore(setOf(t, node, root, intermediates...), certs.StoreOptions{})
}

func TestPeerHandshakes(t *testing.T) {
	root := newAuthority(t, nil, "root")
	between := newAuthority(t, root, "between")
	foreign := newAuthority(t, nil, "foreign")
	forServers := newAuthority(t, root, "servers", forUse(x509.ExtKeyUsageServerAuth))
	node := storeOf(t, root.node(t), root)
	// client is a TLS client that is not ours.
	client := func(p *pair, more ...*pair) *tls.Config {
		c := &tls.Config{InsecureSkipVerify: true}
		if p != nil {
			mine := tls.Certificate{PrivateKey: p.key, Certificate: [][]byte{p.c.Raw}}
			for _, m := range more {
				mine.Certificate = append(mine.Certificate, m.c.Raw)
			}
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &mine, nil }
		}
		return c
	}
	server := func(p *pair) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{{PrivateKey: p.key, Certificate: [][]byte{p.c.Raw}}}}
	}
	byDNS := certs.NewStore(node.Current(), certs.StoreOptions{DNSName: "cluster.example.com"})
	pattern := newFolder(t).files(root.node(t, named("n1.eu.example.com")), root)
	pattern.ReservedCN = "*.eu.example.com"
	wide := certs.NewStore(load(t, pattern), certs.StoreOptions{})
	oldNode := root.node(t, valid(-2*hours24, -hours24))
	// With the option, the usage that public authorities no longer issue is not demanded, of either
	// side.
	serverOnly := func(node *pair, intermediates ...*pair) *certs.Store {
		f := newFolder(t).files(node, root, intermediates...)
		f.ServerOnly = true
		return certs.NewStore(load(t, f), certs.StoreOptions{})
	}
	lenient := serverOnly(root.node(t, forUse(x509.ExtKeyUsageServerAuth)))

	cases := []struct {
		name           string
		server, client *tls.Config
		serverErr      error
		clientErr      error
		text           string // a part of our error
	}{
		{name: "node to node by name", server: node.Server(), client: node.Client("localhost")},
		{name: "node to node by address", server: node.Server(), client: node.Client("127.0.0.1")},
		{name: "name in other case, with a dot", server: node.Server(), client: node.Client("LocalHost.")},
		{name: "another node", server: node.Server(), client: storeOf(t, root.node(t), root).Client("localhost")},
		{name: "intermediates", server: storeOf(t, between.node(t), root, between).Server(),
			client: storeOf(t, between.node(t), root, between).Client("localhost")},
		{name: "intermediate sent by one side", server: node.Server(), client: storeOf(t, between.node(t), root, between).Client("localhost")},
		{name: "intermediate known though not sent", server: storeOf(t, between.node(t), root, between).Server(), client: client(between.node(t))},
		{name: "intermediate neither known nor sent", server: node.Server(), client: client(between.node(t)), serverErr: certs.ErrChain, text: "(PartialChain)"},

		{name: "client of a foreign authority", server: node.Server(), client: client(foreign.node(t)), serverErr: certs.ErrChain,
			text: `RemoteCertificateChainErrors (PartialChain): the certificate "CN=node" issued by "CN=foreign" is refused: x509: certificate signed by unknown authority`},
		{name: "client without certificate", server: node.Server(), client: client(nil), text: "didn't provide a certificate"},
		{name: "client expired", server: node.Server(), client: client(oldNode), serverErr: certs.ErrChain, text: "RemoteCertificateChainErrors (NotTimeValid)"},
		{name: "client without alternative name", server: node.Server(), client: client(root.node(t, forHosts(nil))), serverErr: certs.ErrNotNode, text: "neither a DNS name"},
		{name: "client of another name", server: node.Server(), client: client(root.node(t, named("user"))), serverErr: certs.ErrNotNode, text: `"user" does not match the reserved name "node"`},
		{name: "client for servers only", server: node.Server(), client: client(root.node(t, forUse(x509.ExtKeyUsageServerAuth))), serverErr: certs.ErrChain, text: "(NotValidForUsage)"},
		{name: "authority for servers only", server: node.Server(), serverErr: certs.ErrChain, text: "(NotValidForUsage)",
			client: client(forServers.node(t), forServers)},
		{name: "both for servers only, allowed", server: lenient.Server(), client: lenient.Client("localhost")},
		{name: "authority for servers only, allowed", server: lenient.Server(), client: serverOnly(forServers.node(t), forServers).Client("localhost")},
		{name: "server for servers only", server: lenient.Server(), client: node.Client("localhost"), clientErr: certs.ErrChain, text: "(NotValidForUsage)"},
		{name: "client for clients only, though servers suffice", server: lenient.Server(), client: client(root.node(t, forUse(x509.ExtKeyUsageClientAuth))),
			serverErr: certs.ErrChain, text: "(NotValidForUsage)"},
		{name: "another name, though servers suffice", server: lenient.Server(), client: client(root.node(t, named("user"), forUse(x509.ExtKeyUsageServerAuth))),
			serverErr: certs.ErrNotNode, text: "reserved name"},
		{name: "public, for servers only", server: node.PublicServer(), client: client(root.node(t, forUse(x509.ExtKeyUsageServerAuth))),
			serverErr: certs.ErrChain, text: "(NotValidForUsage)"},
		{name: "public, for servers only, allowed", server: lenient.PublicServer(), client: client(root.node(t, forUse(x509.ExtKeyUsageServerAuth)))},
		{name: "public, of another name, though servers suffice", server: lenient.PublicServer(),
			client: client(root.node(t, named("user"), forUse(x509.ExtKeyUsageServerAuth))), serverErr: certs.ErrChain, text: "(NotValidForUsage)"},

		{name: "pattern", server: wide.Server(), client: client(root.node(t, named("n2.eu.example.com")))},
		{name: "pattern missed", server: wide.Server(), client: client(root.node(t, named("n2.us.example.com"))), serverErr: certs.ErrNotNode, text: "does not match"},

		{name: "server of a foreign authority", server: server(foreign.node(t)), client: node.Client("localhost"), clientErr: certs.ErrChain, text: "(PartialChain)"},
		{name: "server without alternative name", server: server(root.node(t, forHosts(nil), named("node"))), client: node.Client("node"), clientErr: certs.ErrNotNode, text: "neither"},
		{name: "server of another name", server: server(root.node(t, named("web"))), client: node.Client("localhost"), clientErr: certs.ErrNotNode, text: "reserved name"},
		{name: "server of another host", server: node.Server(), client: node.Client("other"), clientErr: certs.ErrHost, text: `not issued for "other", but for ["localhost" "127.0.0.1"]`},
		{name: "server of another address", server: node.Server(), client: node.Client("127.0.0.2"), clientErr: certs.ErrHost, text: "127.0.0.2"},
		{name: "common name is no host", server: node.Server(), client: node.Client("node"), clientErr: certs.ErrHost, text: `"node"`},
		{name: "address as a name", server: server(root.node(t, forHosts([]string{"127.0.0.1"}))), client: node.Client("127.0.0.1"), clientErr: certs.ErrHost, text: "not issued"},
		{name: "wildcard", server: server(root.node(t, forHosts([]string{"*.example.com"}))), client: node.Client("n1.example.com")},
		{name: "wildcard covers one label", server: server(root.node(t, forHosts([]string{"*.example.com"}))), client: node.Client("n1.eu.example.com"), clientErr: certs.ErrHost},
		{name: "ipv6", server: server(root.node(t, forHosts(nil, net.IPv6loopback))), client: node.Client("::1")},
		{name: "ipv6 with a zone", server: server(root.node(t, forHosts(nil, net.ParseIP("fe80::1")))), client: node.Client("fe80::1%eth0")},
		{name: "name of the cluster", server: server(root.node(t, forHosts([]string{"cluster.example.com"}))), client: byDNS.Client("10.0.0.9")},
		{name: "host, though there is a name of the cluster", server: node.Server(), client: byDNS.Client("localhost")},
		{name: "neither host nor cluster", server: server(root.node(t, forHosts([]string{"x"}))), client: byDNS.Client("y"), clientErr: certs.ErrHost, text: `"y" nor for "cluster.example.com", but for ["x"]`},
	}
	for _, c := range cases {
		for _, version := range []string{"1.3", "1.2"} {
			t.Run(c.name+" "+version, func(t *testing.T) {
				client := c.client
				if version == "1.2" {
					client = tls12(client)
				}
				serverErr, clientErr := connect(t, c.server, client)
				if c.serverErr == nil && c.clientErr == nil && c.text == "" {
					if serverErr != nil || clientErr != nil {
						t.Fatalf("server: %v\nclient: %v", serverErr, clientErr)
					}
					return
				}
				if serverErr == nil || clientErr == nil {
					t.Fatalf("not refused on both sides\nserver: %v\nclient: %v", serverErr, clientErr)
				}
				ours := serverErr
				if c.clientErr != nil {
					ours = clientErr
				}
				if !errors.Is(serverErr, c.serverErr) && c.serverErr != nil || !errors.Is(clientErr, c.clientErr) && c.clientErr != nil ||
					!strings.Contains(ours.Error(), c.text) {
					t.Errorf("server: %v\nclient: %v", serverErr, clientErr)
				}
			})
		}
	}
}

// A listener for peers takes no TLS before 1.2.
func TestOldVersionsAreRefused(t *testing.T) {
	root := newAuthority(t, nil, "root")
	store := storeOf(t, root.node(t), root)
	for name, server := range map[string]*tls.Config{"peer": store.Server(), "public": store.PublicServer()} {
		client := store.Client("localhost")
		client.MinVersion, client.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
		if serverErr, _ := connect(t, server, client); serverErr == nil {
			t.Errorf("%s: TLS 1.1 was accepted", name)
		}
	}
}

func TestReplaceBetweenPeers(t *testing.T) {
	oldRoot, newRoot := newAuthority(t, nil, "old"), newAuthority(t, nil, "new")
	one, two := storeOf(t, oldRoot.node(t), oldRoot), storeOf(t, oldRoot.node(t), oldRoot)
	server, client := one.Server(), two.Client("localhost")
	// A client that would resume its session if it could.
	client.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	s, c := dial(t, server, client)
	check.Must(t, errors.Join(s.err, c.err))
	one.Replace(setOf(t, newRoot.node(t), newRoot))
	check.NoError(t, both(s.conn, c.conn), "the connection that was there")
	serverErr, clientErr := connect(t, server, client)
	check.Is(t, clientErr, certs.ErrChain, "the old client accepted the new server", serverErr)
	two.Replace(setOf(t, newRoot.node(t), newRoot))
	s, c = dial(t, server, client)
	check.NoError(t, errors.Join(s.err, c.err), "both with new certificates")
	if s, c := dial(t, server, client); s.err != nil || c.err != nil || c.conn.ConnectionState().DidResume {
		t.Errorf("resumed, or %v, %v", s.err, c.err)
	}
}

// both exchanges a byte each way over a connection that is there.
func both(server, client *tls.Conn) error {
	done := make(chan error, 1)
	go func() { done <- exchange(server) }()
	return errors.Join(exchange(client), <-done)
}

// Handshakes continue while certificates are swapped: each sees one Set as a whole.
func TestReplaceUnderHandshakes(t *testing.T) {
	root := newAuthority(t, nil, "root")
	sets := []*certs.Set{setOf(t, root.node(t), root), setOf(t, root.node(t), root)}
	store := certs.NewStore(sets[0], certs.StoreOptions{})
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				store.Replace(sets[i%2])
			}
		}
	}()
	for range 50 {
		if serverErr, clientErr := connect(t, store.Server(), store.Client("localhost")); serverErr != nil || clientErr != nil {
			t.Fatalf("server: %v\nclient: %v", serverErr, clientErr)
		}
	}
	close(done)
	<-stopped
}

// web is a server for clients that tells each caller whether it is a node.
func web(t *testing.T, store *certs.Store, prepare func(context.Context, net.Conn) context.Context) (url string, log *watchedBuffer) {
	t.Helper()
	log = &watchedBuffer{changed: make(chan struct{}, 1)}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			answer := r.Proto
			if certs.FromNode(r.Context()) {
				answer += " node"
			}
			// A client that is gone is none of ours.
			_, _ = io.WriteString(w, answer)
		}),
		ConnContext: prepare,
		ErrorLog:    hclog.New(&hclog.LoggerOptions{Output: log}).StandardLogger(nil),
		TLSConfig:   store.PublicServer(),
	}
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(l, "", "") }()
	t.Cleanup(func() {
		check.NoError(t, server.Close())
		check.Is(t, <-done, http.ErrServerClosed)
	})
	return "https://" + l.Addr().String(), log
}

// watchedBuffer is written by the server and waited for by the test.
type watchedBuffer struct {
	mu      sync.Mutex
	b       strings.Builder
	changed chan struct{} // of capacity 1
}

func (b *watchedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return b.b.Write(p)
}

func (b *watchedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// wait returns when the text has a part: the server writes after it has answered the client.
func (b *watchedBuffer) wait(t *testing.T, part string) {
	t.Helper()
	timeout := time.After(patience)
	for !strings.Contains(b.text(), part) {
		select {
		case <-b.changed:
		case <-timeout:
			t.Fatalf("%s was not logged:\n%s", part, b.text())
		}
	}
}

// ask calls the server with a client certificate, if there is one.
func ask(t *testing.T, url string, root *pair, p *pair, transports ...*http.Transport) (string, error) {
	t.Helper()
	var transport *http.Transport
	if len(transports) > 0 {
		transport = transports[0]
	} else {
		transport = newTransport(root, p)
		defer transport.CloseIdleConnections()
	}
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func newTransport(root, p *pair) *http.Transport {
	roots := x509.NewCertPool()
	roots.AddCert(root.c)
	c := &tls.Config{RootCAs: roots}
	if p != nil {
		mine := tls.Certificate{PrivateKey: p.key, Certificate: [][]byte{p.c.Raw}}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &mine, nil }
	}
	return &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
}

func TestPublicServer(t *testing.T) {
	root, foreign := newAuthority(t, nil, "root"), newAuthority(t, nil, "foreign")
	store := storeOf(t, root.node(t), root)
	url, log := web(t, store, certs.WithPeer)
	cases := []struct {
		name   string
		client *pair
		want   string
	}{
		{"no certificate", nil, "HTTP/2.0"},
		{"node", root.node(t), "HTTP/2.0 node"},
		{"user", root.node(t, named("user")), "HTTP/2.0"},
		{"user without alternative name", root.node(t, forHosts(nil)), "HTTP/2.0"},
		{"client only", root.node(t, forUse(x509.ExtKeyUsageClientAuth)), "HTTP/2.0"},
		{"server only", root.node(t, forUse(x509.ExtKeyUsageServerAuth)), ""},
		{"foreign", foreign.node(t), ""},
		{"expired", root.node(t, valid(-2*hours24, -hours24)), ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := ask(t, url, root, c.client)
			check.MustEqual(t, got, c.want, err)
			check.Equal(t, err == nil, c.want != "", err)
		})
	}
	for _, want := range []string{"RemoteCertificateChainErrors (PartialChain)", "RemoteCertificateChainErrors (NotTimeValid)", "RemoteCertificateChainErrors (NotValidForUsage)"} {
		log.wait(t, want)
	}
}

// Without the context that remembers, no caller is taken for a node.
func TestNobodyIsNodeWithoutWithPeer(t *testing.T) {
	root := newAuthority(t, nil, "root")
	url, _ := web(t, storeOf(t, root.node(t), root), nil)
	if got, err := ask(t, url, root, root.node(t)); got != "HTTP/2.0" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if certs.FromNode(context.Background()) {
		t.Error("an empty context is that of a node")
	}
}

// Who the other side is stays the same for a connection, and is decided again for the next one.
func TestReplaceForClients(t *testing.T) {
	root := newAuthority(t, nil, "root")
	node := root.node(t)
	store := storeOf(t, root.node(t), root)
	url, _ := web(t, store, certs.WithPeer)
	transport := newTransport(root, node)
	defer transport.CloseIdleConnections()
	if got, err := ask(t, url, root, node, transport); got != "HTTP/2.0 node" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	replaced := newFolder(t).files(root.node(t, named("other")), root)
	store.Replace(load(t, replaced))
	if got, err := ask(t, url, root, node, transport); got != "HTTP/2.0 node" || err != nil {
		t.Errorf("the connection that was there: %q, %v", got, err)
	}
	if got, err := ask(t, url, root, node); got != "HTTP/2.0" || err != nil {
		t.Errorf("a new connection: %q, %v", got, err)
	}
}

// No session is resumed: a ticket would outlive the certificates and the trust of its time.
func TestSessionsAreNotResumed(t *testing.T) {
	oldRoot, newRoot := newAuthority(t, nil, "old"), newAuthority(t, nil, "new")
	store := storeOf(t, oldRoot.node(t), oldRoot)
	server := store.PublicServer()
	user := oldRoot.node(t, named("user"))
	mine := tls.Certificate{PrivateKey: user.key, Certificate: [][]byte{user.c.Raw}}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		store.Replace(setOf(t, oldRoot.node(t), oldRoot))
		client := &tls.Config{
			InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "localhost", MaxVersion: version,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &mine, nil },
		}
		for i := range 2 {
			if s, c := dial(t, server, client); s.err != nil || c.err != nil || c.conn.ConnectionState().DidResume {
				t.Fatalf("version %x, connection %d: %v, %v, resumed %t", version, i, s.err, c.err, c.conn != nil && c.conn.ConnectionState().DidResume)
			}
		}
		store.Replace(setOf(t, newRoot.node(t), newRoot))
		if serverErr, _ := connect(t, server, client); !errors.Is(serverErr, certs.ErrChain) {
			t.Errorf("version %x: the old certificate was taken: %v", version, serverErr)
		}
	}
}

// With the many roots of an operating system the request for a client
// certificate names none, and still works.
func TestManyRoots(t *testing.T) {
	root := newAuthority(t, nil, "root")
	d := newFolder(t)
	f := d.files(root.node(t), root)
	many := make([]*pair, 200)
	for i := range many {
		many[i] = newAuthority(t, nil, strings.Repeat("x", 60)+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	d.put("roots/many.pem", pemOf(many...))
	user := many[7].node(t, named("user"))
	for name, c := range map[string]struct {
		f     certs.Files
		names int
	}{
		"few":  {newFolder(t).files(root.node(t), root), 1},
		"many": {f, 0},
	} {
		store := certs.NewStore(load(t, c.f), certs.StoreOptions{})
		names := -1
		client := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			names = len(r.AcceptableCAs)
			if name == "few" {
				return new(tls.Certificate), nil
			}
			return &tls.Certificate{PrivateKey: user.key, Certificate: [][]byte{user.c.Raw}}, nil
		}}
		if serverErr, clientErr := connect(t, store.PublicServer(), client); serverErr != nil || clientErr != nil || names != c.names {
			t.Errorf("%s: %d names, %v, %v", name, names, serverErr, clientErr)
		}
	}
}

// A Set without roots trusts no authority, not even those of the operating system.
func TestNoRootsTrustNobody(t *testing.T) {
	root := newAuthority(t, nil, "root")
	set := *setOf(t, root.node(t), root)
	set.Roots = nil
	store := certs.NewStore(&set, certs.StoreOptions{})
	if serverErr, _ := connect(t, store.Server(), store.Client("localhost")); serverErr == nil {
		t.Error("a peer was accepted")
	}
}
