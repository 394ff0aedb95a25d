package replication

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// TakenOver says what a node that begins alone had, and has now.
type TakenOver struct {
	Before, After event.Tail // of the event log
	// of the Raft log that were applied: no one can tell which of them a majority had
	Entries     int
	Refused     int      // of them, as every node would have
	Index, Term uint64   // of the last entry in the Raft log, 0 when there is none
	Voters      []string // as the configuration named them: the others may have had more
	Aside       string   // where the consensus state lies from now on; empty: there was none
}

// applyAtOnce is how many entries are applied with one write.
const applyAtOnce = 64

// TakeOver makes a node the only voter of its cluster when a majority of the voters is lost for
// good. The entries that its Raft log has beyond the event log are applied first, committed or not:
// some may be writes that a majority had acknowledged. Then the consensus state is set aside, and a
// new one is made as in Recover. It may be repeated after a crash: without consensus state only the
// rest is done. The node must not run, and no other member may do the same.
func TakeOver(o ClusterOptions) (t TakenOver, err error) {
	o.EnsureDefaults()
	m, err := o.OpenLog(event.ID{})
	if err != nil {
		return t, err
	}
	made, err := raftdisk.SettleCreation(o.Replica.Files, o.Replica.Dir)
	if err != nil {
		return t, err
	}
	t.Before = m.Log.Tail()
	if made {
		if err := o.applyRest(&m, &t); err != nil {
			return t, fmt.Errorf("take over what the Raft log has: %w (nothing was moved; to begin with the chunks alone, move %s away and run annals cluster recover)",
				err, filepath.Join(o.Replica.Dir, raftdisk.Dir))
		}
		if t.Aside, err = raftdisk.SetAside(o.Replica.Files, o.Replica.Dir, raftdisk.AsideTakenOver); err != nil {
			return t, err
		}
	}
	t.After = m.Log.Tail()
	return t, o.beginAlone(&m)
}

// applyRest applies the entries that the Raft log has beyond the event log, and makes them durable
// there.
func (o *ClusterOptions) applyRest(m *Dependencies, t *TakenOver) (err error) {
	r, err := prepare(o.replicaOver(m))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.abandon()) }()
	for _, s := range r.begin.Servers {
		if s.Suffrage == raft.Voter {
			t.Voters = append(t.Voters, string(s.Address))
		}
	}
	first, err := r.state.Logs.FirstIndex()
	if err != nil {
		return err
	}
	last, err := r.state.Logs.LastIndex()
	if err != nil {
		return err
	}
	var batch []*raft.Log
	for index := first; first > 0 && index <= last; index++ {
		entry := new(raft.Log)
		if err := r.state.Logs.GetLog(index, entry); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		t.Index, t.Term = entry.Index, entry.Term
		if entry.Index > t.Before.Index {
			batch = append(batch, entry)
		}
		if len(batch) < applyAtOnce && index < last {
			continue
		}
		for i, answer := range m.FSM.ApplyBatch(batch) {
			switch answer, _ := answer.(error); {
			case answer != nil && !errors.Is(answer, event.ErrEntryRefused):
				return fmt.Errorf("apply entry %d: %w", batch[i].Index, answer)
			case answer != nil:
				t.Refused++
			case batch[i].Type == raft.LogCommand:
				t.Entries++
			}
		}
		batch = batch[:0]
	}
	// Durable before the Raft log is out of the way.
	snapshot, err := m.FSM.Snapshot()
	if err != nil {
		return err
	}
	defer snapshot.Release()
	return snapshot.Persist(nowhere{io.Discard})
}

// nowhere takes a snapshot that is not needed: persisting it makes the event log durable.
type nowhere struct{ io.Writer }

func (nowhere) ID() string    { return "" }
func (nowhere) Close() error  { return nil }
func (nowhere) Cancel() error { return nil }
