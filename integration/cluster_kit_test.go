package integration_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/testkit"
)

// roomyDisk is the size of a disk that no test fills. It is kept in memory, so
// that what is measured is the cluster and not how busy the machine's disk is.
const roomyDisk = 1 << 30

const (
	clientPort      = 2113
	replicationPort = 1112
)

// clusterOptions describe the nodes of a cluster.
type clusterOptions struct {
	hosts   int      // default size
	size    int      // of the cluster, default 3
	options []string // of every node
	disk    int64    // bytes of each host's disk, default roomyDisk where it may be limited
	links   bool     // the test cuts links, and is skipped where that is impossible
	// security returns a node's options in place of --insecure, and tls is what its clients need
	// then.
	security func(host *lab.Host) []string
	tls      *tls.Config
	filed    bool // security names a file that has all options of a node
}

// cluster is a number of hosts that each can run a node.
type cluster struct {
	t       *testing.T
	o       clusterOptions
	lab     *lab.Lab
	members []*member
	started []*lab.Process // all nodes that ever were
	filled  int            // events that fill has made
}

// member is one host and, while it runs, the node on it.
type member struct {
	*testkit.Client
	cluster *cluster
	host    *lab.Host
	options []string // of this node alone
	binary  string   // that it runs, default: the built one
	process *lab.Process
}

// newCluster makes the hosts and starts nothing.
func newCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	if o.size == 0 {
		o.size = 3
	}
	if o.hosts == 0 {
		o.hosts = o.size
	}
	l, err := lab.New(lab.Options{Hosts: o.hosts})
	if errors.Is(err, lab.ErrNeedsLinux) {
		t.Skip(err)
	}
	check.Must(t, err)
	c := &cluster{t: t, o: o, lab: l}
	t.Cleanup(func() { check.NoError(t, l.Close()) })
	if o.links && l.NoLinks() != nil {
		t.Skip(l.NoLinks())
	}
	for _, h := range l.Hosts() {
		c.adopt(h)
	}
	return c
}

// adopt makes a host one of the cluster's.
func (c *cluster) adopt(h *lab.Host) *member {
	c.t.Helper()
	size := c.o.disk
	if size == 0 {
		size = roomyDisk
	}
	switch err := h.LimitDisk(size); {
	case err == nil:
	case c.o.disk > 0:
		c.t.Skip(err)
	default:
		c.t.Logf("nodes are on the machine's disk: %v", err)
	}
	scheme := "http"
	if c.o.tls != nil {
		scheme = "https"
	}
	m := &member{cluster: c, host: h, Client: testkit.NewClient(fmt.Sprintf("%s://%s:%d", scheme, h.Addr(), clientPort), c.o.tls)}
	c.t.Cleanup(m.CloseIdle)
	c.members = append(c.members, m)
	return m
}

// startCluster starts a node on every host and returns when the cluster has settled.
func startCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	c := newCluster(t, o)
	for _, m := range c.members {
		m.start()
	}
	c.settled()
	return c
}

// in has failures belong to a part of the test, until that ends.
func (c *cluster) in(t *testing.T) {
	whole := c.t
	c.t = t
	t.Cleanup(func() { c.t = whole })
}

// db is the node's data folder.
func (m *member) db() string { return filepath.Join(m.host.Dir(), "db") }

func (m *member) String() string { return m.host.String() }

// replication is where other nodes reach this one.
func (m *member) replication() string { return fmt.Sprintf("%s:%d", m.host.Addr(), replicationPort) }

// arguments are the options of the node.
func (m *member) arguments() []string {
	c := m.cluster
	if c.o.filed {
		return c.o.security(m.host)
	}
	var seeds []string
	for _, other := range c.members {
		if other != m {
			seeds = append(seeds, fmt.Sprintf("%s:%d", other.host.Addr(), replicationPort))
		}
	}
	args := []string{
		"--db", m.db(), "--cluster-size", fmt.Sprint(c.o.size), "--node-ip", m.host.Addr(), "--node-port", fmt.Sprint(clientPort),
		"--replication-ip", m.host.Addr(), "--replication-port", fmt.Sprint(replicationPort),
		"--discover-via-dns=false", "--gossip-seed", strings.Join(seeds, ","),
	}
	if c.o.security != nil {
		args = append(args, c.o.security(m.host)...)
	} else {
		args = append(args, "--insecure")
	}
	return slices.Concat(args, c.o.options, m.options)
}

// append writes one event through this node, wherever it redirects to.
func (m *member) append(stream string, events ...testkit.Event) {
	t := m.cluster.t
	t.Helper()
	to := m.Client
	testkit.Eventually(t, settleLimit, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		answer, err := to.Append(ctx, stream, -2, false, events...)
		switch {
		case err != nil:
			return err
		case answer.Status == http.StatusCreated:
			return nil
		case answer.Status == http.StatusTemporaryRedirect:
			location, err := url.Parse(answer.Header.Get("Location"))
			if err != nil {
				return err
			}
			for _, other := range m.cluster.members {
				if other.Host() == location.Host {
					to = other.Client
				}
			}
		}
		return fmt.Errorf("append to %s through %s: %s", stream, m, answer)
	})
}

// fill writes events of 32 KiB each.
func (m *member) fill(stream string, count int) {
	const batch = 20
	for n := 0; n < count; n += batch {
		var events []testkit.Event
		for range min(batch, count-n) {
			m.cluster.filled++
			events = append(events, bigEvent(m.cluster.filled))
		}
		m.append(stream, events...)
	}
}

// run starts the product on the host and waits for nothing.
func (m *member) run(args ...string) *lab.Process {
	t := m.cluster.t
	t.Helper()
	// As the unit does with its file of the environment.
	text, err := os.ReadFile(machine(m.host, "etc", "environment"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	binary := m.binary
	if binary == "" {
		binary = testkit.Binary(t)
	}
	p, err := m.host.Start(t.Context(), lab.Command{Path: binary, Args: args, Env: strings.Fields(string(text))})
	check.Must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			out := p.Output()
			t.Logf("%s, process %d: %s\n%s", m, p.Pid(), strings.Join(args, " "), out[max(0, len(out)-24<<10):])
		}
	})
	return p
}

// start starts the node and waits for nothing.
func (m *member) start() {
	m.cluster.t.Helper()
	m.process = m.run(append([]string{"node"}, m.arguments()...)...)
	m.cluster.started = append(m.cluster.started, m.process)
}

// said counts how often nodes have logged a text.
func (c *cluster) said(text string) (n int) {
	for _, p := range c.started {
		n += strings.Count(p.Output(), text)
	}
	return n
}

// kill ends the node as kill -9 does.
func (m *member) kill() {
	m.cluster.t.Helper()
	check.Must(m.cluster.t, m.process.Kill())
	m.process = nil
	m.CloseIdle()
}

// wipe ends the node if it runs, and takes its data folder away.
func (m *member) wipe() {
	m.cluster.t.Helper()
	if m.process != nil {
		m.kill()
	}
	remove(m.cluster.t, m.db())
}

// backup copies the node's files while it runs.
func (m *member) backup() (dir string) {
	m.cluster.t.Helper()
	return copyByHand(m.cluster.t, m.db())
}

// restore puts a copy in place of the node's folder. The node must not run.
func (m *member) restore(from string) {
	m.cluster.t.Helper()
	copyTree(m.cluster.t, from, m.db())
}

// stop ends the node in order.
func (m *member) stop() {
	t := m.cluster.t
	t.Helper()
	p := m.process
	m.process = nil
	check.Must(t, p.Terminate(settleLimit))
	if p.ExitCode() != 0 {
		t.Fatalf("%s: exit code %d after SIGTERM\n%s", m, p.ExitCode(), p.Output())
	}
	m.CloseIdle()
}

// awaitLine waits until the node has printed a line that contains the text, and returns it.
func (m *member) awaitLine(text string) (line string) {
	t := m.cluster.t
	t.Helper()
	p := m.process
	testkit.Eventually(t, settleLimit, func() error {
		for l := range strings.SplitSeq(p.Output(), "\n") {
			if strings.Contains(l, text) {
				line = l
				return nil
			}
		}
		return fmt.Errorf("%s has not printed %q", m, text)
	})
	return line
}

// finish stops all nodes in order and verifies their folders.
func (c *cluster) finish() {
	c.t.Helper()
	for _, m := range c.running() {
		m.stop()
	}
	for _, m := range c.members {
		verifyClean(c.t, m.db())
	}
}

// lineWith returns the last line that a process printed with all of these texts in it.
func lineWith(p *lab.Process, texts ...string) (found string) {
	for line := range strings.SplitSeq(p.Output(), "\n") {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			found = line
		}
	}
	return found
}

// lastLine is the last line that a process printed.
func lastLine(p *lab.Process) string { return lineWith(p, ": ") }

// moveFolder gives a folder another name.
func moveFolder(t *testing.T, from, to string) {
	t.Helper()
	check.Must(t, os.Rename(from, to))
}

// startForwarding starts a cluster with users: one follower redirects what the
// leader must do, and the other relays it.
func startForwarding(t *testing.T) (c *cluster, leader, redirecting, relaying *member) {
	t.Helper()
	ours := newAuthority(t)
	c = newCluster(t, clusterOptions{tls: ours.client(), security: ours.options})
	redirecting = c.members[0]
	for _, m := range c.members[1:] {
		m.options = []string{"--follower-writes", "Forward"}
	}
	for _, m := range c.members {
		m.start()
	}
	leader, followers := c.settled()
	for leader == redirecting {
		leader.order("/admin/node/resign")
		leader, followers = c.settled()
	}
	relaying = followers[0]
	if relaying == redirecting {
		relaying = followers[1]
	}
	return c, leader, redirecting, relaying
}
