package raftdisk

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// plainFSM notes what it gets, and fails on demand.
type plainFSM struct {
	applied []uint64
	restore error
	persist error
}

func (f *plainFSM) Apply(log *raft.Log) any {
	f.applied = append(f.applied, log.Index)
	return log.Index
}

func (f *plainFSM) ApplyBatch(logs []*raft.Log) (answers []any) {
	for _, log := range logs {
		answers = append(answers, f.Apply(log))
	}
	return answers
}

func (f *plainFSM) Snapshot() (raft.FSMSnapshot, error) { return f, nil }

func (f *plainFSM) Restore(source io.ReadCloser) error { return f.restore }

func (f *plainFSM) Persist(sink raft.SnapshotSink) error {
	if f.persist != nil {
		return errors.Join(f.persist, sink.Cancel())
	}
	_, err := io.WriteString(sink, "content")
	return err // leaves closing to others
}

func (f *plainFSM) Release() {}

func memoryRaftLog(fail *FailStop) *RaftLog {
	return newRaftLog(memKind, nil, "memory", memoryLog{raft.NewInmemStore()}, fail, newEntrySizes(16))
}

func testMachine(f *plainFSM, snaps *Snapshots, fail *FailStop) *Machine {
	s := &State{Snapshots: snaps, Logs: memoryRaftLog(fail)}
	return NewMachine(f, s, fail, new(stats.Counter), func() {}, func() {})
}

func TestStateMachineGetsBatches(t *testing.T) {
	f := &plainFSM{}
	s := testMachine(f, testSnapshots(t), &FailStop{})
	answers := s.ApplyBatch([]*raft.Log{
		{Index: 3, Type: raft.LogCommand}, {Index: 4, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "n"}}})}, {Index: 5, Type: raft.LogCommand},
	})
	if !equal(f.applied, 3, 4, 5) || len(answers) != 3 || answers[2] != uint64(5) || !s.Dirty() {
		t.Errorf("applied %v, answered %v", f.applied, answers)
	}
	if c := s.Configured.Load(); c.Index != 4 || len(c.Servers) != 1 {
		t.Errorf("configured %+v", c)
	}
}

// Of two configurations that are applied at once the later one counts: changes are made against its
// index.
func TestTwoConfigurationsInOneBatch(t *testing.T) {
	s := testMachine(&plainFSM{}, testSnapshots(t), &FailStop{})
	of := func(index uint64, ids ...raft.ServerID) *raft.Log {
		var c raft.Configuration
		for _, id := range ids {
			c.Servers = append(c.Servers, raft.Server{ID: id})
		}
		return &raft.Log{Index: index, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)}
	}
	s.ApplyBatch([]*raft.Log{of(6, "a", "b"), of(7, "a", "b", "c")})
	if c := s.Configured.Load(); c.Index != 7 || len(c.Servers) != 3 {
		t.Errorf("configured %+v", c)
	}
}

func TestPersist(t *testing.T) {
	disk := errors.New("input/output error")
	for _, c := range []struct {
		name  string
		err   error
		fatal bool
	}{{"written", nil, false}, {"sync failed", disk, true}, {"log closed", event.ErrClosed, false}, {"full disk", syscall.ENOSPC, false}} {
		t.Run(c.name, func(t *testing.T) {
			var fatal error
			snaps := testSnapshots(t)
			f := &plainFSM{persist: c.err}
			s := testMachine(f, snaps, &FailStop{OnFatal: func(err error) { fatal = err }})
			s.ApplyBatch([]*raft.Log{{Index: 7}})
			snap := check.Value(s.Snapshot()).Must(t)
			s.ApplyBatch([]*raft.Log{{Index: 8}})
			sink := check.Value(snaps.Create(1, 7, 1, raft.Configuration{}, 1, nil)).Must(t)
			check.Is(t, snap.Persist(sink), c.err, "returned")
			if (fatal != nil) != c.fatal || c.fatal && !errors.Is(fatal, disk) {
				t.Errorf("fatal error %v", fatal)
			}
			if got := listed(t, snaps); (len(got) == 1) != (c.err == nil) {
				t.Errorf("snapshots %v", got)
			}
			if !s.Dirty() {
				t.Error("an entry after the snapshot counts as covered")
			}
		})
	}
}

func TestRestoreDecidesWhetherASnapshotCounts(t *testing.T) {
	for _, failure := range []error{nil, errors.New("data is missing")} {
		snaps := testSnapshots(t)
		s := testMachine(&plainFSM{restore: failure}, snaps, &FailStop{})
		sink := take(t, snaps, 9, false, "received")
		_, source, err := snaps.Open(sink.ID())
		check.Must(t, err)
		check.Is(t, s.Restore(source), failure, "returned")
		if got := listed(t, reopenSnapshots(t, snaps.dir)); (len(got) == 1) != (failure == nil) {
			t.Errorf("restore said %v, snapshots %v", failure, got)
		}
	}
}

// A snapshot whose data are not here is refused at once, and its data are fetched: while it is
// being restored, the node neither votes nor appends.
func TestRule11MissingDataIsFetchedBehind(t *testing.T) {
	behind := 0
	snaps := testSnapshots(t)
	s := &State{Snapshots: snaps, Logs: memoryRaftLog(&FailStop{})}
	machine := NewMachine(&plainFSM{restore: event.ErrDataMissing}, s, &FailStop{}, new(stats.Counter), func() { behind++ }, func() { t.Error("raft is restarted") })
	sink := take(t, snaps, 9, false, "received")
	_, source, err := snaps.Open(sink.ID())
	check.Must(t, err)
	if err := machine.Restore(source); !errors.Is(err, event.ErrDataMissing) || behind != 1 {
		t.Errorf("error %v, fetching was asked for %d times", err, behind)
	}
	if got := listed(t, snaps); len(got) != 0 {
		t.Errorf("snapshots %v", got)
	}
}

// If there are entries beyond a received snapshot, either they are of its history and the snapshot
// is stale, or they are of another one and raft must begin on an empty log.
func TestRule13WhatIsBeyondASnapshot(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, last uint64 // of the Raft log, term 1
		term        uint64 // of the snapshot, whose index is 9
		stale, anew bool
	}{
		{"nothing", 1, 5, 2, false, false},
		{"up to it", 1, 9, 2, false, false},
		{"the same term there", 1, 12, 1, true, false},
		{"another term there", 1, 12, 2, false, true},
		{"cut after it", 10, 12, 2, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			snaps, anew := testSnapshots(t), false
			logs := memoryRaftLog(&FailStop{})
			check.Must(t, logs.StoreLogs(entries(c.first, c.last)))
			if logs.Holds(9, c.term) != c.stale {
				t.Error("whether the log holds the entry of the snapshot is answered wrongly")
			}
			machine := NewMachine(&plainFSM{}, &State{Snapshots: snaps, Logs: logs}, &FailStop{}, new(stats.Counter), func() {}, func() { anew = true })
			sink, err := snaps.Create(1, 9, c.term, raft.Configuration{}, 1, nil)
			check.Must(t, err)
			check.Must(t, sink.Close())
			_, source, err := snaps.Open(sink.ID())
			check.Must(t, err)
			if err := machine.Restore(source); errors.Is(err, errStale) != c.stale || (err != nil) != c.stale {
				t.Errorf("error %v", err)
			}
			if stored := logs.StoreLogs(entries(c.last+1, c.last+1)); anew != c.anew || errors.Is(stored, errFrozen) != c.anew {
				t.Errorf("restarted: %t; storing more: %v", anew, stored)
			}
			if got := listed(t, snaps); len(got) == 0 != c.stale {
				t.Errorf("snapshots %v", got)
			}
		})
	}
}
