package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/datadir"
)

const (
	// syncEvery is how many bytes may be appended before the background syncer
	// makes them durable. It spreads the work that a snapshot would find otherwise.
	syncEvery = 32 << 20
	// flushEvery is how many of them it writes at once. The Raft log's syncs wait for what the disk
	// has been given.
	flushEvery = 512 << 10
)

// dirtyFiles are the writer's files that hold unsynced data.
type dirtyFiles struct {
	mu       sync.Mutex
	active   vfs.File   // stays open; nil when no chunk is active
	complete []vfs.File // complete chunks: synced once more, then closed
	dir      bool       // files were created since the folder was synced
}

// syncer makes the log durable. Lock order: syncMu, then dirty.mu.
type syncer struct {
	*state
	chk *datadir.Checkpoints
	// one sync at a time; guards chk but for the chaser's, which is the appender's, and the closing
	// of files
	syncMu     sync.Mutex
	dirty      dirtyFiles
	syncedEnd  atomic.Int64
	flushedEnd atomic.Int64 // where the last flush or sync began
	syncWanted chan struct{}
}

// Sync makes everything committed durable and then moves the checkpoint files up to it.
// An error is final, as with Append: a sync that failed is never tried again.
func (s *syncer) Sync() error { return s.run(s.sync) }

// run runs sync or flush.
func (s *syncer) run(sync func() error) error {
	if err := s.usable(); err != nil {
		return err
	}
	s.syncMu.Lock()
	err := s.usable() // Changed while waiting for the lock.
	fails := false
	if err == nil {
		if err = sync(); err != nil {
			// Before the lock is free: the next sync would succeed, as the kernel calls what it
			// failed to write clean, and move the checkpoints.
			err = fmt.Errorf("sync: %w", err)
			fails = s.failed.CompareAndSwap(nil, &err)
		}
	}
	s.syncMu.Unlock()
	if fails {
		s.opts.OnFatal(err)
	}
	return err
}

// sync runs under syncMu.
func (s *syncer) sync() error {
	begun := time.Now()
	// Before the files are looked at: whatever this tail covers is in them.
	upTo := s.pub.Load()
	s.flushedEnd.Store(upTo.tail.End)
	s.dirty.mu.Lock()
	active, complete, dir := s.dirty.active, s.dirty.complete, s.dirty.dir
	s.dirty.complete, s.dirty.dir = nil, false
	s.dirty.mu.Unlock()

	var err error
	for _, f := range complete {
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return err
	}
	// The appender may complete the active chunk meanwhile; its file then stays open until the next
	// sync.
	if active != nil {
		if err := active.Sync(); err != nil {
			return err
		}
	}
	if dir {
		if err := s.opts.FS.SyncDir(s.opts.Dir); err != nil {
			return err
		}
	}
	if err := s.moveCheckpoints(upTo); err != nil {
		return err
	}
	s.syncedEnd.Store(upTo.tail.End)
	took := time.Since(begun)
	s.metrics.syncs.Observe(took.Seconds())
	s.opts.OnSync(took)
	return nil
}

// flush has the disk write what is in the active chunk. It runs under syncMu. What it leaves
// to sync are complete chunks and the checkpoint files.
func (s *syncer) flush() error {
	s.flushedEnd.Store(s.pub.Load().tail.End)
	s.dirty.mu.Lock()
	active := s.dirty.active
	s.dirty.mu.Unlock()
	if active == nil {
		return nil
	}
	return active.Sync()
}

// moveCheckpoints says in the checkpoint files what is durable. The writer's
// comes first: the epoch's never lies beyond it, whenever the machine stops. The
// chaser's was written with the commit; a copy of the volume is to find it, too.
func (s *syncer) moveCheckpoints(p *published) error {
	if err := s.chk.Writer.Set(p.tail.End); err != nil {
		return err
	}
	if err := s.chk.Chaser.Sync(); err != nil {
		return err
	}
	if err := s.chk.Epoch.Set(p.epoch); err != nil {
		return err
	}
	if p.tail.Index == 0 {
		return nil
	}
	return s.chk.Proposal.Set(int64(p.tail.Term))
}

func (s *syncer) wakeSyncer() { bell.Ring(s.syncWanted) }

// runSyncer flushes and syncs in the background whenever enough was appended.
func (s *syncer) runSyncer(ctx context.Context) {
	for {
		select {
		case <-s.syncWanted:
			run := s.flush
			if s.pub.Load().tail.End-s.syncedEnd.Load() > syncEvery {
				run = s.sync
			}
			if s.run(run) != nil {
				return // OnFatal was called.
			}
		case <-ctx.Done():
			return
		}
	}
}
