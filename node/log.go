package node

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats/latency"
)

// hasLog reports whether there is a log in the data folder.
func (n *Node) hasLog() (bool, error) {
	names, err := n.opts.FS.List(n.config.Db)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), "chunk-") {
			return true, nil
		}
	}
	return false, nil
}

// openDependencies opens the log and gives replication the parts that are built on it.
func (n *Node) openDependencies(cluster event.ID) (replication.Dependencies, error) {
	log, err := n.openLog(cluster)
	if err != nil {
		return replication.Dependencies{}, err
	}
	machine := fsm.NewMachine(log, n.logger.Named("fsm"), n.stopHard)
	decider := fsm.NewDecider(log.Facts, n.opts.Now)
	decider.Watch(n.opts.Stats)
	files := data{log, machine, n.chunksForFetching}
	return sabotaged(replication.Dependencies{
		FSM: machine, Decider: decider, Log: log, Data: files, Healer: files, Look: log.Facts.Look, Unfit: log.Facts.Unfit, ClusterID: log.Cluster(), DirectoryID: log.Directory(),
	}), nil
}

// openLog opens the event log, or makes one of the given cluster, and starts
// what works on it.
func (n *Node) openLog(cluster event.ID) (*eventlog.Log, error) {
	c := n.config
	log, err := eventlog.Open(eventlog.Options{
		Dir: c.Db, IndexDir: c.Index, FS: n.opts.FS, ClusterID: cluster,
		Index: index.Options{
			MaxMemTable: c.MaxMemTableSize, MaxAutoMergeLevel: c.MaxAutoMergeIndexLevel,
			NoBloom: !c.UseIndexBloomFilters, ExistenceFilterMax: filterSize(c.StreamExistenceFilterSize),
		},
		PostingsMemory: c.PostingsMemory, StreamCache: c.StreamInfoCacheCapacity, MaxTruncate: c.MaxTruncation,
		SkipVerify: c.SkipDbVerify, CheckEvery: time.Duration(c.ChunkCheckDays) * 24 * time.Hour, Now: n.opts.Now, Logger: n.logger.Named("log"), Stats: n.opts.Stats,
		OnFatal:  n.stopHard,
		OnSync:   func(took time.Duration) { n.store.latencies.Record(latency.ChaserFlush, took) },
		OnDamage: func(error) { n.cluster.Heal() },
		BeforeCut: func(at int64) error {
			return errors.Join(raftdisk.Restored(n.files, c.Db, n.logger.Named("cluster")), n.redact.ledger.Cut(at))
		},
		Redacted: n.redact.ledger.Between,
		Progress: n.startup.note,
	})
	if event.IsCorruption(err) || errors.Is(err, event.ErrDataMissing) {
		return nil, fmt.Errorf("%w (annals verify --db %s tells more, and with --repair-from and the address of another node it fetches complete chunks from there)", err, c.Db)
	}
	if err != nil {
		return nil, err
	}
	n.store.log.Store(log)
	// Before a client can read data that is to be blanked.
	if err := n.redact.service.Resume(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if !c.MemDb {
		n.owned.Go(func() { n.keepCheckpoints(n.running, log) })
	}
	return log, nil
}

// filterSize turns the option's 0 for "none" into the index's way of saying so.
func filterSize(option int64) int64 {
	if option == 0 {
		return -1
	}
	return option
}
