package replication

import (
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/hang"
)

// Everything on a disk that raft's own goroutine or the pipeline's waits for is
// watched: a leader whose disk hangs goes on sending heartbeats from other goroutines,
// and looks at its lease on the one that hangs.

// watchedLogs is the Raft log as raft sees it. Waiting for the lock of the log counts: who holds it may hang.
type watchedLogs struct {
	*logStore
	watch       *hang.Watch
	store, read hang.Op
}

func watchLogs(s *logStore, w *hang.Watch) *watchedLogs {
	return &watchedLogs{
		logStore: s, watch: w,
		store: hang.Op{Doing: "store entries", File: s.path}, read: hang.Op{Doing: "read entries", File: s.path},
	}
}

func (w *watchedLogs) StoreLog(log *raft.Log) error { return w.StoreLogs([]*raft.Log{log}) }

func (w *watchedLogs) StoreLogs(logs []*raft.Log) error {
	defer w.watch.End(w.watch.Begin(&w.store))
	return w.logStore.StoreLogs(logs)
}

func (w *watchedLogs) GetLog(index uint64, log *raft.Log) error {
	defer w.watch.End(w.watch.Begin(&w.read))
	return w.logStore.GetLog(index, log)
}

// watchedStable is the store of votes and the term as raft sees it.
type watchedStable struct {
	*stableStore
	watch *hang.Watch
	store hang.Op
}

func watchStable(s *stableStore, w *hang.Watch) *watchedStable {
	return &watchedStable{stableStore: s, watch: w, store: hang.Op{Doing: "store vote or term", File: s.path}}
}

func (w *watchedStable) Set(key, value []byte) error {
	defer w.watch.End(w.watch.Begin(&w.store))
	return w.stableStore.Set(key, value)
}

func (w *watchedStable) SetUint64(key []byte, value uint64) error {
	defer w.watch.End(w.watch.Begin(&w.store))
	return w.stableStore.SetUint64(key, value)
}

// watchedDecider is the decider, which reads the event log and its index.
type watchedDecider struct {
	Decider
	watch *hang.Watch
	read  hang.Op
}

func watchDecider(d Decider, dir string, w *hang.Watch) *watchedDecider {
	return &watchedDecider{Decider: d, watch: w, read: hang.Op{Doing: "read what a write depends on", File: dir}}
}

func (w *watchedDecider) Reset() error {
	defer w.watch.End(w.watch.Begin(&w.read))
	return w.Decider.Reset()
}

func (w *watchedDecider) Decide(write *event.Write) event.Decision {
	defer w.watch.End(w.watch.Begin(&w.read))
	return w.Decider.Decide(write)
}

// manifestOp is how the writing of a manifest is called in the watch.
func manifestOp(dir, id string) *hang.Op {
	return &hang.Op{Doing: "write manifest", File: filepath.Join(dir, id+manifestSuffix)}
}
