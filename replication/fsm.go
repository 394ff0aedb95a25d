package replication

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/hashicorp/raft"
)

// stateMachine stands between raft and the state machine it was given. It
// knows whether something was applied since the last manifest, tells the
// snapshot store which manifests are this node's own and which ones were
// restored, and stops the node when one cannot be written.
type stateMachine struct {
	raft.FSM
	batching raft.BatchingFSM // nil if the state machine takes entries one by one
	snaps    *snapshotStore
	fail     *failStop
	metrics  *metrics

	applied atomic.Uint64 // commands applied since the start
	covered atomic.Uint64 // how many of them the newest manifest covers
}

var _ raft.BatchingFSM = (*stateMachine)(nil)

func newStateMachine(fsm raft.FSM, snaps *snapshotStore, fail *failStop, m *metrics) *stateMachine {
	s := &stateMachine{FSM: fsm, snaps: snaps, fail: fail, metrics: m}
	s.batching, _ = fsm.(raft.BatchingFSM)
	return s
}

// dirty reports whether a manifest would cover more than the newest one.
func (s *stateMachine) dirty() bool { return s.applied.Load() != s.covered.Load() }

func (s *stateMachine) Apply(log *raft.Log) any {
	answer := s.FSM.Apply(log)
	s.applied.Add(1)
	return answer
}

// ApplyBatch also gets configuration entries. A batching state machine is
// handed them as raft does; one that is not sees commands only.
func (s *stateMachine) ApplyBatch(logs []*raft.Log) []any {
	commands := uint64(0)
	for _, log := range logs {
		if log.Type == raft.LogCommand {
			commands++
		}
	}
	defer s.applied.Add(commands)
	if s.batching != nil {
		return s.batching.ApplyBatch(logs)
	}
	answers := make([]any, len(logs))
	for i, log := range logs {
		if log.Type == raft.LogCommand {
			answers[i] = s.FSM.Apply(log)
		}
	}
	return answers
}

// Snapshot runs on the goroutine that applies, so that applied is what the snapshot covers.
func (s *stateMachine) Snapshot() (raft.FSMSnapshot, error) {
	snap, err := s.FSM.Snapshot()
	if err != nil {
		return nil, err
	}
	return &machineSnapshot{FSMSnapshot: snap, machine: s, covers: s.applied.Load()}, nil
}

func (s *stateMachine) Restore(source io.ReadCloser) error {
	err := s.FSM.Restore(source)
	return errors.Join(err, s.snaps.restored(err == nil))
}

type machineSnapshot struct {
	raft.FSMSnapshot
	machine *stateMachine
	covers  uint64
}

// Persist makes the event log durable and writes the manifest. raft would only
// log an error; but a sync that failed once must not be tried again.
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
		m.machine.metrics.snapshots.Add(1)
		return nil
	case errors.Is(err, event.ErrClosed), errors.Is(err, errCancelled):
		return err
	}
	return m.machine.fail.fail(fmt.Errorf("write manifest: %w", err))
}
