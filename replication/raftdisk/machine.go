package raftdisk

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Machine wraps the state machine for raft. It knows whether something was applied since the last
// snapshot, informs the snapshot store which snapshots are this node's own and which were restored,
// and stops the node when one cannot be written.
type Machine struct {
	raft.BatchingFSM
	snaps   *Snapshots
	logs    *RaftLog
	fail    *FailStop
	written *stats.Counter // snapshots
	behind  func()         // a snapshot came whose data is not here; must not block
	anew    func()         // raft must be restarted; must not block

	Committed func(index, term uint64) // called before entries are applied; must not block

	applied atomic.Uint64 // commands applied since the start
	covered atomic.Uint64 // how many of them the newest snapshot covers

	// Configured is the newest configuration that is applied here, or in the snapshot that raft
	// began with. raft reports the latest configuration, but not its index.
	Configured atomic.Pointer[configured]
}

// Configured is a committed configuration and the index of its entry.
type configured struct {
	Servers []raft.Server
	Index   uint64
}

var _ raft.BatchingFSM = (*Machine)(nil)

func NewMachine(fsm raft.BatchingFSM, s *State, fail *FailStop, written *stats.Counter, behind, anew func()) *Machine {
	machine := &Machine{BatchingFSM: fsm, snaps: s.Snapshots, logs: s.Logs, fail: fail, written: written, behind: behind, anew: anew, Committed: func(uint64, uint64) {}}
	newest := s.Snapshots.newest()
	machine.Configured.Store(&configured{newest.Configuration.Servers, newest.ConfigurationIndex})
	return machine
}

// Dirty reports whether a new snapshot would cover more than the newest one.
func (s *Machine) Dirty() bool { return s.applied.Load() != s.covered.Load() }

// ApplyBatch is all that raft calls. It also gets configuration entries.
func (s *Machine) ApplyBatch(logs []*raft.Log) []any {
	commands := uint64(0)
	newest := s.Configured.Load() // of several configurations in one batch the last one counts
	for _, log := range logs {
		switch log.Type {
		case raft.LogCommand:
			commands++
		case raft.LogConfiguration:
			newest = &configured{raft.DecodeConfiguration(log.Data).Servers, log.Index}
		}
	}
	defer func() {
		s.Configured.Store(newest)
		s.applied.Add(commands)
	}()
	last := logs[len(logs)-1]
	s.Committed(last.Index, last.Term)
	return s.BatchingFSM.ApplyBatch(logs)
}

// Snapshot runs on the goroutine that applies, so that applied is what the snapshot covers.
func (s *Machine) Snapshot() (raft.FSMSnapshot, error) {
	snap, err := s.BatchingFSM.Snapshot()
	if err != nil {
		return nil, err
	}
	return &machineSnapshot{FSMSnapshot: snap, machine: s, covers: s.applied.Load()}, nil
}

// Restore accepts a snapshot from the leader if the event log has its data. It never waits for
// them: while it runs the node neither votes nor appends.
//
// Entries of this node's Raft log beyond the snapshot are those of a deposed leader, or the
// snapshot is an old one that comes late. In the first case raft must be restarted on an empty Raft
// log, since it would keep counting from the last of these entries; until then nothing more is
// stored.
func (s *Machine) Restore(source io.ReadCloser) error {
	meta := s.snaps.restoring()
	conflict, err := s.logs.conflicts(meta)
	if err != nil {
		return errors.Join(err, source.Close(), s.snaps.restored(false))
	}
	err = s.BatchingFSM.Restore(source)
	if errors.Is(err, event.ErrDataMissing) {
		s.behind()
	}
	if err == nil && conflict {
		s.logs.Frozen.Store(true)
	}
	err = errors.Join(err, s.snaps.restored(err == nil))
	if err == nil && meta != nil {
		s.Configured.Store(&configured{meta.Configuration.Servers, meta.ConfigurationIndex})
	}
	if err == nil && conflict {
		s.anew()
	}
	return err
}

type machineSnapshot struct {
	raft.FSMSnapshot
	machine *Machine
	covers  uint64
}

// Persist makes the event log durable and writes the snapshot. raft would only log an error; but a
// sync that failed once must not be tried again.
func (m *machineSnapshot) Persist(sink raft.SnapshotSink) error {
	if own, ok := sink.(*snapshotSink); ok {
		own.local = true
	}
	err := m.FSMSnapshot.Persist(sink)
	if err == nil {
		err = sink.Close()
	}
	switch {
	case err == nil:
		m.machine.covered.Store(m.covers)
		m.machine.written.Add(1)
		return nil
	case errors.Is(err, event.ErrClosed), errors.Is(err, errCancelled):
		return err
	case errors.Is(err, syscall.ENOSPC): // Of the snapshot: the log ends the node for itself.
		return err
	}
	return m.machine.fail.Fail(fmt.Errorf("write snapshot: %w", err))
}
