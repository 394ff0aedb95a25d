package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
)

// Machine is the Raft state machine of a node: it appends entries to the event
// log behind the fence. It decides nothing else: no clock, no option, no index
// and no stored record has a say in what it does.
type Machine struct {
	log    *eventlog.Log
	logger hclog.Logger
	fatal  func(error)
	failed error // the first fatal error; only Raft's goroutine looks at it
}

var _ raft.BatchingFSM = (*Machine)(nil)

// NewMachine returns the state machine over a log. fatal is told of an error
// after which the process must stop; the entry it concerns is never acknowledged.
func NewMachine(log *eventlog.Log, logger hclog.Logger, fatal func(error)) *Machine {
	return &Machine{log: log, logger: logger, fatal: fatal}
}

// Apply applies one entry. It returns nil, event.ErrEntryRefused, or a fatal error.
func (m *Machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries in order, with one write and one wake-up for all
// of them. For each it returns what Apply would.
func (m *Machine) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	failed := m.failed
	for i, l := range logs {
		// The batch also holds configurations, which are none of the log's business.
		if l.Type != raft.LogCommand {
			continue
		}
		if failed == nil {
			err := m.apply(l)
			if errors.Is(err, event.ErrEntryRefused) {
				answers[i] = err
				continue
			}
			failed = err
		}
	}
	if failed == nil {
		failed = m.log.Commit()
	}
	if failed == nil {
		return answers
	}
	m.stop(failed)
	for i := range answers {
		answers[i] = failed
	}
	return answers
}

// apply puts an entry into the log's buffer if the fence lets it through.
func (m *Machine) apply(l *raft.Log) error {
	tail := m.log.Appended()
	if l.Index <= tail.Index {
		if l.Index == tail.Index && l.Term != tail.Term {
			return fmt.Errorf("the log holds entry %d of term %d, Raft applies it with term %d: another history", l.Index, tail.Term, l.Term)
		}
		return nil // Replayed after a restart.
	}
	e, err := parseEntry(l.Data)
	if err != nil {
		return fmt.Errorf("entry %d: %w", l.Index, err)
	}
	if e.end != tail.End || e.chain != tail.Chain {
		// A refusal must never hide a hole: whoever decided had applied more than we have.
		if tail.End < e.applied {
			return fmt.Errorf("entry %d was decided on a log of %d bytes, but this node's ends at %d: it has lost data", l.Index, e.applied, tail.End)
		}
		m.logger.Warn("entry refused: decided on another end of the log", "index", l.Index, "expected", e.end, "end", tail.End)
		return event.ErrEntryRefused
	}
	return m.log.Append(eventlog.Frame{First: e.first, Records: e.records, Completes: e.completes, Index: l.Index, Term: l.Term})
}

func (m *Machine) stop(err error) {
	if m.failed == nil {
		m.failed = err
		m.fatal(err)
	}
}

// Snapshot captures what is applied. Raft calls it between entries.
func (m *Machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.failed != nil {
		return nil, fmt.Errorf("snapshot: %w", m.failed)
	}
	manifest, err := m.log.Manifest()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return &snapshot{log: m.log, manifest: manifest}, nil
}

// Restore accepts a snapshot whose data the node already has. It never waits
// for data and never cuts the log: data that are missing have to be fetched
// first, by whoever installs the snapshot.
func (m *Machine) Restore(r io.ReadCloser) (err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	if m.failed != nil {
		return fmt.Errorf("restore: %w", m.failed)
	}
	var manifest event.Manifest
	if err := json.NewDecoder(r).Decode(&manifest); err != nil {
		return fmt.Errorf("restore: read manifest: %w", err)
	}
	end := manifest.Tail.End
	chain, ok := m.log.ChainAt(end)
	switch {
	case ok && chain == manifest.Tail.Chain:
		return m.log.Sync()
	case m.log.Tail().End >= end:
		return fmt.Errorf("restore: the log holds another history than the snapshot at position %d", end)
	}
	return fmt.Errorf("restore: the log ends at %d, the snapshot needs it up to %d", m.log.Tail().End, end)
}

// snapshot is a manifest: the log itself is the data.
type snapshot struct {
	log      *eventlog.Log
	manifest event.Manifest
}

// Persist makes the log durable up to the manifest, and only then writes the manifest.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	err := s.log.Sync()
	if err == nil {
		err = json.NewEncoder(sink).Encode(s.manifest)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("persist snapshot: %w", err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("persist snapshot: %w", err)
	}
	return nil
}

// Release does nothing: a manifest holds no resources.
func (s *snapshot) Release() {}
