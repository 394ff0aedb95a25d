package replication_test

import (
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
)

// forgets throws the consensus state of a stopped node away.
func (n *node) forgets() {
	n.house.t.Helper()
	check.Must(n.house.t, os.RemoveAll(n.raftFile()))
}

// waits waits until the node says what its start waits for.
func (n *node) waits(text string) {
	n.house.t.Helper()
	eventually(n.house.t, "node "+n.name+" waits: "+text, func() bool {
		doing, _, _ := n.cluster.Load().Progress()
		return strings.Contains(doing, text)
	})
}

// member reports whether a node is in this one's configuration, and with a vote.
func (n *node) member(id string) (present, votes bool) {
	for _, s := range n.servers() {
		if string(s.ID) == id {
			return true, s.Suffrage == raft.Voter
		}
	}
	return false, false
}

// No member fetches data from a copy of the cluster's data that was opened as a cluster of its own
// and appears in gossip: it may hold events that were never written here.
func TestRule25MembersFetchFromMembers(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk, short)
	h.writes("s", 0, 10)
	h.alike()
	n := h.others(h.leader())[0]
	last := n.raft().LastIndex()
	n.stop()

	duplicate := h.add(onDisk, short)
	duplicate.data = n.data.copied()
	tail := duplicate.data.Tail()
	for i := range uint64(2000) { // its life on its own
		duplicate.data.append([]byte{5, 'o', 't', 'h', 'e', 'r'}, tail.Index+1+i, tail.Term+1)
	}
	h.recover(duplicate)
	duplicate.start()
	eventually(t, "the copy leads itself", func() bool { return duplicate.state() == event.StatePreLeader })

	records := h.outrun(n, last, "s", 10)
	n.start()
	eventually(t, "the member has caught up", func() bool { return n.data.Tail() == h.leader().data.Tail() })
	n.holds("s", records)
	n.holds("other", 0)
	n.says("follows another history of this cluster")
}

// A node is recovered although the others are alive, and then one of those loses its disk. It must
// not become the second voter of the recovered one, which lacks what the two had acknowledged.
func TestRule25RecoveredBesideALivingCluster(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	h.alike()
	a := h.leader()
	b, c := h.others(a)[0], h.others(a)[1]
	c.stop()
	h.writes("s", 10, 30) // acknowledged by a and b
	h.alike(a, b)
	c.forgets()
	h.recover(c)
	c.start()
	for _, n := range []*node{a, b, c} {
		n.says("follows another history of this cluster")
	}
	b.stop()
	eventually(t, "a leads no more", func() bool { return a.raft().State() != raft.Leader })
	b.wipe()
	b.start()
	b.waits("does not choose between them")
	// A node that asks it nevertheless hears why not.
	eventually(t, "the recovered node refuses", func() bool {
		status, answer, err := newApplicant(t, c.data.cluster).ask(c, map[string]any{
			"address": "127.0.0.1:9", "cluster": c.data.cluster, "format": 1, "tail": c.data.Tail(), "lineage": replication.IncarnationOf(c.cluster.Load()),
		})
		return err == nil && status == http.StatusConflict && strings.Contains(answer, a.link.address()) && strings.Contains(answer, "rename their folders raft")
	})
	if servers := c.servers(); len(servers) != 1 || c.state() != event.StatePreLeader {
		t.Errorf("the recovered node is %s with %v", c.state(), servers)
	}
	// An operator decides for what a holds. Were b still there when one of the two is gone, it
	// would choose the other.
	b.stop()
	a.stop()
	c.stop()
	a.forgets()
	h.recover(a)
	c.forgets()
	h.start(a, b, c)
	h.settled()
	h.alike()
	for _, n := range h.nodes {
		n.holds("s", 30)
	}
}

// A new node that meets a running cluster and a separately recovered node joins the one that
// acknowledges.
func TestRule25OneMajorityOfACluster(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	h.alike()
	a := h.leader()
	b, c := h.others(a)[0], h.others(a)[1]
	c.stop()
	c.forgets()
	h.recover(c)
	c.start()
	eventually(t, "c leads itself", func() bool { return c.state() == event.StatePreLeader })
	d := h.add(onDisk)
	d.start()
	d.says("annals cluster add " + d.id()) // the cluster that it asks has its voters
	h.addMember(d.id())
	eventually(t, "d votes", func() bool { return d.votes() })
	h.write("s", 10)
	h.alike(a, b, d)
	if servers := c.servers(); len(servers) != 1 || c.state() != event.StatePreLeader {
		t.Errorf("the recovered node is %s with %v", c.state(), servers)
	}
	for _, m := range a.cluster.Load().View().Members {
		if m.Node.String() == c.id() {
			t.Error("clients are shown the recovered node")
		}
	}
}

// When a cluster is recovered, a node that still has its consensus state from before is refused,
// and holds the others up as long as there is no majority. Without that state it joins with its
// data.
func TestRule25StaleNodeIsRefused(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	h.alike()
	a, b, c := h.nodes[0], h.nodes[1], h.nodes[2]
	for _, n := range h.nodes {
		n.stop()
	}
	a.forgets()
	b.forgets()
	h.recover(a)
	h.start()
	b.waits(c.link.address())
	c.stop()
	h.settled()
	h.writes("s", 10, 12)
	c.start()
	c.says("follows another history of this cluster")
	a.says("incarnation 00000000") // raft of c reaches no node
	h.write("s", 12)
	if present, _ := h.leader().member(c.id()); present || len(h.leader().servers()) != 2 {
		t.Errorf("servers %v", h.leader().servers())
	}
	c.holds("s", 10)
	c.stop()
	c.forgets()
	c.start()
	h.settled()
	h.alike()
	c.holds("s", 13)
}

// A copy of a node's directory with its consensus state, started elsewhere, would vote under the
// same name. It is refused, and everybody names it.
func TestRule25TwinIsNamedAndRefused(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	h.alike()
	c := h.others(h.leader())[0]
	id := c.id()
	c.stop()
	duplicate := h.add(onDisk)
	duplicate.data = c.data.copied()
	duplicate.data.directory = c.data.directory
	check.Must(t, os.CopyFS(duplicate.raftFile(), os.DirFS(c.raftFile())))
	c.start()
	h.settled()
	eventually(t, "all see it alive", func() bool {
		for _, n := range h.nodes[:3] {
			for _, m := range n.cluster.Load().View().Members {
				if m.Node.String() == id && !m.Alive {
					return false
				}
			}
		}
		return true
	})
	duplicate.start()
	select {
	case err := <-duplicate.fatal:
		for _, part := range []string{id, c.link.address(), duplicate.link.address(), "rename the folder raft"} {
			check.Contains(t, err.Error(), part, "is missing in")
		}
	case <-time.After(patience):
		t.Fatal("it keeps running")
	}
	duplicate.stop() // as the process would
	h.turnsDown(id, duplicate.link.address())
	for _, n := range h.nodes[:3] {
		n.says(duplicate.link.address())
	}
	h.write("s", 10)
	h.alike()

	// At another address the same node may come back once it is nowhere else.
	c.stop()
	c.link.close()
	c.link = newLink(t, c)
	c.start()
	h.settled()
	h.write("s", 11)
	h.alike()
}

// turnsDown checks that no node gives a candidate its vote at an address where it is not known.
func (h *house) turnsDown(id, address string) {
	h.t.Helper()
	port, other := h.outsider()
	defer func() { _ = port.Close() }()
	defer func() { _ = other.Close() }()
	for _, n := range h.nodes[:3] {
		if n.id() == id {
			continue
		}
		q := raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(address)},
			Term:      n.raft().CurrentTerm() + 1000, LastLogIndex: 1000, LastLogTerm: 1000, LeadershipTransfer: true,
		}
		var answer raft.RequestVoteResponse
		err := other.RequestVote(raft.ServerID(n.id()), raft.ServerAddress(n.link.address()), &q, &answer)
		if err == nil || answer.Granted || !strings.Contains(err.Error(), "is known at") || n.raft().CurrentTerm() >= q.Term {
			h.t.Errorf("node %s answers a candidate at another address: %+v, %v", n.name, answer, err)
		}
	}
}

// A node may be reached at two addresses, for example after a host name replaced its number. It
// answers at the address that gossip still has, and is not taken for a duplicate of itself.
func TestRule25NodeOfTwoAddressesIsNoTwin(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	leader := h.leader()
	n := h.others(leader)[0]
	n.stop()
	old := n.link
	t.Cleanup(old.close)
	n.link = newLink(t, n)
	n.start()
	h.settled()
	c := n.cluster.Load()
	known := func(address string) {
		t.Helper()
		eventually(t, "the leader knows it at "+address, func() bool {
			return slices.ContainsFunc(leader.cluster.Load().View().Members, func(m event.Member) bool {
				return m.Node == c.Node() && net.JoinHostPort(m.ReplicationHost, strconv.Itoa(m.ReplicationPort)) == address
			})
		})
	}
	known(n.link.address())
	old.lead(c.Port().Addr().String())
	replication.GossipsAddress(c, old.address())
	known(old.address())
	check.Must(t, replication.Asks(t.Context(), c, leader.link.address()))
}

// Nodes of the version before know no cluster incarnations and count as the first: their consensus
// state and their requests are those of any other node, until a cluster is recovered.
func TestRule25VersionBefore(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 5)
	h.alike() // The one that is recovered has the data.
	for _, n := range h.nodes {
		identity, err := os.ReadFile(n.raftFile("identity"))
		if err != nil || strings.Contains(string(identity), "lineage") {
			t.Errorf("identity %s, %v", identity, err)
		}
	}
	ask := func() (int, string, error) {
		l := h.leader()
		return newApplicant(t, l.data.cluster).ask(l, map[string]any{
			"address": "127.0.0.1:9", "cluster": l.data.cluster, "format": 1, "tail": l.data.Tail(), "readOnly": true,
		})
	}
	eventually(t, "it is admitted", func() bool {
		status, _, err := ask()
		return err == nil && status == http.StatusOK
	})
	h.recoverFrom(h.nodes[0])
	h.start()
	h.settled()
	eventually(t, "it is refused", func() bool {
		status, answer, err := ask()
		return err == nil && status == http.StatusConflict && strings.Contains(answer, "incarnation")
	})
}

// Nodes that were restored from one copy wait and say what to do, since none knows which holds
// most. A node that holds more than the recovered one says so.
func TestRestoredNodesSayWhatToDo(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 30)
	h.alike()
	a, b, c := h.nodes[0], h.nodes[1], h.nodes[2]
	for _, n := range h.nodes {
		n.stop()
		n.forgets()
	}
	a.data.shorten(20)
	b.data.shorten(20)
	h.start()
	for _, n := range h.nodes {
		n.waits("restored data of cluster " + n.data.cluster.String() + ", end ")
		n.waits("and no member of that cluster answers: run annals cluster recover on the node with the newest copy")
	}
	a.says("and no member of that cluster answers: run annals cluster recover on the node with the newest copy")
	a.stop()
	a.forgets()
	h.recover(a)
	a.start()
	h.leader()
	c.waits("which is more than the cluster has")
	c.stop()
	c.data.shorten(20)
	c.start()
	h.settled()
	h.alike()
}
