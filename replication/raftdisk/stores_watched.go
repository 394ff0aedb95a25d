package raftdisk

import (
	"path/filepath"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/hang"
)

// Everything on a disk that raft's own goroutine or the pipeline's waits for is
// watched: a leader whose disk hangs goes on sending heartbeats from other goroutines,
// and looks at its lease on the one that hangs.

// watchedLogs is the Raft log as raft sees it. Waiting for the lock of the log counts: who holds it may hang.
type watchedLogs struct {
	*RaftLog
	watch       *hang.Watch
	store, read hang.Op
}

func WatchLogs(s *RaftLog, w *hang.Watch) *watchedLogs {
	return &watchedLogs{
		RaftLog: s, watch: w,
		store: hang.Op{Doing: "store entries", File: s.path}, read: hang.Op{Doing: "read entries", File: s.path},
	}
}

func (w *watchedLogs) StoreLog(log *raft.Log) error { return w.StoreLogs([]*raft.Log{log}) }

func (w *watchedLogs) StoreLogs(logs []*raft.Log) error {
	defer w.watch.End(w.watch.Begin(&w.store))
	return w.RaftLog.StoreLogs(logs)
}

func (w *watchedLogs) GetLog(index uint64, log *raft.Log) error {
	defer w.watch.End(w.watch.Begin(&w.read))
	return w.RaftLog.GetLog(index, log)
}

// watchedStable is the store of votes and the term as raft sees it.
type watchedStable struct {
	*StableStore
	watch *hang.Watch
	store hang.Op
}

func WatchStable(s *StableStore, w *hang.Watch) *watchedStable {
	return &watchedStable{StableStore: s, watch: w, store: hang.Op{Doing: "store vote or term", File: s.path}}
}

func (w *watchedStable) Set(key, value []byte) error {
	defer w.watch.End(w.watch.Begin(&w.store))
	return w.StableStore.Set(key, value)
}

func (w *watchedStable) SetUint64(key []byte, value uint64) error {
	defer w.watch.End(w.watch.Begin(&w.store))
	return w.StableStore.SetUint64(key, value)
}

// manifestOp is how the writing of a manifest is called in the watch.
func manifestOp(dir, id string) *hang.Op {
	return &hang.Op{Doing: "write manifest", File: filepath.Join(dir, id+manifestSuffix)}
}
