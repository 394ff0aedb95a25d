package integration_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/testkit"
)

// authority is a certificate authority made by the command.
type authority struct {
	t     *testing.T
	dir   string
	roots string // folder with the authority's certificate alone
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: filepath.Join(t.TempDir(), "ca"), roots: t.TempDir()}
	a.command("ca", "--out", a.dir, "--key", "ecdsa-p256")
	copyInto(t, filepath.Join(a.dir, "ca.crt"), a.roots)
	return a
}

func (a *authority) command(args ...string) {
	a.t.Helper()
	if p, code := testkit.Run(a.t, testkit.Command{Args: append([]string{"certs"}, args...), Quiet: true}); code != 0 {
		a.t.Fatalf("annals certs %s: exit code %d\n%s", strings.Join(args, " "), code, p.Output())
	}
}

// options are those of a node with a certificate of this authority.
func (a *authority) options(host *lab.Host) []string {
	a.t.Helper()
	out := filepath.Join(a.dir, host.Addr())
	if _, err := os.Stat(out); err != nil {
		a.command("node", "--ca", a.dir, "--out", out, "--ip", host.Addr())
	}
	return []string{
		"--certificate-file", filepath.Join(out, "node.crt"), "--certificate-private-key-file", filepath.Join(out, "node.key"),
		"--trusted-root-certificates-path", a.roots,
	}
}

// client trusts this authority.
func (a *authority) client() *tls.Config {
	a.t.Helper()
	pem := check.Value(os.ReadFile(filepath.Join(a.dir, "ca.crt"))).Must(a.t)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		a.t.Fatal("ca.crt holds no certificate")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// TestLongClusterTLS runs a cluster with certificates: clients are served by HTTPS
// with the rights that they have on one node, also where a follower relays.
func TestLongClusterTLS(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t), newAuthority(t)
	c := newCluster(t, clusterOptions{
		hosts: 4, tls: ours.client(), options: []string{"--follower-writes", "Forward"},
		security: func(host *lab.Host) []string { return ours.options(host) },
	})
	for _, m := range c.members[:3] {
		m.start()
	}
	leader, followers := c.settled()
	follower := followers[0]
	t.Run("announced address", func(t *testing.T) {
		if line := lineWith(follower.process, "annals listens on"); !strings.HasSuffix(line, follower.URL()) {
			t.Errorf("the node serves %s and says: %s", follower.URL(), line)
		}
	})
	plain := testkit.NewClient("http://"+follower.Host(), nil)
	t.Cleanup(plain.CloseIdle)
	if answer, err := plain.Do(t.Context(), testkit.Request{Path: "/streams/x"}); err == nil && answer.Status < 300 {
		t.Errorf("plain HTTP was answered with %s", answer)
	}
	other := testkit.NewClient(follower.URL(), foreign.client())
	t.Cleanup(other.CloseIdle)
	if answer, err := other.Do(t.Context(), testkit.Request{Path: "/ping"}); err == nil {
		t.Errorf("a client that trusts another authority was answered %s", answer)
	}

	// Every case at the leader, and relayed.
	cases := []struct {
		name string
		r    testkit.Request
		want int
	}{
		{"append by anybody", appendOf("open", ""), http.StatusCreated},
		{"append to a system stream by anybody", appendOf("$closed", ""), http.StatusUnauthorized},
		{"append to a system stream by the administrator", appendOf("$closed", "admin:changeit"), http.StatusCreated},
		{"append with a wrong password", appendOf("open", "admin:wrong"), http.StatusUnauthorized},
		{"append by nobody we know", appendOf("open", "eve:changeit"), http.StatusUnauthorized},
		{"all events by anybody", testkit.Request{Path: testkit.AllStart}, http.StatusUnauthorized},
		{"all events by the administrator", testkit.Request{Path: testkit.AllStart, Admin: true}, http.StatusOK},
		{"members by anybody", testkit.Request{Path: "/admin/cluster/members"}, http.StatusUnauthorized},
		{"resignation by anybody", testkit.Request{Method: http.MethodPost, Path: "/admin/node/resign"}, http.StatusUnauthorized},
		{"gossip by anybody", testkit.Request{Path: "/gossip"}, http.StatusOK},
	}
	for _, m := range []*member{leader, follower} {
		for i, one := range cases {
			r := one.r
			if r.Body != nil {
				n := i
				if m == follower {
					n += 100
				}
				r = withID(r, n)
			}
			answer, err := m.ask(r)
			for err == nil && answer.Status == http.StatusServiceUnavailable && t.Context().Err() == nil {
				c.settled() // A busy machine has lost its leader.
				answer, err = m.ask(r)
			}
			check.Must(t, err)
			check.Equal(t, answer.Status, one.want, m, one.name, answer)
			if answer.Status == http.StatusCreated && !strings.HasPrefix(answer.Header.Get("Location"), m.URL()+"/streams/") {
				t.Errorf("%s, %s: Location %q", m, one.name, answer.Header.Get("Location"))
			}
		}
	}
	// A client cannot give itself the rights of a node.
	forged := withID(appendOf("$closed", ""), 200)
	forged.Header["Annals-Relayed"] = "1"
	for _, m := range []*member{leader, follower} {
		if answer, err := m.ask(forged); err != nil || answer.Status == http.StatusCreated {
			t.Errorf("%s, a request that says it was relayed: %s, %v", m, answer, err)
		}
	}
	c.identical(c.members[:3]...)

	t.Run("certificate of another authority", func(t *testing.T) {
		c.in(t)
		stranger := c.members[3]
		args := append(stranger.arguments(), foreign.options(stranger.host)...)
		stranger.process = stranger.run(append([]string{"node"}, args...)...)
		own := testkit.NewClient(stranger.URL(), foreign.client())
		t.Cleanup(own.CloseIdle)
		stranger.Client = own
		// It has been refused by everybody before it is looked for.
		for _, m := range c.members[:3] {
			t.Log(stranger.awaitAny(nil, fmt.Sprintf("seed=%s ", m.host.Addr())))
		}
		for _, m := range c.members[:3] {
			testkit.Eventually(t, settleLimit, func() error {
				if lineWith(m.process, "[WARN]", "another node refuses the certificate of this node: ", "remote error: tls: bad certificate", "peer="+stranger.host.Addr()+":") == "" {
					return fmt.Errorf("%s does not say that the stranger refuses it", m)
				}
				return nil
			})
			if lineWith(stranger.process, "[WARN]", "this node refuses the certificate of another node: ", "peer="+m.host.Addr()+":") == "" {
				t.Errorf("the stranger does not say that it refuses %s", m)
			}
		}
		for _, m := range c.members[:3] {
			view := check.Value(m.gossip()).Must(t)
			for _, g := range view {
				if g.IP == stranger.host.Addr() {
					t.Errorf("%s knows the stranger: %+v", m, g)
				}
			}
		}
		if answer, err := stranger.ask(testkit.Request{Path: "/health/ready"}); err != nil || answer.Status != http.StatusServiceUnavailable ||
			!strings.Contains(string(answer.Body), "this node refuses the certificate of the node at ") {
			t.Errorf("/health/ready of the stranger: %s, %v", answer, err)
		}
		if state, err := stranger.state(); err == nil && (state == "leader" || state == "follower") {
			t.Errorf("the stranger is %s", state)
		}
		stranger.kill()
		check.Must(t, os.RemoveAll(stranger.db()))
	})

	// The command asks with credentials, and trusts the authority that it is given.
	run := func(code int, args ...string) string {
		t.Helper()
		p, got := testkit.Run(t, testkit.Command{
			Args: append([]string{"cluster", "list", "--node", follower.URL()}, args...), Quiet: true,
		})
		if got != code {
			t.Errorf("annals cluster list %v: exit code %d, want %d\n%s", args, got, code, p.Output())
		}
		return p.Output()
	}
	run(1, "--ca", ours.roots)
	run(1, "--ca", foreign.roots, "--password", "changeit")
	if out := run(0, "--ca", ours.roots, "--password", "changeit"); strings.Count(out, "Follower") != 2 {
		t.Errorf("the list is\n%s", out)
	}
	l := c.startLoad(seed(t), 4, loadPatience)
	l.more(t, 50)
	killed, _ := c.settled()
	killed.kill()
	l.more(t, 100)
	killed.start()
	c.settled()
	l.finish(t)
	c.acknowledgedOnce(l.ledger)
	c.members = c.members[:3]
	c.finish()
}

// appendOf is the request that appends an event to a stream; who is user:password, empty for a
// client without a login.
func appendOf(stream, who string) testkit.Request {
	user, password, _ := strings.Cut(who, ":")
	return testkit.Request{
		Path: "/streams/" + stream, Body: []byte(`{}`), User: user, Password: password,
		Header: map[string]string{"Content-Type": testkit.MediaJSON, testkit.HeaderEventType: "T", testkit.HeaderExpectedVersion: "-2"},
	}
}

// withID gives the event of a request an id, and data that tell it.
func withID(r testkit.Request, n int) testkit.Request {
	id := bigEvent(n).ID
	r.Body = []byte(dataStart(id) + "}")
	r.Header[testkit.HeaderEventID] = id
	return r
}
