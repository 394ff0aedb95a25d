package replication_test

import (
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/wire"
)

// deaf stops a node's raft from hearing the others; its other services keep running, so that it is
// known to be alive.
func (h *house) deaf(n *node) {
	id := n.cluster.Load().Node()
	h.cut("deaf", func(from event.ID, to *node, kind wire.Kind) bool {
		return kind != wire.KindService && (to == n || from == id)
	})
}

// cutBehind reports whether a node's Raft log reaches back no more to what follows an index.
func (n *node) cutBehind(index uint64) bool {
	first, err := replication.FirstIndex(n.cluster.Load())
	return err == nil && (first == 0 || first > index+1)
}

func holding30(change func(*replication.Options)) func(o *replication.ClusterOptions) {
	return func(o *replication.ClusterOptions) {
		o.Replica.SnapshotEntries, o.Replica.TrailingEntries, o.Replica.HoldTime = 20, 5, time.Hour
		change(&o.Replica)
	}
}

// While a node that is alive is catching up, the entries that it needs stay, so that it need not
// fetch data.
func TestRule10CompactionWaitsForWhoCatchesUp(t *testing.T) {
	t.Parallel()
	for !compactionWaits(t) {
		t.Log("the cluster was disturbed: once more")
	}
}

// compactionWaits returns false if another leader was elected meanwhile, which knows nothing of
// what the one before was waiting for, or if the leader did not hear of the node, as when the
// machine stands still for seconds: it waits for nodes that are alive.
func compactionWaits(t *testing.T) (undisturbed bool) {
	h := startHouse(t, 3, onDisk, holding30(func(*replication.Options) {}))
	h.writes("s", 0, 10)
	h.alike()
	l := h.leader()
	term := l.raft().CurrentTerm()
	n := h.others(l)[0]
	h.deaf(n)
	last := n.raft().LastIndex()
	before := snapshots(l)
	records := int64(10)
	for ; snapshots(l) < before+5; records++ {
		h.write("s", records)
	}
	waited := func() bool { return l.leads(term) && !strings.Contains(l.lines.String(), "a node does not answer") }
	if cut := l.cutBehind(last); !waited() {
		return false
	} else if cut {
		t.Error("the entries that the node needs were deleted")
	}
	// Erasing waits too.
	done := make(chan error, 1)
	go func() { done <- l.cluster.Load().EraseLog(t.Context(), l.data.Tail().End) }()
	waits := true
	select {
	case err := <-done:
		waits = false
		done <- err
	case <-time.After(200 * time.Millisecond):
	}
	h.lift("deaf")
	err := <-done
	h.alike()
	if !waited() {
		return false
	}
	if err != nil || !waits {
		t.Errorf("it waited: %t, error %v", waits, err)
	}
	n.holds("s", records)
	if pulled, _ := n.data.pulls(); pulled > 0 || n.data.restored() > 0 {
		t.Errorf("%d frames were fetched, %d snapshots came", pulled, n.data.restored())
	}
	if !l.cutBehind(last) {
		t.Error("nothing was erased")
	}
	return true
}

func snapshots(n *node) uint64 { return replication.SnapshotsWritten(n.cluster.Load().Replica()) }

// It waits for so much only, and for so long only; then the node fetches data.
func TestRule10CompactionWaitsNotForEver(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*replication.Options){
		"bytes": func(o *replication.Options) { o.HoldBytes = 64 << 10 },
		"time":  func(o *replication.Options) { o.HoldTime = 300 * time.Millisecond },
		"never": func(o *replication.Options) { o.HoldTime = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startHouse(t, 3, inMemory, holding30(change))
			h.writes("s", 0, 10)
			h.alike()
			n := h.others(h.leader())[0]
			last := n.raft().LastIndex()
			h.deaf(n)
			records := h.outrun(n, last, "s", 10)
			if name == "time" {
				check.NoError(t, h.leader().cluster.Load().EraseLog(t.Context(), 0))
			}
			h.lift("deaf")
			h.alike()
			n.holds("s", records)
		})
	}
}
