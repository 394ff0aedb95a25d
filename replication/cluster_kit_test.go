package replication_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/replication/wire"
)

// house is a set of nodes in this process. They talk over real ports; each node's
// port between nodes is reached through a link, which stays when the node is
// stopped and started again, and can be cut.
type house struct {
	t    testing.TB
	size int
	root string // of the nodes' directories
	host string // address of all its nodes, and of no other house's

	mu    sync.Mutex // guards changes of what follows, and what goroutines of the nodes read
	nodes []*node
	cuts  map[string]func(from event.ID, to *node, kind wire.Kind) bool
}

// node is one of them. Its directory and its data are what stays when it is stopped.
type node struct {
	house *house
	name  string
	dir   string // empty: in memory
	data  *toyData
	link  *link
	setup []func(*replication.ClusterOptions)
	lines logLines
	fatal chan error

	cluster atomic.Pointer[replication.Cluster] // nil while it is stopped
}

// logLines keeps what a node logs.
type logLines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// onDisk and inMemory say where the nodes of a house keep their consensus state.
const (
	onDisk   = true
	inMemory = false
)

// newHouse makes nodes and starts none.
func newHouse(t testing.TB, size, count int, disk bool, setup ...func(*replication.ClusterOptions)) *house {
	t.Helper()
	h := &house{t: t, size: size, root: t.TempDir(), host: newHost(), cuts: map[string]func(event.ID, *node, wire.Kind) bool{}}
	t.Cleanup(h.close)
	for range count {
		h.add(disk, setup...)
	}
	return h
}

// hosts counts the houses.
var hosts atomic.Int64

// newHost returns a loopback address that no other house has. A port that a node
// leaves when it is stopped is given out again by the system: were it given to a node of
// another house, that one would be found at an address where one's own once was,
// and both houses would become one cluster.
func newHost() string {
	if runtime.GOOS != "linux" {
		return "127.0.0.1" // Others have but the one.
	}
	n := hosts.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()%64, n/250%250, 1+n%250)
}

// startHouse makes as many nodes as the cluster has voters, and waits until all vote.
func startHouse(t testing.TB, size int, disk bool, setup ...func(*replication.ClusterOptions)) *house {
	t.Helper()
	h := newHouse(t, size, size, disk, setup...)
	h.start()
	h.settled()
	return h
}

// add makes one more node.
func (h *house) add(disk bool, setup ...func(*replication.ClusterOptions)) *node {
	h.t.Helper()
	n := &node{house: h, name: string(rune('a' + len(h.nodes))), data: newToyData(), setup: setup, fatal: make(chan error, 16)}
	if disk {
		n.dir = h.directory()
	}
	n.link = newLink(h.t, n)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes = append(h.nodes, n)
	return n
}

// directory makes an empty data directory.
func (h *house) directory() string {
	h.t.Helper()
	dir := check.Value(os.MkdirTemp(h.root, "node")).Must(h.t)
	return dir
}

func (h *house) close() {
	var wg sync.WaitGroup
	for _, n := range h.nodes {
		wg.Go(n.stop)
	}
	wg.Wait()
	for _, n := range h.nodes {
		n.link.close()
		select {
		case err := <-n.fatal:
			h.t.Errorf("node %s: fatal: %v", n.name, err)
		default:
		}
	}
	if h.t.Failed() {
		for _, n := range h.nodes {
			h.t.Logf("node %s:\n%s", n.name, n.lines.String())
		}
	}
}

func (h *house) seeds(context.Context) (list []string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes {
		if c := n.cluster.Load(); c != nil {
			list = append(list, c.PeerAddr())
		}
	}
	return list, nil
}

// start starts those nodes, or all.
func (h *house) start(nodes ...*node) {
	h.t.Helper()
	if len(nodes) == 0 {
		nodes = h.nodes
	}
	for _, n := range nodes {
		n.start()
	}
}

func (n *node) options() replication.ClusterOptions {
	logger := hclog.New(&hclog.LoggerOptions{Output: &n.lines, Level: hclog.Info, TimeFormat: "05.000"})
	o := replication.ClusterOptions{
		Replica: replication.Options{
			Options: raftdisk.Options{Dir: n.dir}, InMemory: n.dir == "", Logger: logger, ElectionTimeout: time.Second, DrainTimeout: 3 * time.Second, CloseTimeout: patience,
			OnFatal: func(err error) { n.fatal <- err },
		},
		HasLog: func() (bool, error) { return !n.data.cluster.IsZero(), nil },
		OpenLog: func(cluster event.ID) (replication.Dependencies, error) {
			if n.data.fromCopy {
				n.data.fromCopy = false
				if err := raftdisk.Restored(vfs.OS, n.dir, logger); err != nil {
					return replication.Dependencies{}, err
				}
			}
			if n.data.cluster.IsZero() {
				if n.data.cluster = cluster; cluster.IsZero() {
					n.data.cluster = event.ID(uuid.New())
				}
			}
			return n.data.deps(), nil
		},
		Size: n.house.size, Bind: n.house.host + ":0", Advertise: n.link.address(),
		Seeds: n.house.seeds, GossipInterval: 200 * time.Millisecond, GossipTimeout: 4 * time.Second,
		ClientHost: n.name + ".example", ClientPort: 2113, AdviceEvery: time.Second,
	}
	for _, change := range n.setup {
		change(&o)
	}
	return o
}

func (n *node) start() {
	n.house.t.Helper()
	c := check.Value(replication.OpenCluster(n.options())).Must(n.house.t, "node", n.name)
	n.link.lead(c.Port().Addr().String())
	n.cluster.Store(c)
}

// stop closes the node, if it runs.
func (n *node) stop() {
	c := n.cluster.Swap(nil)
	if c == nil {
		return
	}
	check.NoError(n.house.t, c.Close(), "node", n.name, "close")
	n.link.lead("")
}

// wipe throws the data directory of a stopped node away.
func (n *node) wipe() {
	n.data = newToyData()
	if n.dir != "" {
		n.dir = n.house.directory()
	}
}

func (n *node) id() string { return n.cluster.Load().Node().String() }

func (n *node) raft() *raft.Raft { return replication.RaftOf(n.cluster.Load()) }

func (n *node) state() event.NodeState { return n.cluster.Load().State() }

func (n *node) servers() []raft.Server { return replication.ServersOf(n.cluster.Load()) }

// votes reports whether the node has a vote, as it knows it itself.
func (n *node) votes() bool {
	id := raft.ServerID(n.id())
	return slices.ContainsFunc(n.servers(), func(s raft.Server) bool { return s.ID == id && s.Suffrage == raft.Voter })
}

// patience bounds what a test waits for. It is generous: a test that reaches it has found
// something that hangs, not a busy machine.
const patience = 3 * time.Minute

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	late := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		if <-tick.C; time.Now().After(late) {
			t.Fatalf("never: %s", what)
		}
	}
}

func (h *house) running() (list []*node) {
	for _, n := range h.nodes {
		if n.cluster.Load() != nil {
			list = append(list, n)
		}
	}
	return list
}

// settled waits until as many nodes vote as the cluster has voters, or all that run, and one leads.
func (h *house) settled() *node {
	h.t.Helper()
	eventually(h.t, "all nodes vote", func() bool {
		voting := 0
		for _, n := range h.running() {
			if n.votes() {
				voting++
			}
		}
		return voting >= min(h.size, len(h.running()))
	})
	return h.leader()
}

// leader waits for the node that leads and acknowledges writes.
func (h *house) leader() *node {
	h.t.Helper()
	var leader *node
	eventually(h.t, "a leader", func() bool {
		for _, n := range h.running() {
			if l, _ := n.cluster.Load().Leadership(); l.Leading && n.raft().State() == raft.Leader {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// atLeader does something at the leader, and again if another node was elected
// meanwhile, which happens at any time on a busy machine: what is returned is what a
// node said that led all the while.
func (h *house) atLeader(do func(leader *node) error) error {
	h.t.Helper()
	for {
		leader := h.leader()
		term := leader.raft().CurrentTerm()
		if err := do(leader); err == nil || leader.leads(term) {
			return err
		}
	}
}

// leads reports whether the node still leads, in a term in which it did before.
func (n *node) leads(term uint64) bool {
	return n.raft().State() == raft.Leader && n.raft().CurrentTerm() == term
}

// remove has a node removed from the cluster.
func (h *house) remove(id string) {
	h.t.Helper()
	testkit.Eventually(h.t, patience, func() error {
		leader := h.leader()
		if !slices.ContainsFunc(leader.servers(), func(s raft.Server) bool { return string(s.ID) == id }) {
			return nil // perhaps by an attempt whose outcome was lost
		}
		return leader.cluster.Load().RemoveMember(h.t.Context(), id)
	})
}

// addMember has a node admitted that is named as an operator would.
func (h *house) addMember(name string) {
	h.t.Helper()
	testkit.Eventually(h.t, patience, func() error { return h.leader().cluster.Load().AddMember(h.t.Context(), name) })
}

// others are the running nodes but one.
func (h *house) others(but *node) []*node {
	return slices.DeleteFunc(h.running(), func(n *node) bool { return n == but })
}

// write writes to a stream that has so many records, wherever the leader is,
// until it is certain that the write was acknowledged.
func (h *house) write(stream string, records int64) {
	h.t.Helper()
	eventually(h.t, fmt.Sprintf("write %d to %s", records, stream), func() bool {
		for _, n := range h.running() {
			if l, _ := n.cluster.Load().Leadership(); l.Leading && n.write(stream, records) == nil {
				return true
			}
		}
		return false
	})
}

// write returns nil if the write was done, by this call or by one before whose outcome was unknown.
func (n *node) write(stream string, records int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := n.cluster.Load()
	if c == nil {
		return event.ErrNotReady
	}
	_, err := c.Writes.Submit(ctx, &event.Write{Stream: stream, ExpectedVersion: records - 1})
	var version *event.WrongExpectedVersion
	if errors.As(err, &version) && version.Current == records {
		return nil
	}
	return err
}

// writes fills a stream from one number of records to another.
func (h *house) writes(stream string, from, to int64) {
	h.t.Helper()
	for i := from; i < to; i++ {
		h.write(stream, i)
	}
}

// alike waits until those nodes, or all that run, hold the same log.
func (h *house) alike(nodes ...*node) {
	h.t.Helper()
	if len(nodes) == 0 {
		nodes = h.running()
	}
	eventually(h.t, "all nodes hold the same log", func() bool {
		first := nodes[0].data.Tail()
		return !slices.ContainsFunc(nodes, func(n *node) bool { return n.data.Tail() != first })
	})
}

// holds checks that a stream has so many records at a node.
func (n *node) holds(stream string, records int64) {
	n.house.t.Helper()
	n.data.mu.Lock()
	defer n.data.mu.Unlock()
	if got := n.data.streams[stream]; got != records {
		n.house.t.Errorf("node %s holds %d records of %s, expected %d", n.name, got, stream, records)
	}
}

// says waits for a line in the node's log.
func (n *node) says(text string) {
	n.house.t.Helper()
	eventually(n.house.t, fmt.Sprintf("node %s says %q", n.name, text), func() bool { return strings.Contains(n.lines.String(), text) })
}

func (n *node) raftFile(name ...string) string {
	return filepath.Join(append([]string{n.dir, "raft"}, name...)...)
}

// cut breaks those connections between nodes for which a rule holds, until the rule is lifted.
func (h *house) cut(name string, rule func(from event.ID, to *node, kind wire.Kind) bool) {
	h.mu.Lock()
	h.cuts[name] = rule
	h.mu.Unlock()
	for _, n := range h.nodes {
		n.link.enforce()
	}
}

func (h *house) lift(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.cuts, name)
}

// isolate cuts all connections of a node to the others, in both directions. Gossip keeps running.
func (h *house) isolate(n *node) {
	id := n.cluster.Load().Node()
	h.cut("isolate "+n.name, func(from event.ID, to *node, _ wire.Kind) bool { return from == id || to == n })
}

func (h *house) rejoin(n *node) { h.lift("isolate " + n.name) }

func (h *house) isCut(from event.ID, to *node, kind wire.Kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, rule := range h.cuts {
		if rule(from, to, kind) {
			return true
		}
	}
	return false
}

// link is the address of a node's port between nodes. It knows from the preamble of each
// connection who connects, and what for.
type link struct {
	node     *node
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex // guards what follows
	target string     // empty: the node is stopped
	closed bool
	calls  map[*call]struct{}
}

type call struct {
	from     event.ID
	kind     wire.Kind
	in, out  net.Conn
	complete bool // both are there
}

func newLink(t testing.TB, n *node) *link {
	t.Helper()
	l := check.Value(net.Listen("tcp", n.house.host+":0")).Must(t)
	k := &link{node: n, listener: l, calls: map[*call]struct{}{}}
	k.wg.Go(k.accept)
	return k
}

func (k *link) address() string { return k.listener.Addr().String() }

// lead has new connections go to an address; empty: nowhere.
func (k *link) lead(target string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.target = target
}

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.wg.Go(func() { k.carry(c) })
	}
}

// carry connects one connection through, if it may be.
func (k *link) carry(in net.Conn) {
	c := &call{in: in}
	if !k.track(c) {
		_ = in.Close()
		return
	}
	defer k.drop(c)
	var head [48]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return
	}
	k.mu.Lock()
	target := k.target
	k.mu.Unlock()
	if target == "" {
		return
	}
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	k.mu.Lock()
	c.kind, c.from, c.out, c.complete = wire.Kind(head[9]), event.ID(head[32:48]), out, true
	closed := k.closed
	k.mu.Unlock()
	if closed || k.node.house.isCut(c.from, k.node, c.kind) {
		return
	}
	if _, err := out.Write(head[:]); err != nil {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		pass(in, out)
	}()
	pass(out, in)
	<-back
}

// pass copies one direction, and its end.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.Close()
		_ = from.Close()
		return
	}
	if err := to.(*net.TCPConn).CloseWrite(); err != nil {
		_ = to.Close()
	}
}

func (k *link) track(c *call) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.calls[c] = struct{}{}
	}
	return !k.closed
}

func (k *link) drop(c *call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.calls, c)
	c.close()
}

func (c *call) close() {
	_ = c.in.Close()
	if c.out != nil {
		_ = c.out.Close()
	}
}

// enforce ends connections that are cut now.
func (k *link) enforce() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.calls {
		if c.complete && k.node.house.isCut(c.from, k.node, c.kind) {
			c.close()
		}
	}
}

func (k *link) close() {
	_ = k.listener.Close()
	k.mu.Lock()
	k.closed = true
	for c := range k.calls {
		c.close()
	}
	k.mu.Unlock()
	k.wg.Wait()
}
