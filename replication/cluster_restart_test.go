package replication_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
)

// recover makes consensus state from a stopped node's data, as an operator does on one node.
func (h *house) recover(n *node) {
	h.t.Helper()
	check.Must(h.t, replication.Recover(n.options()))
}

// Nodes keep what they are when they are started again, one by one or all: a node
// that came back as another one would count twice, or forget a vote.
func TestRestartOfEachAndOfAll(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 3)
	ids := map[*node]string{}
	for i, n := range h.nodes {
		ids[n] = n.id()
		n.stop()
		h.write("s", int64(3+i))
		n.start()
		h.settled()
	}
	for _, n := range h.nodes {
		n.stop()
	}
	h.start()
	h.settled()
	h.write("s", 6)
	h.alike()
	for _, n := range h.nodes {
		n.holds("s", 7)
		if n.id() != ids[n] || !n.votes() || len(n.servers()) != 3 {
			t.Errorf("node %s was %s, is %s in %v", n.name, ids[n], n.id(), n.servers())
		}
	}
}

// A node whose directory was lost comes back at its address under a new id and
// takes the place of its old one: two ids of one machine would weaken the quorum.
func TestRule16WipedNodeReplacesItsOldSelf(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 30)
	for _, n := range []*node{h.others(h.leader())[0], h.leader()} { // a follower, then a leader
		old := n.id()
		n.stop()
		n.wipe()
		n.start()
		h.settled()
		h.writes("s", n.data.count("s"), 30)
		eventually(t, "the old id is gone", func() bool {
			for _, s := range h.leader().servers() {
				if string(s.ID) == old {
					return false
				}
			}
			return len(h.leader().servers()) == 3
		})
		if n.id() == old {
			t.Error("a wiped node has its old name")
		}
		h.alike()
		n.holds("s", 30)
	}
}

// A node without its votes, or with only a part of its consensus state, takes a new id and is
// admitted again: with its old id it could vote twice in a term. It keeps its data and does not
// fetch them again. The rest of its consensus state is set aside and logged: it may hold
// acknowledged entries that are nowhere else.
func TestRule14LostStateMakesANewNode(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 40)
	h.alike()
	records := int64(40)
	for name, lose := range map[string]func(n *node) error{
		// Without annals.format the log gets another one at the next start, with another id.
		"format":   func(n *node) error { n.data.directory = event.ID{9, byte(records)}; return nil },
		"votes":    func(n *node) error { return os.Remove(n.raftFile("stable.db")) },
		"Raft log": func(n *node) error { return os.Remove(n.raftFile("log.db")) },
		"identity": func(n *node) error { return os.Remove(n.raftFile("identity")) },
		"all":      func(n *node) error { return os.RemoveAll(n.raftFile()) },
	} {
		n := h.others(h.leader())[0]
		old := n.id()
		n.stop()
		check.Must(t, lose(n))
		asides, left := len(n.setAside("lost")), n.files(n.raftFile())
		h.write("s", records)
		records++
		n.start()
		h.settled()
		h.alike()
		n.holds("s", records)
		if n.id() == old || !n.votes() {
			t.Errorf("lost %s: the node votes under its old name %s", name, old)
		}
		if kept := n.setAside("lost"); len(kept) != asides+min(len(left), 1) {
			t.Errorf("lost %s: set aside are %v, there were %d before", name, kept, asides)
		} else if len(left) > 0 && (!slices.Equal(n.files(kept[asides]), left) || !strings.Contains(n.lines.String(), kept[asides])) {
			t.Errorf("lost %s: of %v set aside are %v, and the log says:\n%s", name, left, n.files(kept[asides]), n.lines.String())
		}
		if pulled, known := n.data.pulls(); known > 0 || pulled > 8 {
			t.Errorf("lost %s: %d frames were fetched, %d again", name, pulled, known)
		}
		eventually(t, "the old id is gone", func() bool { return len(h.leader().servers()) == 3 })
	}
	// Erasing does not reach there, and does not pretend to.
	for _, n := range h.nodes {
		check.Must(t, n.cluster.Load().EraseLog(t.Context(), 0))
		left := n.setAside("lost")
		if said := strings.Contains(n.lines.String(), "may hold the erased data"); said != (len(left) > 0) {
			t.Errorf("node %s has %v, and says that they may hold erased data: %v", n.name, left, said)
		}
	}
}

// files lists a folder, nothing if it is not there.
func (n *node) files(dir string) (names []string) {
	n.house.t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.house.t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// setAside returns the folders with consensus state that a node does not use any more.
func (n *node) setAside(why string) []string {
	n.house.t.Helper()
	found := check.Value(filepath.Glob(n.dir + "/raft." + why + "-*")).Must(n.house.t)
	return found
}

// A copy of a whole volume holds consensus state. With its votes and entries the node could form a
// majority with another one that lacks what was acknowledged since. So a restored node has no vote
// until the leader has admitted it again; it keeps its data.
func TestRule14RestoredVolumeDoesNotVote(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	h.alike()
	has, restored, lacks := h.leader(), h.others(h.leader())[0], h.others(h.leader())[1]
	old := restored.id()
	restored.stop()
	volume := h.directory()
	check.Must(t, os.CopyFS(volume, os.DirFS(restored.dir)))
	data := restored.data.copied()
	data.directory = restored.data.directory
	restored.start()
	h.settled()
	lacks.stop()
	h.writes("s", 10, 30)
	h.alike()
	restored.stop()
	has.stop()

	restored.dir, restored.data, data.fromCopy = volume, data, true
	h.start(restored, lacks)
	if restored.id() == old {
		t.Errorf("the restored node is %s, as it was before", old)
	}
	eventually(t, "the node without the last events stands for election", func() bool {
		r := lacks.raft()
		return r != nil && (r.State() == raft.Candidate || restored.votes())
	})
	if restored.votes() {
		t.Error("the restored node votes")
	}
	if kept := restored.setAside("before-restore"); len(kept) != 1 || !strings.Contains(restored.lines.String(), kept[0]) {
		t.Errorf("set aside are %v, and the log says:\n%s", kept, restored.lines.String())
	}
	h.start(has)
	h.settled()
	h.alike()
	for _, n := range h.nodes {
		n.holds("s", 30)
	}
	if pulled, known := restored.data.pulls(); pulled > 25 || known > 0 {
		t.Errorf("%d frames were fetched, %d again", pulled, known)
	}
}

// Data of another cluster is refused, and the log says whose it is: taking part
// would mix two histories.
func TestRule16DataOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.write("s", 0)
	stranger := h.add(onDisk)
	stranger.data.cluster = event.ID{7}
	stranger.data.append([]byte{1, 'x'}, 5, 1)
	stranger.start()
	eventually(t, "a node says that it is another cluster", func() bool {
		for _, n := range h.nodes {
			if strings.Contains(n.lines.String(), "belongs to cluster") {
				return true
			}
		}
		return false
	})
	if len(h.leader().servers()) != 3 || stranger.raft() != nil {
		t.Error("the foreign node was admitted")
	}
	stranger.stop()
}

// Data of another history of the same cluster is refused with what to do: otherwise frames would be
// appended to a log that they do not follow.
func TestRule16AnotherHistoryIsRefused(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 10)
	h.alike()
	n := h.others(h.leader())[0]
	n.stop()
	cluster := n.data.cluster
	n.wipe()
	n.data.cluster = cluster
	n.data.append([]byte{1, 'x'}, 3, 1)
	n.start()
	select {
	case err := <-n.fatal:
		if !strings.Contains(err.Error(), "data are not those of its cluster") || !strings.Contains(err.Error(), "remove its data directory") {
			t.Errorf("error %v", err)
		}
	case <-time.After(patience):
		t.Error("it waits for ever")
	}
	if n.raft() != nil {
		t.Error("it takes part")
	}
}

// A whole cluster is restored by one node that begins from its copy alone; the
// others join it, are compared by chain and fetch the rest. Two that began
// alone would be two clusters under one name.
func TestRule17ClusterRestoredFromCopies(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 30)
	h.alike()
	a, b, c := h.nodes[0], h.nodes[1], h.nodes[2]
	id := a.cluster.Load().ID()
	h.recoverFrom(a)
	b.data.shorten(10)
	c.data.shorten(0)
	// A restored volume brings consensus state along, which is not in the way.
	check.Must(t, os.CopyFS(b.dir, os.DirFS(a.dir)))
	b.data.fromCopy = true
	check.Says(t, replication.Recover(a.options()), "has consensus state", "recovered a second time")
	check.Says(t, replication.Recover(c.options()), "nothing to recover", "recovered from nothing")
	// Alone it is the only voter, and answers nothing.
	h.start(a)
	eventually(t, "it leads", func() bool { return a.raft() != nil && a.raft().State() == raft.Leader })
	if servers := a.servers(); len(servers) != 1 || string(servers[0].ID) != a.id() {
		t.Errorf("servers %v", servers)
	}
	check.Fails(t, a.write("s", 30), "a write was acknowledged before a majority votes")
	// A copy that went another way is compared by chain, and refused.
	other := c.data
	c.data = b.data.copied()
	c.data.append([]byte{1, 'x'}, c.data.Tail().Index+1, c.data.Tail().Term)
	h.start(c)
	select {
	case err := <-c.fatal:
		check.Contains(t, err.Error(), "data are not those of its cluster", "another history")
	case <-time.After(patience):
		t.Error("a copy with another history waits for ever")
	}
	if len(a.servers()) != 1 {
		t.Errorf("servers %v", a.servers())
	}
	c.stop()
	c.wipe()
	c.data = other
	h.start(b, c)
	h.settled()
	h.write("s", 30)
	h.alike()
	for _, n := range h.nodes {
		n.holds("s", 31)
		check.Equal(t, n.cluster.Load().ID(), id, "node", n.name, "is of cluster")
	}
	if pulled, known := b.data.pulls(); known != 0 || pulled < 15 {
		t.Errorf("%d frames were fetched, %d again", pulled, known)
	}
	for _, s := range a.servers() {
		if s.Suffrage != raft.Voter {
			t.Errorf("servers %v", a.servers())
		}
	}
}

// shorten cuts the log after so many frames.
func (y *toy) shorten(frames int) {
	y.mu.Lock()
	kept := y.frames[:min(frames, len(y.frames))]
	y.mu.Unlock()
	next := newToy()
	for _, f := range kept {
		next.append(f.records, f.tail.Index, f.tail.Term)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.frames, y.streams = next.frames, next.streams
}
