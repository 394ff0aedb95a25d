package raftdisk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func testSnapshots(t *testing.T) *Snapshots {
	t.Helper()
	dir := t.TempDir()
	return reopenSnapshots(t, dir)
}

func reopenSnapshots(t *testing.T, dir string) *Snapshots {
	t.Helper()
	fail := &FailStop{OnFatal: func(err error) { t.Error(err) }}
	s, err := openSnapshots(vfs.OS, dir, Identity{Creation: event.ID{3}}, hclog.NewNullLogger(), fail)
	check.Must(t, err)
	return s
}

// take writes a snapshot as raft does: Persist writes and closes, raft closes again.
func take(t *testing.T, s *Snapshots, index uint64, local bool, content string) raft.SnapshotSink {
	t.Helper()
	sink, err := s.Create(1, index, 2, raft.Configuration{}, 1, nil)
	check.Must(t, err)
	sink.(*snapshotSink).local = local
	_, err = io.WriteString(sink, content)
	check.Must(t, err)
	check.Must(t, sink.Close())
	check.Must(t, sink.Close())
	check.Must(t, sink.Cancel()) // too late
	return sink
}

func listed(t *testing.T, s *Snapshots) (indexes []uint64) {
	t.Helper()
	list := check.Value(s.List()).Must(t)
	for _, meta := range list {
		indexes = append(indexes, meta.Index)
	}
	return indexes
}

func equal(a []uint64, b ...uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestNewestTwoSnapshotsAreKept(t *testing.T) {
	t.Parallel()
	s := testSnapshots(t)
	for _, index := range []uint64{10, 20, 300} {
		take(t, s, index, true, "content")
	}
	if got := listed(t, s); !equal(got, 300, 20) {
		t.Errorf("listed %v", got)
	}
	s = reopenSnapshots(t, s.dir)
	if got := listed(t, s); !equal(got, 300, 20) {
		t.Errorf("listed %v after a start", got)
	}
	list, err := s.List()
	check.Must(t, err)
	meta, source, err := s.Open(list[0].ID)
	check.Must(t, err)
	data, err := io.ReadAll(source)
	check.Must(t, err)
	if string(data) != "content" || meta.Size != int64(len(data)) {
		t.Errorf("read %q, size %d", data, meta.Size)
	}
	if _, _, err := s.Open("unknown"); err == nil {
		t.Error("opened what is not there")
	}
}

// A received snapshot counts only once it was restored: raft stores it first, and the next start
// would assume that the data are there.
func TestRule09ReceivedSnapshotCountsOnceRestored(t *testing.T) {
	t.Parallel()
	s := testSnapshots(t)
	take(t, s, 10, true, "own")
	sink := take(t, s, 50, false, "received")
	if got := listed(t, s); !equal(got, 10) {
		t.Errorf("listed %v before it was restored", got)
	}
	_, _, err := s.Open(sink.ID())
	check.Must(t, err)
	check.Must(t, s.restored(false))
	if got := listed(t, reopenSnapshots(t, s.dir)); !equal(got, 10) {
		t.Errorf("listed %v after a failed restore and a start", got)
	}
	if _, _, err := s.Open(sink.ID()); err == nil {
		t.Error("a snapshot that was not restored stays")
	}
	sink = take(t, s, 60, false, "received")
	_, _, err = s.Open(sink.ID())
	check.Must(t, err)
	check.Must(t, s.restored(true))
	if got := listed(t, reopenSnapshots(t, s.dir)); !equal(got, 60, 10) {
		t.Errorf("listed %v after it was restored", got)
	}
}

func TestCancelledSnapshotIsNone(t *testing.T) {
	t.Parallel()
	s := testSnapshots(t)
	sink := check.Value(s.Create(1, 5, 2, raft.Configuration{}, 1, nil)).Must(t)
	sink.(*snapshotSink).local = true
	check.Must(t, sink.Cancel())
	check.Fails(t, sink.Close(), "closed a cancelled one")
	check.Fails(t, check.Err(sink.Write([]byte("x"))), "wrote to a cancelled one")
	if got := listed(t, s); len(got) != 0 {
		t.Errorf("listed %v", got)
	}
}

// frames of the event log that the tests of the start use: position to chain.
var startChains = map[int64]event.Chain{100: {1}, 200: {2}, 300: {3}}

func tailAt(end int64, index, term uint64) event.Tail {
	return event.Tail{End: end, Chain: startChains[end], Index: index, Term: term}
}

// Before raft starts, snapshots are compared with the event log by position and chain: otherwise a
// node could skip entries, or append them to another log than the one they were decided on.
func TestRule12StartChecksSnapshotAgainstLog(t *testing.T) {
	t.Parallel()
	type content struct {
		index uint64
		tail  event.Tail
	}
	for _, c := range []struct {
		name        string
		snapshots   []content // oldest first
		first, last uint64    // of the Raft log, term 2
		gap         [2]uint64 // what lacks in it, both included
		tail        event.Tail
		damage      bool   // the newest
		refused     string // empty: starts
		kept        []uint64
		empty       bool // the Raft log must be empty then
	}{
		{name: "newest fits the end", snapshots: []content{{10, tailAt(100, 10, 2)}, {20, tailAt(200, 20, 2)}},
			first: 5, last: 25, tail: tailAt(200, 20, 2), kept: []uint64{20, 10}},
		{name: "newest fits a frame before the end", snapshots: []content{{10, tailAt(100, 10, 2)}},
			first: 11, last: 25, tail: tailAt(300, 25, 2), kept: []uint64{10}},
		{name: "of nothing", snapshots: []content{{3, event.Tail{}}}, first: 4, last: 9, tail: tailAt(100, 9, 2), kept: []uint64{3}},
		{name: "beyond the end, older and whole Raft log remain", snapshots: []content{{10, tailAt(100, 10, 2)}, {20, tailAt(200, 20, 2)}},
			first: 11, last: 25, tail: tailAt(100, 10, 2), kept: []uint64{10}},
		{name: "beyond the end, Raft log from the first entry", snapshots: []content{{20, tailAt(200, 20, 2)}},
			first: 1, last: 25, tail: tailAt(100, 10, 2)},
		{name: "beyond the end, Raft log has been cut", snapshots: []content{{10, tailAt(100, 10, 2)}, {20, tailAt(200, 20, 2)}},
			first: 12, last: 25, tail: tailAt(100, 10, 2), refused: "needs the event log up to 200, which ends at 100: acknowledged writes are missing"},
		{name: "beyond the end, Raft log ends before it", snapshots: []content{{10, tailAt(100, 10, 2)}, {20, tailAt(200, 20, 2)}},
			first: 2, last: 19, tail: tailAt(100, 10, 2), refused: "needs the event log"},
		{name: "beyond the end, alone", snapshots: []content{{20, tailAt(200, 20, 2)}}, tail: tailAt(100, 10, 2), refused: "needs the event log"},
		{name: "damaged, older and whole Raft log remain", snapshots: []content{{10, tailAt(100, 10, 2)}, {20, tailAt(200, 20, 2)}},
			first: 5, last: 25, tail: tailAt(200, 20, 2), damage: true, kept: []uint64{10}},
		{name: "damaged, alone", snapshots: []content{{20, tailAt(200, 20, 2)}}, first: 18, last: 25, tail: tailAt(200, 20, 2), damage: true, refused: "damaged"},
		{name: "other chain at the end", snapshots: []content{{10, event.Tail{End: 100, Chain: event.Chain{9}, Index: 10, Term: 2}}},
			first: 5, last: 25, tail: tailAt(100, 10, 2), refused: "another history"},
		{name: "other chain before the end", snapshots: []content{{10, event.Tail{End: 100, Chain: event.Chain{9}, Index: 10, Term: 2}}},
			first: 5, last: 25, tail: tailAt(200, 20, 2), refused: "another history"},
		{name: "no frame ends there", snapshots: []content{{10, event.Tail{End: 150, Index: 10, Term: 2}}},
			first: 5, last: 25, tail: tailAt(200, 20, 2), refused: "another history"},
		{name: "snapshot above the Raft log", snapshots: []content{{20, tailAt(200, 20, 2)}},
			first: 5, last: 12, tail: tailAt(200, 20, 2), kept: []uint64{20}, empty: true},
		{name: "gap up to the snapshot", snapshots: []content{{10, tailAt(100, 10, 2)}, {20, tailAt(200, 20, 2)}},
			first: 5, last: 25, gap: [2]uint64{13, 20}, tail: tailAt(300, 25, 2), kept: []uint64{20, 10}},
		{name: "gap before the snapshot", snapshots: []content{{20, tailAt(200, 20, 2)}},
			first: 5, last: 25, gap: [2]uint64{13, 18}, tail: tailAt(200, 20, 2), kept: []uint64{20}},
		{name: "gap beyond the snapshot", snapshots: []content{{20, tailAt(200, 20, 2)}},
			first: 5, last: 25, gap: [2]uint64{13, 21}, tail: tailAt(200, 20, 2), refused: "entry 21"},
		{name: "gap after the snapshot", snapshots: []content{{10, tailAt(100, 10, 2)}}, first: 12, last: 25, tail: tailAt(100, 10, 2), refused: "begins at entry 12"},
		{name: "no snapshot and a cut Raft log", first: 2, last: 9, tail: tailAt(100, 9, 2), refused: "begins at entry 2"},
		{name: "neither snapshot nor entry", refused: "neither"},
		{name: "Raft log older than the event log", snapshots: []content{{10, tailAt(100, 10, 2)}}, first: 5, last: 15, tail: tailAt(200, 20, 2), refused: "up to 15 only"},
		{name: "other term of the last frame", snapshots: []content{{10, tailAt(100, 10, 2)}}, first: 5, last: 25, tail: tailAt(200, 20, 1), refused: "of term 2"},
		{name: "votes older than the log", snapshots: []content{{10, tailAt(100, 10, 2)}}, first: 5, last: 25, tail: tailAt(200, 20, 4), refused: "current term"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := testOptions(t.TempDir(), event.Tail{})
			s, err := openTestState(t, o)
			check.Must(t, err)
			defer func() { check.Must(t, s.Close()) }()
			check.Must(t, s.Logs.DeleteRange(1, 1))
			for _, log := range entries(c.first, c.last) {
				if log.Term = 2; c.first > 0 && (log.Index < c.gap[0] || log.Index > c.gap[1]) {
					check.Must(t, s.Logs.StoreLog(log))
				}
			}
			check.Must(t, s.Stable.SetUint64(keyCurrentTerm, 3))
			for i, m := range c.snapshots {
				snap := snapshotOf(t, s.ID, m.index, 2, m.tail)
				check.Must(t, snap.write(vfs.OS, s.Snapshots.dir, s.ID))
				if path := filepath.Join(s.Snapshots.dir, snap.meta.ID+snapshotSuffix); c.damage && i == len(c.snapshots)-1 {
					check.Must(t, os.Truncate(path, 20))
				}
			}
			if s.Snapshots, err = openSnapshots(vfs.OS, s.Snapshots.dir, s.ID, hclog.NewNullLogger(), s.Snapshots.fail); err != nil {
				t.Fatal(err)
			}
			before := names(t, s.Snapshots.dir)
			_, err = s.CheckStart(&fixedLog{tail: c.tail, chains: startChains})
			if c.refused != "" {
				if !errors.Is(err, ErrStateLost) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("error %v", err)
				}
				if names(t, s.Snapshots.dir) != before {
					t.Error("snapshots were removed although the start was refused")
				}
				return
			}
			check.Must(t, err)
			if got := listed(t, reopenSnapshots2(t, s)); !equal(got, c.kept...) {
				t.Errorf("snapshots %v are left, expected %v", got, c.kept)
			}
			last, err := s.Logs.LastIndex()
			check.Must(t, err)
			check.Equal(t, last == 0, c.empty, "Raft log ends at", last)
			if _, err := s.CheckStart(&fixedLog{tail: c.tail, chains: startChains}); err != nil {
				t.Errorf("the next start: %v", err)
			}
		})
	}
}

func reopenSnapshots2(t *testing.T, s *State) *Snapshots {
	t.Helper()
	again, err := openSnapshots(vfs.OS, s.Snapshots.dir, s.ID, hclog.NewNullLogger(), s.Snapshots.fail)
	check.Must(t, err)
	return again
}

func FuzzDecodeSnapshot(f *testing.F) {
	snap := &snapshot{data: []byte("content"), meta: raft.SnapshotMeta{ID: "x", Size: 7}}
	data := check.Value(snap.encode(Identity{})).Must(f)
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Fuzz(func(t *testing.T, data []byte) {
		snap, _, err := decodeSnapshot(data)
		if err == nil && int64(len(snap.data)) != snap.meta.Size {
			t.Error("size is wrong")
		}
	})
}

// A snapshot is not needed: one that a full disk has no room for does not end the node, which would
// then not even stop in order. One that was received is.
func TestSnapshotOnAFullDisk(t *testing.T) {
	for name, received := range map[string]bool{"own": false, "received": true} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			check.Must(t, mem.MkdirAll("/snapshots"))
			var fatal error
			s, err := openSnapshots(mem, "/snapshots", Identity{}, hclog.NewNullLogger(), &FailStop{OnFatal: func(err error) { fatal = err }})
			check.Must(t, err)
			take(t, s, 1, true, `{}`)
			mem.SetCapacity(1)
			sink := check.Value(s.Create(1, 2, 2, raft.Configuration{}, 1, nil)).Must(t)
			sink.(*snapshotSink).local = !received
			check.Must(t, check.Err(io.WriteString(sink, `{}`)))
			if received {
				check.Must(t, sink.Close())
				_, content, openErr := s.Open(sink.ID())
				check.Must(t, openErr)
				check.Must(t, content.Close())
				err = s.restored(true)
			} else {
				err = sink.Close()
			}
			check.Is(t, err, syscall.ENOSPC)
			check.Equal(t, fatal != nil, received, "fatal", fatal)
			if received {
				return
			}
			mem.SetCapacity(0)
			take(t, s, 3, true, `{}`)
			if got := listed(t, s); !equal(got, 3, 1) {
				t.Errorf("snapshots %v", got)
			}
		})
	}
}

// A node that fetched data receives the snapshot that covers them, and the sync of its name fails.
// The next process finds the snapshot, and ends the mark that the event log may be ahead. After a
// power cut the snapshot is still there, or the event log would be ahead without a reason.
func TestSnapshotWhoseNameIsNotSynced(t *testing.T) {
	t.Parallel()
	mem, o := inMemory(t, Wal)
	broken := false
	o.Files = failing(mem, func(op vfs.Op) bool {
		return op.Kind == vfs.OpSyncDir && filepath.Base(op.Name) == snapshotsDir && broken
	})
	s := check.Value(openToFail(o)).Must(t)
	check.Must(t, s.Logs.StoreLogs(entries(2, 4)))
	check.Must(t, s.Mark(PulledFile))
	broken = true
	check.MustBe(t, s.Snapshots.publish(snapshotOf(t, s.ID, 20, 1, event.Tail{})), syscall.EIO, "published")
	check.Must(t, s.Close())

	o.Files, o.Log = mem, &fixedLog{tail: event.Tail{End: 100, Index: 20, Term: 1}}
	s = check.Value(openTestState(t, o)).Must(t)
	check.NoError(t, check.Err(s.CheckStart(o.Log)), "without a power cut")
	check.Must(t, s.SettlePulled(o.Log.Tail()))
	check.Must(t, s.Close())
	o.Files = mem.CrashClone(vfs.CrashOptions{})
	s = check.Value(openTestState(t, o)).Must(t)
	check.NoError(t, check.Err(s.CheckStart(o.Log)), "after a power cut")
	check.Must(t, s.Close())
}
