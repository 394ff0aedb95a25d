package replication_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/wire"
)

// applicant is a node that only asks to be admitted.
type applicant struct {
	t      *testing.T
	node   event.ID
	client *http.Client
}

func newApplicant(t *testing.T, cluster event.ID) *applicant {
	t.Helper()
	node := event.ID(uuid.New())
	port, err := wire.Open(wire.Options{Bind: "127.0.0.1:0", Node: node, Cluster: func() event.ID { return cluster }})
	check.Must(t, err)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return port.Dial(ctx, wire.KindService, address)
	}}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		check.NoError(t, port.Close())
	})
	return &applicant{t: t, node: node, client: client}
}

// ask sends a request to be admitted and returns the answer.
func (a *applicant) ask(to *node, q map[string]any) (status int, answer string, err error) {
	a.t.Helper()
	q["node"] = a.node
	body := check.Value(json.Marshal(q)).Must(a.t)
	resp, err := a.client.Post("http://"+to.link.address()+"/join", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(resp.Body)
	check.Must(a.t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(text), nil
}

// A node that asks to join says first where its log ends, and is compared with the
// leader's log there, before the configuration is touched: a node with another history
// would count in a quorum for data that it does not have. It gets no vote before it caught up.
func TestRule16JoinerIsComparedBeforeItCounts(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.writes("s", 0, 300) // more than a node may lack when it gets its vote
	leader := h.leader()
	cluster, tail := leader.cluster.Load().ID(), leader.data.Tail()
	a := newApplicant(t, cluster)
	gone := h.others(leader)[0]
	id := gone.id()
	gone.stop()
	h.remove(id)
	request := func(change func(q map[string]any)) map[string]any {
		q := map[string]any{"address": "127.0.0.1:9", "cluster": cluster, "format": 1, "tail": tail, "last": 0}
		change(q)
		return q
	}
	for _, c := range []struct {
		name   string
		change func(q map[string]any)
		status int
		why    string
	}{
		{"another cluster", func(q map[string]any) { q["cluster"] = event.ID{9} }, http.StatusConflict, "belongs to cluster"},
		{"another format", func(q map[string]any) { q["format"] = 99 }, http.StatusConflict, "format"},
		{"beyond the end", func(q map[string]any) { q["tail"] = event.Tail{End: tail.End + 1e6} }, http.StatusServiceUnavailable, "ends at"},
		{"another chain", func(q map[string]any) { q["tail"] = event.Tail{End: tail.End, Chain: event.Chain{1}} }, http.StatusConflict, "another history"},
		{"where no frame ends", func(q map[string]any) { q["tail"] = event.Tail{End: 1, Chain: event.Chain{1}} }, http.StatusConflict, "another history"},
	} {
		eventually(t, c.name+" is refused", func() bool { // there may be an election
			status, answer, err := a.ask(h.leader(), request(c.change))
			return err == nil && status == c.status && strings.Contains(answer, c.why)
		})
		if servers := h.leader().servers(); len(servers) != 2 {
			t.Errorf("%s: servers %v", c.name, servers)
		}
	}
	// Who is refused asks again and again, and is not logged each time.
	for range 5 {
		eventually(t, "it is refused again", func() bool {
			status, _, err := a.ask(h.leader(), request(func(q map[string]any) { q["format"] = 98 }))
			return err == nil && status == http.StatusConflict
		})
	}
	for _, n := range h.running() {
		if said := strings.Count(n.lines.String(), "the node uses 98"); said > 1 {
			t.Errorf("node %s said %d times why it refuses another", n.name, said)
		}
	}
	// What fits is admitted without a vote, however often it asks, until it has caught up.
	for range 3 {
		eventually(t, "it is admitted", func() bool {
			status, answer, err := a.ask(h.leader(), request(func(map[string]any) {}))
			return err == nil && status == http.StatusOK && answer == `{"present":true,"voter":false}`
		})
	}
	servers := h.leader().servers()
	at := slices.IndexFunc(servers, func(s raft.Server) bool { return string(s.ID) == a.node.String() })
	if at < 0 || servers[at].Suffrage != raft.Nonvoter {
		t.Errorf("servers %v", servers)
	}
	h.write("s", 300)
	// A node of another cluster does not get to ask.
	if _, _, err := newApplicant(t, event.ID{9}).ask(leader, request(func(map[string]any) {})); err == nil {
		t.Error("a node of another cluster is listened to")
	}
}

// A change builds on the configuration that it was decided on: if another one came between,
// raft refuses it, or there might be more voters than there are to be.
func TestRule16ChangeOfAnotherConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.write("s", 0)
	h.remove(h.others(h.leader())[0].id())
	for undisturbed := false; !undisturbed; {
		leader := h.leader()
		term, other := leader.raft().CurrentTerm(), newApplicant(t, leader.cluster.Load().ID())
		q := map[string]any{"address": "127.0.0.1:9", "cluster": leader.cluster.Load().ID(), "format": 1, "tail": leader.data.Tail(), "last": 0}
		// Another change is committed, and the leader has not come to it yet.
		applied := make(chan struct{})
		wait := func() { <-applied }
		leader.data.applying.Store(&wait)
		before := leader.raft().CommitIndex()
		leader.raft().AddNonvoter("another", "127.0.0.1:8", 0, 0)
		eventually(t, "the other change is committed", func() bool { return leader.raft().CommitIndex() > before || !leader.leads(term) })
		status, answer, err := other.ask(leader, q)
		refused := err == nil && status == http.StatusServiceUnavailable && strings.Contains(answer, "configuration changed")
		// An operator's change waits for that, and is done then.
		removal := make(chan error, 1)
		go func() { removal <- leader.cluster.Load().RemoveMember(t.Context(), "another") }()
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		late := leader.cluster.Load().RemoveMember(short, "another")
		cancel()
		leader.data.applying.Store(nil)
		close(applied)
		removed := <-removal
		if undisturbed = leader.leads(term); undisturbed && !refused {
			t.Errorf("the change was answered %d %s, %v", status, answer, err)
		}
		if undisturbed && (late == nil || removed != nil) {
			t.Errorf("the removals ended with %v in too short a time, and with %v", late, removed)
		}
		eventually(t, "it is admitted", func() bool {
			status, _, err := other.ask(h.leader(), q)
			return err == nil && status == http.StatusOK
		})
		for _, id := range []string{"another", other.node.String()} {
			h.remove(id)
		}
	}
}

// A full cluster takes no more voters unless an operator asks for it, and says what to do.
func TestSurplusNodes(t *testing.T) {
	t.Parallel()
	for _, surplus := range []bool{false, true} {
		h := startHouse(t, 3, inMemory, func(o *replication.ClusterOptions) { o.Surplus = surplus })
		h.write("s", 0)
		n := h.add(inMemory, func(o *replication.ClusterOptions) { o.Surplus = surplus })
		n.start()
		if surplus {
			eventually(t, "the fourth node is a clone", func() bool { return n.state() == event.StateClone })
			h.write("s", 1)
			h.alike()
			if n.votes() {
				t.Error("a clone votes")
			}
			continue
		}
		n.says("annals cluster add " + n.id())
		h.addMember(n.id())
		eventually(t, "the fourth node votes", func() bool { return n.votes() })
		h.write("s", 1)
		h.alike()
		n.holds("s", 2)
	}
}

// An operator removes and adds nodes. What would leave no majority is refused, and
// a node that was removed knows it and does not come back by itself.
func TestRemoveAndAddMember(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.write("s", 0)
	var refused *event.MemberError
	var elsewhere *event.NotLeader
	remove := func(n *node, whom string) error { return n.cluster.Load().RemoveMember(t.Context(), whom) }
	add := func(n *node, whom string) error { return n.cluster.Load().AddMember(t.Context(), whom) }
	if err := h.atLeader(func(l *node) error { return remove(l, "nobody") }); !errors.As(err, &refused) {
		t.Errorf("remove an unknown node: %v", err)
	}
	if err := h.atLeader(func(l *node) error { return add(l, "nobody") }); !errors.As(err, &refused) {
		t.Errorf("add an unknown node: %v", err)
	}
	for what, change := range map[string]func(n *node, whom string) error{"remove": remove, "add": add} {
		eventually(t, "a follower says who is to "+what, func() bool {
			return errors.As(change(h.others(h.leader())[0], "nobody"), &elsewhere)
		})
	}
	n := h.others(h.leader())[0]
	h.remove(n.id())
	n.says("was removed from the cluster")
	eventually(t, "the removed node serves nothing", func() bool { return !n.cluster.Load().Ready() })
	h.write("s", 1)
	if len(h.leader().servers()) != 2 {
		t.Errorf("servers %v", h.leader().servers())
	}
	h.addMember(n.link.address())
	h.settled()
	h.alike()
	n.holds("s", 2)
	eventually(t, "the node serves again", func() bool { return n.cluster.Load().Ready() })

	// A leader that is to go hands over, and the operator asks the next one.
	eventually(t, "a leader that is to go names the next one", func() bool {
		leader := h.leader()
		return errors.As(remove(leader, leader.id()), &elsewhere)
	})
	// With one node down and one to go there would be no majority.
	down := h.others(h.leader())[0]
	down.stop()
	eventually(t, "the refusal", func() bool {
		err := h.leader().cluster.Load().RemoveMember(t.Context(), h.others(h.leader())[0].id())
		return errors.As(err, &refused) && strings.Contains(err.Error(), "no majority")
	})
	h.write("s", 2)
}

// A write in flight when the second last voter is removed is committed by the leader alone: that is
// not a majority of three nodes, and the write is not acknowledged.
func TestOneVoterOfThreeAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.writes("s", 0, 3)
	h.alike()
	leader := h.leader()
	removed, cut := h.others(leader)[0], h.others(leader)[1]
	h.remove(removed.id())
	leader = h.leader()
	if leader == cut {
		cut = h.nodes[slices.IndexFunc(h.nodes, func(n *node) bool { return n != leader && n != removed })]
	}
	h.isolate(cut)
	r, last := leader.raft(), leader.raft().LastIndex()
	written := make(chan error, 1)
	go func() {
		_, err := leader.cluster.Load().Writes.Submit(t.Context(), &event.Write{Stream: "s", ExpectedVersion: event.AnyVersion})
		written <- err
	}()
	eventually(t, "the write is in flight", func() bool { return r.LastIndex() > last || r.State() != raft.Leader })
	// As when its directory was lost and it comes back as another node.
	if err := r.RemoveServer(raft.ServerID(cut.id()), 0, patience).Error(); err != nil {
		t.Logf("the leader was deposed before: %v", err)
	}
	check.Fails(t, <-written, "a write was acknowledged that one node of three has")
	check.Fails(t, leader.write("s", 4), "a write was acknowledged with one voter of three")
	if err := leader.cluster.Load().Writes.Confirm(t.Context()); err == nil {
		t.Error("a read was confirmed with one voter of three")
	}
}

// A voter beyond the size of the cluster counts for the majority, and no more once it is removed.
func TestVoterBeyondTheSize(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 3)
	d := h.add(onDisk)
	d.start()
	d.says("annals cluster add " + d.id())
	h.addMember(d.id())
	eventually(t, "the node votes", d.votes)
	h.alike()
	leader := h.leader()
	down := h.others(leader)[:2]
	for _, n := range down {
		n.stop()
	}
	check.Fails(t, leader.write("t", 0), "a write was acknowledged with two voters of four")
	for _, n := range down {
		n.start()
	}
	h.settled()
	h.write("s", 3)
	h.remove(d.id())
	d.stop()
	h.others(h.leader())[0].stop()
	h.write("s", 4) // Two of three: with the removed one it would be two of four.
	h.alike()
}

// Addresses are reused: a read-only replica at the address that a stopped voter had takes nothing
// from it. The voter comes back at another address, with its data and its votes.
func TestReplicaAtTheAddressOfAVoter(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	h.alike()
	c := h.others(h.leader())[1]
	id := c.id()
	c.stop()
	d := h.add(onDisk, func(o *replication.ClusterOptions) { o.ReadOnly = true })
	d.link.close()
	d.link = c.link
	c.link = newLink(t, c)
	d.start()
	eventually(t, "the replica is admitted", func() bool {
		present, _ := h.leader().member(d.id())
		return present
	})
	if present, votes := h.leader().member(id); !present || !votes {
		t.Errorf("the voter is a member: %v, votes: %v", present, votes)
	}
	c.start()
	eventually(t, "the voter follows again", func() bool { return c.state() == event.StateFollower && d.state() == event.StateReadOnlyReplica })
	h.write("s", 10)
	h.alike()

	// Nor does a replica that was replaced stay.
	old := d.id()
	d.stop()
	d.wipe()
	d.start()
	eventually(t, "the replica takes the place of its old self", func() bool {
		before, _ := h.leader().member(old)
		now, _ := h.leader().member(d.id())
		return !before && now
	})
}

// An operator names a node by its address, at which others were before. They stay in gossip for a
// while after their end.
func TestMemberNamedByAnAddressUsedBefore(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	d := h.add(onDisk)
	for range 4 {
		d.start()
		d.says("annals cluster add " + d.id())
		d.stop()
		d.wipe()
	}
	d.start()
	d.says("annals cluster add " + d.id())
	check.Must(t, h.atLeader(func(l *node) error { return l.cluster.Load().AddMember(t.Context(), d.link.address()) }))
	eventually(t, "the node votes", d.votes)
	h.write("s", 10)
	h.alike()
	eventually(t, "the node is removed", func() bool {
		// It may have been, by an attempt before.
		_ = h.leader().cluster.Load().RemoveMember(t.Context(), d.link.address())
		return len(h.leader().servers()) == 3
	})
}

// A node that gossip still takes for alive gets no vote by what another one answers at its address.
func TestMemberWhoseAddressAnotherHas(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	d := h.add(onDisk)
	d.start()
	d.says("annals cluster add " + d.id())
	old := d.id()
	h.isolate(d)
	d.stop() // No one hears of it.
	d.wipe()
	h.rejoin(d)
	d.start()
	if err := h.leader().cluster.Load().AddMember(t.Context(), old); err == nil {
		t.Error("a node that is gone was added")
	}
	h.addMember(d.id())
	eventually(t, "the node votes", d.votes)
	if present, _ := h.leader().member(old); present {
		t.Error("a node that is gone is a member")
	}
	h.write("s", 10)
	h.alike()
}

// An address means who is there now, not who was when it joined.
func TestRemovedByAnAddressThatAnotherHad(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 5, onDisk)
	h.writes("s", 0, 10)
	h.alike()
	others := h.others(h.leader())
	b, c := others[0], others[1]
	b.stop()
	c.stop()
	b.link, c.link = c.link, b.link
	b.start()
	c.start()
	h.settled()
	h.write("s", 10)
	h.alike()
	eventually(t, "the node is removed", func() bool {
		// Where it leads it hands over first.
		_ = h.leader().cluster.Load().RemoveMember(t.Context(), b.link.address())
		return len(h.leader().servers()) < 5
	})
	again := h.atLeader(func(l *node) error { return l.cluster.Load().RemoveMember(t.Context(), b.link.address()) })
	if _, refused := errors.AsType[*event.MemberError](again); !refused {
		t.Errorf("it is removed once more: %v", again)
	}
	if present, _ := h.leader().member(c.id()); !present || len(h.leader().servers()) != 4 {
		t.Error("another node was removed, which was at that address before")
	}
}

// A new node at an address that a voter had before it moved does not replace it, dead or alive.
func TestNewNodeAtAnAddressThatAVoterLeft(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	c := h.others(h.leader())[1]
	id, left := c.id(), c.link
	c.stop()
	c.link = newLink(t, c)
	c.start()
	h.settled()
	h.write("s", 10)
	h.alike()
	c.stop()
	d := h.add(onDisk)
	d.link.close()
	d.link = left
	d.start()
	d.says("annals cluster add " + d.id())
	if present, votes := h.leader().member(id); !present || !votes {
		t.Errorf("the voter is a member: %v, votes: %v", present, votes)
	}
	c.start()
	h.settled()
}

// A new node that is given the address of a voter which is alive, by mistake, takes nothing from
// it.
func TestNewNodeAtTheAddressOfALiveVoter(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	c := h.others(h.leader())[0]
	d := h.add(onDisk, func(o *replication.ClusterOptions) { o.Advertise = c.link.address() })
	d.start()
	d.says("node " + c.id() + " is alive at " + c.link.address())
	if present, votes := h.leader().member(c.id()); !present || !votes {
		t.Errorf("the voter is a member: %v, votes: %v", present, votes)
	}
	d.stop()
	h.write("s", 0)
	h.alike(h.nodes[:3]...)
}

// A leader admits a node, only that node hears of it, and the leader is deposed. The node asks the
// next leader.
func TestAdmissionLostWithTheLeader(t *testing.T) {
	t.Parallel()
	// time to admit within the lease
	slow := func(o *replication.ClusterOptions) { o.Replica.ElectionTimeout = 4 * time.Second }
	h := startHouse(t, 3, onDisk, slow)
	h.writes("s", 0, 10)
	h.alike()
	a := h.leader()
	release := replication.HoldChanges(a.cluster.Load())
	d := h.add(onDisk, slow, func(o *replication.ClusterOptions) { o.ReadOnly = true })
	d.start()
	eventually(t, "the replica asks", func() bool { return d.raft() != nil })
	from := a.cluster.Load().Node()
	h.cut("a", func(by event.ID, to *node, kind wire.Kind) bool {
		return by == from && to != d && kind != wire.KindService
	})
	release()
	eventually(t, "the leader is deposed", func() bool { return a.raft().State() != raft.Leader })
	if present, _ := d.member(d.id()); !present {
		t.Log("the leader was deposed before it admitted the replica")
	}
	eventually(t, "the replica is admitted by another", func() bool {
		l := h.leader()
		present, _ := l.member(d.id())
		return l != a && present
	})
	h.lift("a")
	h.write("s", 10)
	h.alike()
}
