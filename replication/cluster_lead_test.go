package replication_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/wire"
)

// A majority that is asked after a read began confirms it. Otherwise a leader that hears no other
// node could confirm a state that lacks what others acknowledge meanwhile.
func TestRule19DeposedLeaderConfirmsNothing(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.writes("s", 0, 3)
	h.alike()
	confirm := func(leader *node) error { return leader.cluster.Load().Writes.Confirm(t.Context()) }
	check.NoError(t, h.atLeader(confirm), "the leader")
	old := h.leader()
	h.isolate(old)
	if err := confirm(old); err == nil { // it still leads, for its lease
		t.Error("a leader that hears no node confirmed a read")
	}
	eventually(t, "the others acknowledge a write", func() bool {
		return slices.ContainsFunc(h.others(old), func(n *node) bool { return n.write("s", 3) == nil })
	})
	check.Fails(t, confirm(old), "the deposed leader confirmed a read")
	check.Fails(t, old.write("s", 4), "the deposed leader acknowledged a write")
	h.rejoin(old)
	h.alike()
	old.holds("s", 4)
	check.NoError(t, h.atLeader(confirm), "the new leader")
}

// resign has the leader resign until another node leads, and returns that. On a busy
// machine the successor may be elected too late for raft, which then says so.
func (h *house) resign(ctx context.Context) *node {
	h.t.Helper()
	old := h.leader()
	var err error
	eventually(h.t, "another leader", func() bool {
		if h.leader() == old {
			err = old.cluster.Load().Resign(ctx)
		}
		return h.leader() != old
	})
	if err != nil {
		h.t.Logf("resign: %v", err)
	}
	return h.leader()
}

// handOver finds in a node's log whom it would have take over.
var handOver = regexp.MustCompile(`leadership was (?:not )?handed over: to=(\S+)`)

// Who takes over is the voter with the highest priority among those that have
// nearly everything; raft knows no priorities, and would take one that holds
// everybody up or a replica without a vote.
func TestRule23ResignPicksByPriority(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	readOnly := h.add(inMemory, func(o *replication.ClusterOptions) { o.ReadOnly, o.Priority = true, 99 })
	readOnly.start()
	eventually(t, "the replica is admitted", func() bool { return readOnly.state() == event.StateReadOnlyReplica })
	h.write("s", 0)
	h.alike()
	old := h.leader()
	voters := slices.DeleteFunc(h.others(old), func(n *node) bool { return n == readOnly })
	for i, want := range []*node{voters[0], voters[1], voters[0]} {
		for _, n := range h.nodes[:3] {
			priority := 0
			if n == want {
				priority = 5 + i
			}
			check.Must(t, n.cluster.Load().SetPriority(priority))
		}
		eventually(t, "all know the priorities", func() bool {
			for _, n := range h.nodes {
				for _, m := range n.cluster.Load().View().Members {
					if (m.Node.String() == want.id()) != (m.Priority == 5+i) {
						return false
					}
				}
			}
			return true
		})
		eventually(t, "a leader hands over", func() bool {
			old := h.leader()
			if old == want {
				return true // raft itself elected it meanwhile
			}
			said := len(old.lines.String())
			if err := old.cluster.Load().Resign(t.Context()); err != nil {
				t.Logf("resign: %v", err)
			}
			// Whether the first that it turns to is elected in time is up to the machine.
			first := handOver.FindStringSubmatch(old.lines.String()[said:])
			if first == nil {
				return false // Another one was elected before.
			}
			if first[1] != want.link.address() {
				t.Errorf("the leader handed over to %s, node %s has the highest priority", first[1], want.name)
			}
			return true
		})
	}
	if readOnly.votes() {
		t.Error("a read-only replica votes")
	}
}

// A node that lacks much does not take over, whatever its priority: no client could write while it
// catches up.
func TestRule23ResignLeavesOutWhoLags(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	behind := h.others(h.leader())[0]
	check.Must(t, behind.cluster.Load().SetPriority(9))
	h.cut("raft", func(from event.ID, to *node, kind wire.Kind) bool {
		return kind != wire.KindService && (to == behind || from == behind.cluster.Load().Node())
	})
	h.writes("s", 0, 1200)
	if got := h.resign(t.Context()); got == behind {
		t.Errorf("node %s leads, and lacks 1,200 entries", behind.name)
	}
	h.lift("raft")
	h.alike()
}

// A leader that resigns hands over only after the writes in flight have ended: otherwise their
// outcome would be unknown. If resigning is given up meanwhile, the leader keeps writing.
func TestRule23ResignDrainsFirst(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	records := int64(0)
	for undisturbed := false; !undisturbed; records++ {
		h.write("s", records)
		h.alike()
		undisturbed = h.drainsFirst(records + 1)
	}
	h.write("s", records+1)
	h.alike()
}

// drainsFirst has the disks of the followers hang with one more write, while the leader is
// to resign. It returns false if the leader was deposed meanwhile, so that nothing was seen.
func (h *house) drainsFirst(records int64) (undisturbed bool) {
	h.t.Helper()
	leader := h.leader()
	term, said := leader.raft().CurrentTerm(), len(leader.lines.String())
	var releases []chan<- struct{}
	var entered []<-chan struct{}
	for _, n := range h.others(leader) {
		in, release := replication.HoldStores(n.cluster.Load())
		entered, releases = append(entered, in), append(releases, release)
	}
	written := make(chan error, 1)
	go func() { written <- leader.write("s", records) }()
	for _, in := range entered {
		<-in
	}
	waited := false
	// longer than a busy machine needs to begin
	for limit := time.Second; !waited && leader.leads(term); limit *= 2 {
		ctx, cancel := context.WithTimeout(h.t.Context(), limit)
		check.NoError(h.t, leader.cluster.Load().Resign(ctx), "resign")
		cancel()
		lines := leader.lines.String()[said:]
		if handOver.MatchString(lines) && leader.leads(term) {
			h.t.Error("the leader begins to hand over with a write in flight")
			break
		}
		waited = strings.Contains(lines, "wait for the writes in flight")
	}
	next := make(chan error, 1)
	go func() { next <- leader.write("s", records+1) }()
	for _, release := range releases {
		close(release)
	}
	for _, err := range []error{<-written, <-next} {
		if err != nil && leader.leads(term) {
			h.t.Error(err)
		}
	}
	return leader.leads(term)
}

// A leader that resigns stops deciding and finishes the writes in flight first: no write gets an
// unknown outcome, and none is lost or done twice.
func TestRule23ResignLosesNoWrite(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	const writers = 6
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var done [writers]int64
	for w := range writers {
		wg.Go(func() {
			stream := fmt.Sprint("s", w)
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, n := range h.nodes {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					_, err := n.cluster.Load().Writes.Submit(ctx, &event.Write{Stream: stream, ExpectedVersion: done[w] - 1})
					cancel()
					var elsewhere *event.NotLeader
					switch {
					case err == nil:
						done[w]++
					case errors.As(err, &elsewhere), errors.Is(err, event.ErrNotReady):
					default:
						// An election for want of time makes an outcome unknown; then the stream
						// tells.
						if n.write(stream, done[w]) == nil {
							done[w]++
						}
						if !errors.Is(err, event.ErrOutcomeUnknown) && !errors.Is(err, event.ErrWriteTimeout) && !errors.As(err, new(*event.WrongExpectedVersion)) {
							t.Errorf("%s: %v", stream, err)
						}
					}
				}
			}
		})
	}
	for range 4 {
		before := h.leader()
		terms := before.raft().CurrentTerm()
		said := len(before.lines.String())
		next := h.resign(t.Context())
		lines := before.lines.String()[said:]
		// A leader that is deposed before it hands over is no matter of resigning.
		deposed := strings.Contains(lines, "fewer than half of the nodes answer") || strings.Contains(lines, "peer has newer term")
		if next.raft().CurrentTerm() == terms+1 && !deposed && strings.Contains(lines, "outcome of an entry is unknown") {
			t.Error("resigning left the outcome of an entry unknown")
		}
		h.write(fmt.Sprint("between", terms), 0)
	}
	close(stop)
	wg.Wait()
	h.alike()
	for _, n := range h.nodes {
		for w := range writers {
			n.holds(fmt.Sprint("s", w), done[w])
		}
	}
	if slices.Min(done[:]) == 0 {
		t.Errorf("writers wrote %v", done)
	}
}

// A node that hears no other node asks whether it would be elected before it begins a term: when it
// comes back it must not depose a leader that all others follow.
func TestRule23PreVoteKeepsTheTerm(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.write("s", 0)
	n := h.others(h.leader())[0]
	h.isolate(n)
	term := n.raft().CurrentTerm()
	eventually(t, "the lonely node has stood for election several times", func() bool {
		return strings.Contains(n.lines.String(), "this cluster has no leader")
	})
	if got := n.raft().CurrentTerm(); got > term+1 { // an answer may have been in flight
		t.Errorf("the lonely node went from term %d to %d", term, got)
	}
	check.Fails(t, n.write("s", 1), "the lonely node acknowledged a write")
	h.rejoin(n)
	h.write("s", 1)
	h.alike()
}

// A leader whose disk is nearly full hands over to a node that has room: the cluster still takes
// writes. While no node has room it keeps leading and says why it refuses writes.
func TestLeaderWithAFullDiskHandsOver(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.write("s", 0)
	full := h.leader()
	full.cluster.Load().SetReadOnly(event.ErrDiskFull)
	eventually(t, "another node leads", func() bool { return h.leader() != full })
	h.write("s", 1)
	h.alike()
	for _, n := range h.nodes {
		n.cluster.Load().SetReadOnly(event.ErrDiskFull)
	}
	eventually(t, "the leader refuses with the reason", func() bool { return errors.Is(h.leader().write("s", 2), event.ErrDiskFull) })
	for _, n := range h.nodes {
		n.cluster.Load().SetReadOnly(nil)
	}
	h.write("s", 2)
}

// A leader that cannot decide writes hands over to a node that can, also when it has lost its
// leadership for what counts. Another one that cannot either is passed by.
func TestLeaderThatCannotDecideHandsOver(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.write("s", 0)
	leader := h.leader()
	fit := h.others(leader)[0]
	broken := errors.New("the index is damaged")
	for _, n := range h.others(fit) {
		n.data.broken.Store(&broken)
	}
	eventually(t, "the node that can decide leads", func() bool { return h.leader() == fit })
	h.write("s", 1)
	h.alike()

	// One that is elected all the same never comes to decide.
	for _, n := range h.nodes {
		n.data.broken.Store(&broken)
	}
	h.isolate(fit)
	eventually(t, "an unfit node is elected", func() bool {
		return slices.ContainsFunc(h.others(fit), func(n *node) bool { return replication.RaftOf(n.cluster.Load()).State() == raft.Leader })
	})
	fit.data.broken.Store(nil)
	h.rejoin(fit)
	eventually(t, "the node that can decide leads again", func() bool { return h.leader() == fit })
	h.write("s", 2)
	h.alike()
}

// A follower without room takes no entries, lags, and catches up once there is room.
func TestFollowerWithAFullDiskLags(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.write("s", 0)
	h.alike()
	full := h.others(h.leader())[0]
	full.cluster.Load().SetFull(true)
	h.writes("s", 1, 20)
	if n := full.data.count("s"); n >= 20 {
		t.Errorf("it took %d records", n)
	}
	full.cluster.Load().SetFull(false)
	h.alike()
	full.holds("s", 20)
}

// A read-only replica gets everything, has no vote and never leads.
func TestReadOnlyReplicaNeverVotes(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 3, 3, inMemory)
	replica := h.add(inMemory, func(o *replication.ClusterOptions) { o.ReadOnly, o.Priority = true, math.MaxInt32 })
	h.start(replica) // first, so that it is there while the cluster forms
	h.start(h.nodes[:3]...)
	eventually(t, "three voters and a replica", func() bool {
		return replica.state() == event.StateReadOnlyReplica && len(replica.servers()) == 4 &&
			!slices.ContainsFunc(h.nodes[:3], func(n *node) bool { return !n.votes() })
	})
	h.write("s", 0)
	h.alike()
	replica.holds("s", 1)
	if err := replica.write("s", 1); err == nil || replica.votes() {
		t.Errorf("the replica wrote, or votes: %v", err)
	}
	eventually(t, "the replica says who leads", func() bool {
		var elsewhere *event.NotLeader
		return errors.As(replica.write("s", 1), &elsewhere) && strings.Contains(elsewhere.Address, h.leader().name+".example")
	})
	// Two of three voters are gone: with the replica's vote there would be a leader.
	gone := h.others(replica)
	gone[0].stop()
	gone[1].stop()
	eventually(t, "no node leads", func() bool {
		return replica.state() == event.StateReadOnlyLeaderless && gone[2].raft().State() != raft.Leader
	})
}

// A write is committed and acknowledged when a majority, the leader among them, has it on disk. As
// long as the leader's disk does not answer, others may have the entry, but no node takes it for
// committed.
func TestRule07LeaderHasWhatIsCommitted(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	records := int64(0)
	for undisturbed := false; !undisturbed; records++ {
		h.write("s", records)
		h.alike()
		undisturbed = h.leaderHas(records + 1)
	}
	h.alike()
}

// leaderHas has the leader's disk hang with one more write. It returns false if
// another leader was elected meanwhile, so that nothing was seen.
func (h *house) leaderHas(records int64) (undisturbed bool) {
	h.t.Helper()
	leader := h.leader()
	term, last := leader.raft().CurrentTerm(), leader.raft().LastIndex()
	entered, release := replication.HoldStores(leader.cluster.Load())
	written := make(chan error, 1)
	go func() { written <- leader.write("s", records) }()
	<-entered
	for _, n := range h.others(leader) {
		eventually(h.t, "the entry is sent while the leader stores it", func() bool {
			return n.raft().LastIndex() > last || n.raft().CurrentTerm() != term
		})
	}
	for _, n := range h.others(leader) {
		for range 3 {
			contact := n.raft().LastContact()
			eventually(h.t, "a message of the leader", func() bool {
				return n.raft().LastContact().After(contact) || n.raft().CurrentTerm() != term
			})
		}
	}
	for _, n := range h.nodes {
		if got := n.raft().CommitIndex(); got > last && n.raft().CurrentTerm() == term {
			h.t.Errorf("node %s takes entry %d for committed, which the leader has not stored yet", n.name, got)
		}
	}
	select {
	case err := <-written:
		if leader.leads(term) {
			h.t.Errorf("the write was answered, with error %v, before the leader had stored it", err)
		}
		written <- err
	default:
	}
	close(release)
	err := <-written
	have := 0
	for _, n := range h.nodes {
		if n.raft().LastIndex() > last {
			have++
		}
	}
	switch {
	case !leader.leads(term):
		return false
	case err != nil:
		h.t.Error(err)
	case have < 2:
		h.t.Errorf("the write was acknowledged with %d nodes having it", have)
	}
	return true
}

// Clients look for the leader in the view. It names the leader that this node follows, at once, and
// no other node, whatever the others said of themselves a second ago.
func TestViewNamesWhoLeads(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	for range 4 {
		old := h.leader()
		h.resign(t.Context())
		watcher := h.others(old)[0]
		follows := func() string {
			_, id := watcher.raft().LeaderWithID()
			return string(id)
		}
		self := watcher.cluster.Load().Node().String()
		eventually(t, "this node follows one that it has in its view", func() bool {
			leader := follows()
			var leaders []string
			for _, m := range watcher.cluster.Load().View().Members {
				if m.State == event.StateLeader || m.State == event.StateResigningLeader {
					leaders = append(leaders, m.Node.String())
				}
			}
			if leader == "" || leader != follows() || leader == self {
				// It says of itself that it leads once it has applied everything.
				return leader == self
			}
			if !slices.Equal(leaders, []string{leader}) {
				t.Errorf("leaders in the view: %q, this node follows %s", leaders, leader)
			}
			return true
		})
	}
}
