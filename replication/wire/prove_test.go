package wire

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication/peersecret"
)

var allKinds = []Kind{KindRaft, KindService, KindRelay, kindInstall, KindGossip, KindPackets}

func secretIn(t testing.TB, dir string) *peersecret.Secret {
	t.Helper()
	s, _, err := peersecret.Settle(vfs.OS, dir)
	check.Must(t, err)
	return s
}

// proving are the options of a node with a secret, in a folder of its own unless one is given.
func proving(t testing.TB, n byte, dirs ...string) Options {
	t.Helper()
	dir := append(dirs, t.TempDir())[0]
	return Options{Node: node(n), Cluster: member(clusterA), Secret: secretIn(t, dir)}
}

// TestProvedNodesConnect: by a file that is read, by copies of one, and through what the operator
// put between.
func TestProvedNodesConnect(t *testing.T) {
	one := t.TempDir()
	copied := t.TempDir()
	data, err := os.ReadFile(secretIn(t, one).File())
	if err == nil {
		err = os.WriteFile(filepath.Join(copied, peersecret.FileName), data, 0o600)
	}
	check.Must(t, err)
	gone := proving(t, 1, copied)
	if err := os.Remove(gone.Secret.File()); err != nil { // It is known without reading it.
		t.Fatal(err)
	}
	for name, pair := range map[string][2]Options{
		"files of each": {proving(t, 1), proving(t, 2)},
		"copies":        {gone, proving(t, 2, one)},
	} {
		for _, k := range allKinds {
			t.Run(name+", "+k.String(), func(t *testing.T) {
				to, from := open(t, pair[0]), open(t, pair[1])
				echo(t, to, k)
				for range 2 { // The second time the secret is known.
					c := check.Value(from.Dial(t.Context(), k, to.Addr().String())).Must(t)
					say(t, c, "hello")
					check.Equal(t, NodeOf(c), node(1), "connected to")
					check.NoError(t, c.Close())
				}
			})
		}
	}
	t.Run("through an address that is advertised", func(t *testing.T) {
		middle := between(t)
		o := proving(t, 1)
		o.Advertise = middle.Addr().String()
		to, from := open(t, o), open(t, proving(t, 2))
		echo(t, to, KindService)
		middle.leadTo(to.Addr().String())
		c := check.Value(from.Dial(t.Context(), KindService, middle.Addr().String())).Must(t)
		say(t, c, "hello")
		check.NoError(t, c.Close())
	})
	t.Run("what a proved node refuses", func(t *testing.T) {
		o := proving(t, 1)
		o.Cluster = member(clusterB)
		to, from := open(t, o), open(t, proving(t, 2))
		_, err := from.Dial(t.Context(), KindRaft, to.Addr().String())
		if got := refused(t, err); got.Status != StatusOtherCluster {
			t.Errorf("got %+v", got)
		}
	})
}

// middle forwards connections, as another process could that listens at a node's address.
type middle struct {
	net.Listener
	mu sync.Mutex
	to string
}

func between(t *testing.T) *middle {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	m := &middle{Listener: l}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { m.pass(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); tasks.Wait() })
	return m
}

func (m *middle) leadTo(address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.to = address
}

func (m *middle) pass(c net.Conn) {
	defer func() { _ = c.Close() }()
	m.mu.Lock()
	to := m.to
	m.mu.Unlock()
	onward, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer func() { _ = onward.Close() }()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(c, onward); _ = c.Close() })
	_, _ = io.Copy(onward, c)
	_ = onward.(*net.TCPConn).CloseWrite()
	back.Wait()
}

// TestUnprovedProcessesAreRefused: whatever kind a process asks for that does not know the secret,
// and whatever it says.
func TestUnprovedProcessesAreRefused(t *testing.T) {
	own := proving(t, 1)
	ways := map[string]func(t *testing.T, c net.Conn, q request) (answer, error){
		"nothing, as a node of the version before": func(t *testing.T, c net.Conn, q request) (answer, error) {
			q.proves = false
			check.Must(t, check.Err(c.Write(q.encode())))
			return readAnswer(c)
		},
		"a code by another secret": func(t *testing.T, c net.Conn, q request) (answer, error) {
			asked := challenged(t, c, q)
			return proveBy(t, c, q, asked, secretIn(t, t.TempDir()))
		},
		"zeros": func(t *testing.T, c net.Conn, q request) (answer, error) {
			challenged(t, c, q)
			check.Must(t, check.Err(c.Write(make([]byte, nonceSize+addressSize+codeSize))))
			return readAnswer(c)
		},
		"a right code for another node id": func(t *testing.T, c net.Conn, q request) (answer, error) {
			asked := challenged(t, c, q)
			q.Node = node(9)
			return proveBy(t, c, q, asked, own.Secret)
		},
		"a right code for another challenge": func(t *testing.T, c net.Conn, q request) (answer, error) {
			asked := challenged(t, c, q)
			asked.nonce[3]++
			return proveBy(t, c, q, asked, own.Secret)
		},
	}
	for name, say := range ways {
		for _, k := range allKinds {
			t.Run(name+", "+k.String(), func(t *testing.T) {
				to := open(t, own)
				l := to.Listener(k)
				c, err := net.Dial("tcp", to.Addr().String())
				check.Must(t, err)
				defer func() { _ = c.Close() }()
				a, err := say(t, c, request{version: formatVersion, kind: k, proves: true, Identity: Identity{Node: node(2), Cluster: clusterA}})
				check.Must(t, err)
				check.Equal(t, a.status, StatusUnproven, "answered", a)
				if more, err := io.ReadAll(c); err != nil || len(more) > 0 {
					t.Errorf("and after that %x, %v", more, err)
				}
				_ = l.Close()
				if delivered, err := l.Accept(); err == nil {
					t.Errorf("%v was delivered", delivered.RemoteAddr())
				}
			})
		}
	}
}

// challenged sends a request and returns what is asked for.
func challenged(t *testing.T, c net.Conn, q request) challenge {
	t.Helper()
	check.Must(t, check.Err(c.Write(q.encode())))
	if a, err := readAnswer(c); err != nil || a.status != StatusProve {
		t.Fatalf("answered %+v, %v", a, err)
	}
	asked := check.Value(readChallenge(c)).Must(t)
	return asked
}

// proveBy gives a proof for a request and a challenge.
func proveBy(t *testing.T, c net.Conn, q request, asked challenge, by *peersecret.Secret) (answer, error) {
	t.Helper()
	p := &Port{opts: Options{Secret: by}}
	asked.secret = by.ID()
	check.Must(t, check.Err(p.prove(&saying{Conn: c, heard: bytes.NewReader(asked.encode())}, &q)))
	return readAnswer(c)
}

// saying is a connection of which something else is read.
type saying struct {
	net.Conn
	heard io.Reader
}

func (s *saying) Read(b []byte) (int, error) { return s.heard.Read(b) }

// TestPassedOnConnectionsAreRefused: a process that listens where a node is missing cannot get
// between two others.
func TestPassedOnConnectionsAreRefused(t *testing.T) {
	var log lines
	o := proving(t, 1)
	o.Logger = log.logger(hclog.Warn)
	to := open(t, o)
	echo(t, to, KindService)
	m := between(t)
	m.leadTo(to.Addr().String())
	for name, from := range map[string]*Port{"another node": open(t, proving(t, 2)), "the node itself": to} {
		t.Run(name, func(t *testing.T) {
			_, err := from.Dial(t.Context(), KindService, m.Addr().String())
			if got := refused(t, err); got.Status != StatusUnproven || !strings.Contains(got.Reason, "dialled "+m.Addr().String()+", which is not an address of this node") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestImpostorsAreNotBelieved: what listens where a node is dialled, and does not know the secret
// of a node.
func TestImpostorsAreNotBelieved(t *testing.T) {
	real := secretIn(t, t.TempDir())
	shared := secretIn(t, t.TempDir())
	check.Must(t, os.Chmod(shared.File(), 0o644))
	foreign := secretIn(t, t.TempDir())
	if os.Geteuid() == 0 {
		if err := os.Chown(foreign.File(), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(foreign.File(), 0); err != nil {
		t.Fatal(err)
	}
	accepted := answer{version: formatVersion, status: StatusAccepted, Identity: Identity{Node: node(7), Cluster: clusterA}}
	// naming asks for a proof by a secret, and then accepts with a code by another.
	naming := func(id peersecret.ID, file string, by *peersecret.Secret) func(c net.Conn) {
		return func(c net.Conn) {
			q, err := readRequest(c, nil)
			if err != nil {
				return
			}
			a := accepted
			a.status = StatusProve
			asked := challenge{secret: id, file: file}
			if _, err := c.Write(append(a.encode(), asked.encode()...)); err != nil {
				return
			}
			said := make([]byte, nonceSize+addressSize+codeSize)
			if _, err := io.ReadFull(c, said); err != nil {
				return
			}
			p := &proof{secret: by, about: append(append(q.encode(), asked.encode()...), said[:nonceSize+addressSize]...)}
			_, _ = c.Write(p.sealed(accepted.encode()))
		}
	}
	cases := []struct {
		name string
		be   func(c net.Conn)
		text string
	}{
		{"accepts at once", func(c net.Conn) {
			if _, err := readRequest(c, nil); err == nil {
				_, _ = c.Write(accepted.encode())
			}
		}, "offers no proof"},
		{"names the file of a node, and does not know it", naming(real.ID(), real.File(), foreign), "does not know the secret"},
		{"names one that everybody can read", naming(shared.ID(), shared.File(), shared), "can be read by others"},
		{"names one of its own", naming(foreign.ID(), foreign.File(), foreign), "cannot be read"},
		{"names another file", naming(real.ID(), "/etc/hostname", real), "is not the path of a file peer-secret"},
		{"names a file by a path from here", naming(real.ID(), peersecret.FileName, real), "is not the path"},
		{"names a file that holds another secret", naming(peersecret.ID{1}, real.File(), real), "holds another secret"},
		{"answers with the code of the dialler", func(c net.Conn) {
			if _, err := readRequest(c, nil); err != nil {
				return
			}
			a := accepted
			a.status = StatusProve
			asked := challenge{secret: real.ID(), file: real.File()}
			_, _ = c.Write(append(a.encode(), asked.encode()...))
			said := make([]byte, nonceSize+addressSize+codeSize)
			if _, err := io.ReadFull(c, said); err == nil {
				_, _ = c.Write(append(accepted.encode(), said[nonceSize+addressSize:]...))
			}
		}, "does not know the secret"},
		{"ends after its answer", func(c net.Conn) {
			if _, err := readRequest(c, nil); err != nil {
				return
			}
			a := accepted
			a.status = StatusProve
			_, _ = c.Write(a.encode())
		}, "closed the connection"},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			check.Must(t, err)
			var task sync.WaitGroup
			task.Go(func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer func() { _ = c.Close() }()
				test.be(c)
				linger(c)
			})
			t.Cleanup(func() { _ = l.Close(); task.Wait() })
			from := open(t, proving(t, 2))
			c, err := from.Dial(t.Context(), KindService, l.Addr().String())
			if err == nil {
				_ = c.Close()
				t.Fatal("it was believed")
			}
			check.Contains(t, err.Error(), test.text, "error")
		})
	}
}

// TestWithAndWithoutProofs: a node that is to prove itself and one that is not refuse each other,
// and both say why.
func TestWithAndWithoutProofs(t *testing.T) {
	without := Options{Node: node(1), Cluster: member(clusterA)}
	for name, pair := range map[string][2]Options{"dials": {proving(t, 2), without}, "is dialled": {without, proving(t, 2)}} {
		t.Run("one without "+name, func(t *testing.T) {
			to, from := open(t, pair[0]), open(t, pair[1])
			echo(t, to, KindService)
			_, err := from.Dial(t.Context(), KindService, to.Addr().String())
			if got := refused(t, err); got.Status != StatusUnproven || !strings.Contains(got.Reason, "it runs with Insecure, or is of an earlier version") {
				t.Errorf("got %+v", got)
			}
		})
	}
	o := proving(t, 1)
	o.Security = newAuthority(t).security(1)
	o.Bind = "127.0.0.1:0"
	check.Fails(t, check.Err(Open(o)), "certificates and a secret were taken together")
}

// FuzzChallenge: what an impostor sends is read or refused, and what is read is what was sent.
func FuzzChallenge(f *testing.F) {
	f.Add((&challenge{secret: peersecret.ID{1}, file: "/a/peer-secret"}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		c, err := readChallenge(r)
		if err != nil {
			return
		}
		if again := c.encode(); !bytes.Equal(again, b[:len(b)-r.Len()]) {
			t.Errorf("%x became %x", b, again)
		}
	})
}
