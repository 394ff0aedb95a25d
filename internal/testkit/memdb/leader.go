package memdb

import (
	"cmp"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
)

// leader decides writes and applies them, one after the other.
type leader struct {
	mu      sync.Mutex // guards what follows, and what of the log is not to change meanwhile
	decider *fsm.Decider
	machine *fsm.Machine
	index   uint64 // of the last entry
	fault   Fault
}

// faulty does a write, unless the fault keeps it from being done. It counts writes.
func (l *leader) faulty(begun *atomic.Int64, w *event.Write) (event.Written, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := begun.Add(1) - 1
	var before, after error
	if l.fault != nil {
		before, after = l.fault(n, w)
	}
	if before != nil {
		return event.Written{}, before
	}
	written, err := l.write(w)
	return written, cmp.Or(err, after)
}

// write needs mu.
func (l *leader) write(w *event.Write) (event.Written, error) {
	d := l.decider.Decide(w)
	if d.Err != nil {
		return event.Written{}, d.Err
	}
	if entry := l.decider.Seal(); entry != nil {
		l.index++
		if err, _ := l.machine.Apply(&raft.Log{Index: l.index, Term: 1, Type: raft.LogCommand, Data: entry}).(error); err != nil {
			return event.Written{}, err
		}
		l.decider.Applied()
	}
	return d.Written, nil
}
