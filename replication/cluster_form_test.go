package replication_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// From one set of nodes comes one cluster, in whatever order and however slowly
// they start, and any may be stopped meanwhile: two would each acknowledge writes
// that the other never gets.
func TestRule18ExactlyOneClusterForms(t *testing.T) {
	t.Parallel()
	orders := check.Value(strconv.Atoi(cmp.Or(os.Getenv("ANNALS_BOOTSTRAP_ORDERS"), "20"))).Must(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	places := make(chan struct{}, 4)
	for i := range orders {
		seed := rand.Uint64()
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			t.Run(strconv.Itoa(i), func(t *testing.T) { formOnce(t, rand.New(rand.NewPCG(seed, 0)), seed) })
		})
	}
}

func formOnce(t *testing.T, random *rand.Rand, seed uint64) {
	t.Logf("seed %d", seed)
	interrupt := random.IntN(2) == 0
	h := newHouse(t, 3, 3, interrupt) // a promise outlives its node on disk only
	order := slices.Clone(h.nodes)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	pauses := make([]time.Duration, len(order))
	for i := range pauses {
		pauses[i] = time.Duration(random.IntN(250)) * time.Millisecond
	}
	for i, n := range order {
		<-time.After(pauses[i]) // the delay is what is tested
		n.start()
	}
	if interrupt {
		<-time.After(time.Duration(random.IntN(500)) * time.Millisecond)
		n := order[random.IntN(len(order))]
		n.stop()
		n.start()
	}
	h.settled()
	for _, n := range h.nodes {
		if n.cluster.Load().ID() != h.nodes[0].cluster.Load().ID() {
			t.Errorf("nodes %s and a are of different clusters", n.name)
		}
		eventually(t, "all know all voters", func() bool { return len(n.servers()) == 3 })
	}
	h.write("s", 0)
	h.alike()
}

// As long as a cluster that is being formed has fewer voters than a majority of
// its size, nothing is acknowledged: the loss of one node would lose it.
func TestRule18NothingIsAcknowledgedBeforeAMajorityVotes(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 5)
	h.alike()
	h.recoverFrom(h.nodes[0])
	a, b := h.nodes[0], h.nodes[1]
	a.start()
	eventually(t, "the only voter leads its raft", func() bool { r := a.raft(); return r != nil && r.State() == raft.Leader })
	eventually(t, "raft's barrier is applied", func() bool { l, _ := a.cluster.Load().Replica().Pipeline().Leadership(); return l.Leading })
	if l, _ := a.cluster.Load().Leadership(); l.Leading || a.cluster.Load().Ready() {
		t.Error("one voter of three serves")
	}
	check.Is(t, a.write("s", 5), event.ErrNotReady, "write at one voter of three")
	if err := a.cluster.Load().Writes.Confirm(t.Context()); !errors.Is(err, event.ErrNotReady) {
		t.Errorf("linearizable read at one voter of three: %v", err)
	}
	b.start()
	h.write("s", 5)
	a.holds("s", 6)
}

// recoverFrom stops all nodes and leaves each the copy of its data that a backup
// would, in a new directory; then one is recovered from its copy.
func (h *house) recoverFrom(n *node) {
	h.t.Helper()
	for _, n := range h.nodes {
		n.stop()
		data := n.data.copied()
		n.wipe()
		n.data = data
	}
	h.recover(n)
}
