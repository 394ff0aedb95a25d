package fsm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/stats"
)

// Machine is the Raft state machine of a node: it appends entries that pass the fence to the event
// log. It decides nothing else: its work depends on no clock, option, index or stored record.
type Machine struct {
	log    *eventlog.Log
	logger hclog.Logger
	fatal  func(error)
	failed atomic.Pointer[error] // the first fatal error
	queue  *stats.Queue
	work   *stats.Work // of that queue

	// mu lets one goroutine at a time be the one that appends: Raft's, or the one
	// that fetches data from other nodes. It is held during I/O, that being its purpose.
	mu sync.Mutex
}

var _ raft.BatchingFSM = (*Machine)(nil)

// NewMachine returns the state machine over a log. fatal gets an error
// after which the process must stop; the entry it concerns is never acknowledged.
//
// Its metrics are registered where the log's are.
func NewMachine(log *eventlog.Log, logger hclog.Logger, fatal func(error)) *Machine {
	queue := log.Stats().Queue("Storage Chaser", "", 1)
	return &Machine{log: log, logger: logger, fatal: fatal, queue: queue, work: queue.Work("ApplyEntries")}
}

// Apply applies one entry. It returns nil, event.ErrEntryRefused, or a fatal error.
func (m *Machine) Apply(l *raft.Log) any { return m.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies entries in order, with one write and one wake-up for all
// of them. For each it returns what Apply would.
func (m *Machine) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	m.queue.Enter(len(logs))
	// How long Raft held the entries is not known here.
	defer m.work.End(m.work.Begin(0), len(logs))
	failed := m.turn(func() error {
		err := m.applyBatch(logs, answers)
		if err != nil {
			m.end(err)
		}
		return err
	})
	if failed != nil {
		for i := range answers {
			answers[i] = failed
		}
	}
	return answers
}

func (m *Machine) applyBatch(logs []*raft.Log, answers []any) error {
	for i, l := range logs {
		// The batch also holds configurations, which are none of the log's business.
		if l.Type != raft.LogCommand {
			continue
		}
		err := m.apply(l)
		if errors.Is(err, event.ErrEntryRefused) {
			answers[i] = err
		} else if err != nil {
			return err
		}
	}
	return m.log.Commit()
}

// apply puts an entry into the log's buffer if the fence lets it through.
func (m *Machine) apply(l *raft.Log) error {
	tail := m.log.Appended()
	if l.Index <= tail.Index {
		if l.Index == tail.Index && l.Term != tail.Term {
			return fmt.Errorf("the log holds entry %d of term %d, Raft applies it with term %d: another history", l.Index, tail.Term, l.Term)
		}
		return nil // Replayed after a restart, or fetched from another node before Raft came to it.
	}
	e, err := parseEntry(l.Data)
	if err != nil {
		return fmt.Errorf("entry %d: %w", l.Index, err)
	}
	if e.end != tail.End || e.chain != tail.Chain {
		// A refusal must never hide a hole: the one that decided had applied more than we have.
		if tail.End < e.applied {
			return fmt.Errorf("entry %d was decided on a log of %d bytes, but this node's ends at %d: it has lost data", l.Index, e.applied, tail.End)
		}
		m.logger.Warn("entry refused: decided on another end of the log", logkey.Index, l.Index, logkey.Term, l.Term, "expected", e.end, logkey.End, tail.End,
			"applied index", tail.Index, "applied term", tail.Term)
		return event.ErrEntryRefused
	}
	return m.log.Append(eventlog.Frame{First: e.first, Records: e.records, Completes: e.completes, Index: l.Index, Term: l.Term})
}

// AppendFrames takes frames from another node's log, as Log.AppendFrames does.
// All that another node has was committed: Raft may come to the same entries later
// and finds them applied.
func (m *Machine) AppendFrames(first int64, raw []byte) (int, error) {
	n := 0
	err := m.pull(func() (err error) {
		n, err = m.log.AppendFrames(first, raw)
		return err
	})
	return n, err
}

// InstallChunk makes a chunk file fetched from another node a part of the log,
// as PreparedChunk.Install does. Entries are applied while the file is verified, and wait
// while it takes its place and is indexed.
func (m *Machine) InstallChunk(tmp string) error {
	p, err := m.log.Transfer.PrepareChunk(tmp)
	if err != nil {
		return fmt.Errorf("install chunk: %w", err)
	}
	return errors.Join(m.pull(p.Install), p.Close())
}

// HealChunk puts files fetched from another node in the place of a damaged chunk, as Log.Heal does.
// Entries are applied meanwhile, but for the moment in which records that come back are indexed.
func (m *Machine) HealChunk(d eventlog.Damage, fetched []string) error {
	return m.log.Transfer.Heal(d, fetched, m.pull)
}

// FinishMending puts a chunk file that was put together again in the place of the damaged one, as
// HealChunk does.
func (m *Machine) FinishMending(one *eventlog.Mending) error { return one.Finish(m.pull) }

// pull lets data into the log. Data that cannot be taken do not stop the machine; an error that
// ended the log does.
func (m *Machine) pull(into func() error) error {
	return m.turn(func() error {
		err := into()
		if failed := m.log.Failed(); err != nil && failed != nil {
			m.end(failed)
		}
		return err
	})
}

// turn lets its caller append, unless the machine has ended. If it ends now, fatal is called when
// the lock is free again, and before any caller has an answer.
func (m *Machine) turn(do func() error) error {
	m.mu.Lock()
	err := m.stopped()
	before := err
	if err == nil {
		err = do()
	}
	failed := m.stopped()
	m.mu.Unlock()
	if before == nil && failed != nil {
		m.fatal(failed)
	}
	return err
}

// end makes an error final. Only the goroutine whose turn it is may call it.
func (m *Machine) end(err error) { m.failed.Store(&err) }

// stopped returns the error that ended the machine, nil while all is well.
func (m *Machine) stopped() error {
	if err := m.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Snapshot captures what is applied. Raft calls it between entries.
//
// The log may be ahead of what Raft has applied here, because data were fetched from other nodes:
// the snapshot then describes more than its index says. That does no harm. All of it was committed,
// and a node that restores the snapshot gets the entries after its index and skips those that the
// log holds, as this node does.
func (m *Machine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.stopped(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	content, err := m.log.Snapshot()
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return &snapshot{log: m.log, content: content}, nil
}

// Restore accepts a snapshot whose data the node already has. It never waits for data and never
// cuts the log: the caller that installs the snapshot must fetch missing data
// (event.ErrDataMissing) first. A log that is not the snapshot's is event.ErrOtherHistory. Restore
// runs in parallel with AppendFrames and InstallChunk: while it waits, Raft does nothing else.
func (m *Machine) Restore(r io.ReadCloser) (err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := m.stopped(); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	var content event.Snapshot
	if err := json.NewDecoder(r).Decode(&content); err != nil {
		return fmt.Errorf("restore: read snapshot: %w", err)
	}
	end := content.Tail.End
	tail := m.log.Tail() // Before the chain is looked up: the log may grow meanwhile.
	if tail.End < end {
		return fmt.Errorf("restore: %w: the log ends at %d, the snapshot needs it up to %d", event.ErrDataMissing, tail.End, end)
	}
	chain, ok, err := m.log.ChainAt(end)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if !ok || chain != content.Tail.Chain {
		return fmt.Errorf("restore: %w", &event.OtherHistory{Position: end})
	}
	return m.log.Sync()
}

// snapshot holds no data: the log itself is the data.
type snapshot struct {
	log     *eventlog.Log
	content event.Snapshot
}

// Persist makes the log durable up to the snapshot's end, and only then writes the snapshot.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	err := s.log.Sync()
	if err == nil {
		err = json.NewEncoder(sink).Encode(s.content)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("persist snapshot: %w", err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("persist snapshot: %w", err)
	}
	return nil
}

// Release does nothing: a snapshot holds no resources.
func (s *snapshot) Release() {}
