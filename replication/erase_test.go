package replication_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
)

var bothStores = []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal}

func eachStore(t *testing.T, test func(t *testing.T, kind raftdisk.LogStore)) {
	t.Parallel()
	for _, kind := range bothStores {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// payload is the name of a stream that fills a record, and begins with a text to look for.
func payload(needle string, i int64) string {
	return fmt.Sprintf("%s-%05d-%s", needle, i, strings.Repeat("x", 200-len(needle)))
}

// holding returns the files below a folder that hold a text, every byte of them looked at.
func holding(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	walk(t, dir, func() fs.WalkDirFunc {
		files = nil
		return func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if bytes.Contains(data, []byte(text)) {
				files = append(files, path)
			}
			return err
		}
	})
	return files
}

func gone(t *testing.T, when, dir, text string) {
	t.Helper()
	if files := holding(t, filepath.Join(dir, "raft"), text); len(files) > 0 {
		t.Errorf("%s: %q is still in %v", when, text, files)
	}
}

// After erasing, nothing that was applied is left in any file: while the node runs, when it
// was closed, and when it was killed. What comes afterwards is kept.
func TestRule21ErasedFromEveryFile(t *testing.T) {
	eachStore(t, func(t *testing.T, kind raftdisk.LogStore) {
		y, dir := newToy(), t.TempDir()
		other := bothStores[1-slices.Index(bothStores, kind)]
		o := toyOptions(y, dir, other)
		o.SnapshotEntries, o.TrailingEntries = 30, 10
		r := open(t, o)
		for i := range int64(100) {
			write(t, r, payload("forget-me", i), -1, 0)
		}
		closeReplica(t, r)
		if len(holding(t, filepath.Join(dir, "raft"), "forget-me")) == 0 {
			t.Fatal("there is nothing to erase")
		}
		o.LogStore = kind // converted
		r = open(t, o)
		for i := range int64(100) {
			write(t, r, payload("forget-me-too", i), -1, 0)
		}
		check.Must(t, r.EraseLog(t.Context(), y.Tail().End))
		gone(t, "running", dir, "forget-me")
		killed := copyDir(t, dir)
		gone(t, "killed", killed, "forget-me")
		crashed := y.crashed(0)
		check.Equal(t, crashed.Tail(), y.Tail(), "what was erased is not durable in the event log")
		again := toyOptions(crashed, killed, kind)
		k := open(t, again)
		gone(t, "killed and started", killed, "forget-me")
		write(t, k, "a", -1, 0)
		closeReplica(t, k)

		write(t, r, payload("keep-me", 0), -1, 0)
		if len(holding(t, filepath.Join(dir, "raft"), "keep-me")) == 0 {
			t.Error("what came later is not in the Raft log")
		}
		closeReplica(t, r)
		gone(t, "closed", dir, "forget-me")
		o.LogStore = other
		r = open(t, o)
		write(t, r, "a", -1, 0)
		closeReplica(t, r)
		gone(t, "converted", dir, "forget-me")
	})
}

// Erasing while the node is being written to: all writes are done, once, and hardly one waits.
func TestRule21EraseWhileWriting(t *testing.T) {
	eachStore(t, func(t *testing.T, kind raftdisk.LogStore) {
		y, dir := newToy(), t.TempDir()
		r := open(t, toyOptions(y, dir, kind))
		for i := range int64(50) {
			write(t, r, payload("forget-me", i), -1, 0)
		}
		const writers, rounds = 8, 5
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		counts := make([]int64, writers)
		for w := range writers {
			wg.Go(func() {
				for ctx.Err() == nil {
					write(t, r, fmt.Sprint("s", w), counts[w]-1, counts[w])
					counts[w]++
				}
			})
		}
		for range rounds {
			check.NoError(t, r.EraseLog(t.Context(), y.Tail().End))
		}
		gone(t, "written to", dir, "forget-me")
		replication.StopSnapshots(r)
		stop()
		wg.Wait()
		closeReplica(t, r)
		y.mu.Lock()
		for w, n := range counts {
			check.Equal(t, y.streams[fmt.Sprint("s", w)], n, "writer", w, "wrote ... are there")
		}
		y.mu.Unlock()
		r = open(t, toyOptions(y, dir, kind))
		write(t, r, "a", -1, 0)
		closeReplica(t, r)
	})
}

// What the caller gets when it cannot be done now.
func TestEraseLogReturns(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 3, 3, onDisk)
	h.start(h.nodes[0])
	c := h.nodes[0].cluster.Load()
	check.Is(t, c.EraseLog(t.Context(), 0), event.ErrNotReady, "without raft")
	h.start(h.nodes[1:]...)
	h.settled()
	h.writes("s", 0, 3)
	h.alike()
	l := h.leader()
	c = l.cluster.Load()
	// A position that this node has not reached yet.
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer stop()
	check.Is(t, c.EraseLog(ctx, l.data.Tail().End+1), context.DeadlineExceeded, "beyond the end")
	ctx, stop = context.WithCancel(t.Context())
	stop()
	check.Is(t, c.EraseLog(ctx, l.data.Tail().End), context.Canceled, "called off")
	h.writes("s", 3, 6)
	check.NoError(t, c.EraseLog(t.Context(), l.data.Tail().End))
	answer := make(chan error)
	go func() { answer <- c.EraseLog(context.Background(), l.data.Tail().End+1000) }()
	l.stop()
	check.Is(t, <-answer, event.ErrNotReady, "while it closed")
	l.start()
	h.settled()
	h.write("s", 6)
	h.alike()
}

// Each node erases its own: leader, follower and read-only replica, also one that was started on
// a quiet cluster and has applied nothing since.
func TestRule21EveryRoleErases(t *testing.T) {
	eachStore(t, func(t *testing.T, kind raftdisk.LogStore) {
		with := func(o *replication.ClusterOptions) { o.Replica.LogStore = kind }
		h := startHouse(t, 3, onDisk, with)
		replica := h.add(onDisk, with, func(o *replication.ClusterOptions) { o.ReadOnly = true })
		replica.start()
		for i := range int64(20) {
			h.write(payload("forget-me", i), 0)
		}
		h.alike()
		quiet := h.others(h.leader())[0]
		quiet.stop()
		quiet.start()
		h.settled()
		eventually(t, "all nodes erase", func() bool {
			return !slices.ContainsFunc(h.nodes, func(n *node) bool {
				err := n.cluster.Load().EraseLog(t.Context(), n.data.Tail().End)
				if err != nil && !errors.Is(err, event.ErrNotReady) {
					t.Fatalf("node %s: %v", n.name, err)
				}
				return err != nil
			})
		})
		for _, n := range h.nodes {
			gone(t, "node "+n.name, n.dir, "forget-me")
		}
		h.writes("s", 0, 5)
		h.alike()
		for _, n := range h.nodes {
			n.stop()
			gone(t, "stopped node "+n.name, n.dir, "forget-me")
		}
		h.start()
		h.settled()
		h.write("s", 5)
		h.alike()
		for _, n := range h.nodes {
			// The replica may not have been a member when the leader erased; then a snapshot brings
			// it up to date.
			if n != replica && n.data.restored() > 0 {
				t.Errorf("node %s had to fetch data", n.name)
			}
		}
	})
}

// A follower that hears nothing of raft while the others erase gets what it lacks afterwards.
func TestRule21FollowerThatWasAwayWhileErased(t *testing.T) {
	eachStore(t, func(t *testing.T, kind raftdisk.LogStore) {
		h := startHouse(t, 3, onDisk, func(o *replication.ClusterOptions) {
			o.Replica.LogStore, o.Replica.HoldTime = kind, 100*time.Millisecond
		})
		h.writes("s", 0, 5)
		h.alike()
		away := h.others(h.leader())[0]
		h.isolate(away)
		h.leader()
		h.writes("s", 5, 30)
		for _, n := range h.others(away) {
			eventually(t, "node has what was written", func() bool {
				n.data.mu.Lock()
				defer n.data.mu.Unlock()
				return n.data.streams["s"] == 30
			})
			check.Must(t, n.cluster.Load().EraseLog(t.Context(), n.data.Tail().End))
		}
		h.writes("s", 30, 33)
		h.rejoin(away)
		h.alike()
		away.holds("s", 33)
		away.data.tempMu.Lock()
		pulled := away.data.pulled
		away.data.tempMu.Unlock()
		if pulled == 0 {
			t.Error("it did not fetch data, so it was not away")
		}
		h.write("s", 33)
		h.alike()
	})
}

// A leader that lost its followers erases while it has entries that no other node has. The next
// leader may have nothing beyond the erased entries: it begins right after them.
func TestRule21DeposedLeaderErases(t *testing.T) {
	eachStore(t, func(t *testing.T, kind raftdisk.LogStore) {
		h := startHouse(t, 3, onDisk, func(o *replication.ClusterOptions) { o.Replica.LogStore = kind })
		h.writes("s", 0, 5)
		h.alike()
		var old *node
		for stored := false; !stored; {
			old = h.leader()
			h.isolate(old)
			last := old.raft().LastIndex()
			// It steps down, perhaps before it has stored the entry that no other node gets.
			if err := old.write(payload("never", 0), 0); err == nil {
				t.Fatal("a leader that lost its followers acknowledged a write")
			}
			if stored = old.raft().LastIndex() > last; !stored {
				h.rejoin(old)
				h.alike()
			}
		}
		check.Must(t, old.cluster.Load().EraseLog(t.Context(), old.data.Tail().End))
		eventually(t, "another leader", func() bool {
			return slices.ContainsFunc(h.others(old), func(n *node) bool { return n.raft().State() == raft.Leader })
		})
		h.rejoin(old)
		h.alike()
		h.writes("s", 5, 8)
		h.alike()
		old.holds("s", 8)
		// After an entry of another history, whose place in the files is erased too.
		check.Must(t, old.cluster.Load().EraseLog(t.Context(), old.data.Tail().End))
		gone(t, "old leader", old.dir, "never")
		if old.data.restored() > 0 {
			t.Error("it got a snapshot")
		}
	})
}

// All nodes erase again and again while leadership moves and writes come.
func TestRule21EraseWhileLeadersChange(t *testing.T) {
	eachStore(t, func(t *testing.T, kind raftdisk.LogStore) {
		h := startHouse(t, 3, onDisk, func(o *replication.ClusterOptions) {
			o.Replica.LogStore, o.Replica.SnapshotEntries, o.Replica.TrailingEntries = kind, 40, 5
		})
		h.write(payload("forget-me", 0), 0)
		h.alike()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, n := range h.nodes {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := n.cluster.Load().EraseLog(ctx, n.data.Tail().End)
					if err != nil && !errors.Is(err, event.ErrNotReady) && ctx.Err() == nil {
						t.Errorf("node %s: %v", n.name, err)
					}
				}
			})
		}
		records := int64(0)
		for range 4 {
			h.writes("s", records, records+15)
			records += 15
			h.resign(t.Context())
		}
		stop()
		wg.Wait()
		h.alike()
		for _, n := range h.nodes {
			n.holds("s", records)
			// After the cancelled one, which still runs.
			check.NoError(t, n.cluster.Load().EraseLog(t.Context(), n.data.Tail().End))
			gone(t, "node "+n.name, n.dir, "forget-me")
			if strings.Contains(n.lines.String(), "different histories") {
				t.Errorf("node %s raised the alarm", n.name)
			}
		}
	})
}
