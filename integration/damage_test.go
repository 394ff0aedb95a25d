package integration_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// smallTables make a node write and merge index tables from the first hundreds of events on.
var smallTables = []string{"--max-mem-table-size", "50"}

// TestIndexDamaged: the index can be rebuilt, so no damage to it keeps a node from starting or
// hides an event.
func TestIndexDamaged(t *testing.T) {
	cases := []struct {
		name   string
		damage func(t *testing.T, index string)
		// what a node says of damage that it finds when it reads; the next start mends it
		late   string
		mended string // what a node says when it has mended that itself
	}{
		{name: "missing", damage: func(t *testing.T, index string) { remove(t, index) }},
		{name: "map missing", damage: func(t *testing.T, index string) { remove(t, filepath.Join(index, "indexmap")) }},
		{name: "map cut off", damage: func(t *testing.T, index string) { truncateFile(t, filepath.Join(index, "indexmap"), 20) }},
		{name: "map empty", damage: func(t *testing.T, index string) { truncateFile(t, filepath.Join(index, "indexmap"), 0) }},
		{name: "map altered", damage: func(t *testing.T, index string) { flipByte(t, filepath.Join(index, "indexmap"), 50) }},
		{name: "table missing", damage: func(t *testing.T, index string) { remove(t, tables(t, index)[0]) }},
		{name: "table cut off", damage: func(t *testing.T, index string) {
			truncateFile(t, tables(t, index)[0], fileSize(t, tables(t, index)[0])/2)
		}},
		{name: "table altered", damage: func(t *testing.T, index string) {
			for _, name := range tables(t, index) {
				flipByte(t, name, fileSize(t, name)/2)
			}
		}, mended: "the index was built again"},
		{name: "bloom filter missing", damage: func(t *testing.T, index string) { remove(t, matches(t, index, "*.bloomfilter")[0]) }},
		{name: "bloom filter altered", damage: func(t *testing.T, index string) {
			for _, name := range matches(t, index, "*.bloomfilter") {
				flipByte(t, name, fileSize(t, name)/2)
			}
		}, late: "the next start rebuilds it"},
		{name: "existence filter missing", damage: func(t *testing.T, index string) { remove(t, filepath.Join(index, "stream-existence")) }},
		{name: "existence filter altered", damage: func(t *testing.T, index string) {
			for _, name := range matches(t, index, "stream-existence/*") {
				if size := fileSize(t, name); size > 0 {
					flipByte(t, name, size/2)
				}
			}
		}},
	}
	origin := t.TempDir()
	l := filled(t, origin, smallTables)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			copyTree(t, origin, dir)
			c.damage(t, filepath.Join(dir, "index"))
			if c.late != "" {
				node := testkit.LaunchNode(t, dir, smallTables...)
				node.AwaitLog(c.late)
				node.Signal(syscall.SIGTERM)
				node.Wait(time.Minute)
			}
			node := testkit.LaunchNode(t, dir, smallTables...)
			if c.mended != "" {
				node.AwaitLog(c.mended)
			}
			node.AwaitServing()
			l.checkNode(t, node)
			mustAppend(t, node, "behind-the-damage", -1, 1)
			node.Stop()
			verifyClean(t, dir)
			node = testkit.StartNode(t, dir, smallTables...)
			mustAppend(t, node, "behind-the-damage", 0, 1)
			node.Stop()
		})
	}
}

// tables lists the files of the index's tables.
func tables(t *testing.T, index string) []string {
	t.Helper()
	var found []string
	for _, name := range matches(t, index, "*.bloomfilter") {
		found = append(found, strings.TrimSuffix(name, ".bloomfilter"))
	}
	return found
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info := check.Value(os.Stat(path)).Must(t)
	return info.Size()
}

// TestConsensusStateRemoved: a single node starts again from its log alone.
func TestConsensusStateRemoved(t *testing.T) {
	for _, store := range []string{"BoltDB", "Wal"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l := filled(t, dir, nil)
			remove(t, filepath.Join(dir, "raft"))
			option := "--raft-log-store=" + store
			node := testkit.StartNode(t, dir, option)
			l.checkNode(t, node)
			repeatWrites(t, node, l)

			// Killed at once, before it made a Raft snapshot.
			w := &write{stream: "anew", expected: -1}
			l.begin(w)
			w.events = mustAppend(t, node, w.stream, -1, 5)
			l.ack(w, 0)
			node.Kill()
			node = testkit.StartNode(t, dir, option)
			l.checkNode(t, node)
			repeatWrites(t, node, l)
			node.Stop()
			verifyClean(t, dir)
		})
	}
}

// repeatWrites sends acknowledged writes again: the same place is answered and nothing is written.
func repeatWrites(t *testing.T, node *testkit.Process, l *ledger) {
	t.Helper()
	for _, w := range l.acknowledgedSoFar() {
		for _, expected := range []int64{-2, w.expected} {
			if expected == w.expected && expected == lastNumber(l, w.stream) {
				continue // The end of the stream: ids are not looked at there.
			}
			answer, err := node.Append(t.Context(), w.stream, expected, false, w.events...)
			if err != nil || answer.Status != http.StatusCreated {
				t.Fatalf("repeating with %d the %s: %s %v", expected, &w, answer, err)
			}
			if number, err := answer.FirstNumber(w.stream); err != nil || number != w.number {
				t.Fatalf("repeating with %d the %s: was %d, is %d, %v", expected, &w, w.number, number, err)
			}
		}
	}
	l.checkNode(t, node)
}

func lastNumber(l *ledger, stream string) int64 {
	last := int64(-1)
	for _, w := range l.acknowledgedSoFar() {
		if w.stream == stream {
			last = max(last, w.number+int64(len(w.events))-1)
		}
	}
	return last
}

// TestCopyOfQuietNode: a few writes, and then nothing that would make the node
// write anything out; a copy holds them all the same.
func TestCopyOfQuietNode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := testkit.StartNode(t, dir)
	l := fill(t, node, 6, 2)
	to := copyByHand(t, dir)
	restored := testkit.StartNode(t, to)
	l.checkNode(t, restored)
	repeatWrites(t, restored, l)
	restored.Stop()
	verifyClean(t, to)
	node.Stop()
}

// TestRestoreInPlace puts a copy back over the folder of a node that kept serving: the events after
// it are gone, and do not come back out of the Raft log.
func TestRestoreInPlace(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"BoltDB", "Wal"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			option := "--raft-log-store=" + store
			node := testkit.StartNode(t, dir, option)
			l := fill(t, node, 6, 2)
			copied := copyByHand(t, dir)
			mustAppend(t, node, "to-be-taken-back", -1, 3)
			node.Kill()
			for _, path := range append(matches(t, dir, "chunk-*"), matches(t, dir, "*.chk")...) {
				remove(t, path)
			}
			remove(t, filepath.Join(dir, "index"))
			copyTree(t, copied, dir)
			node = testkit.StartNode(t, dir, option)
			l.checkNode(t, node)
			repeatWrites(t, node, l)
			mustAppend(t, node, "to-be-taken-back", -1, 1)
			node.Stop()
			if kept := matches(t, dir, "raft.before-restore-*"); len(kept) != 1 {
				t.Errorf("set aside are %v", kept)
			}
			verifyClean(t, dir)
		})
	}
}

func copyInto(t *testing.T, path, dir string) {
	t.Helper()
	check.Must(t, copyFile(path, filepath.Join(dir, filepath.Base(path))))
}
