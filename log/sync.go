package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
)

// syncEvery is how many bytes may be appended before the background syncer
// makes them durable. It spreads the work that a snapshot would find otherwise.
const syncEvery = 32 << 20

// dirtyFiles are the writer's files that hold unsynced data.
type dirtyFiles struct {
	mu       sync.Mutex
	active   vfs.File   // stays open; nil when no chunk is active
	complete []vfs.File // complete chunks: synced once more, then closed
	dir      bool       // files were created since the folder was synced
}

// Sync makes everything committed durable and then moves the checkpoint files up to it.
// An error is final, as with Append: a sync that failed is never tried again.
func (l *Log) Sync() error {
	if err := l.usable(); err != nil {
		return err
	}
	l.syncMu.Lock()
	err := l.usable() // Changed while waiting for the lock.
	fails := false
	if err == nil {
		if err = l.sync(); err != nil {
			// Before the lock is free: the next sync would succeed, as the kernel calls what it failed
			// to write clean, and move the checkpoints.
			err = fmt.Errorf("sync: %w", err)
			fails = l.failed.CompareAndSwap(nil, &err)
		}
	}
	l.syncMu.Unlock()
	if fails {
		l.opts.OnFatal(err)
	}
	return err
}

// sync runs under syncMu.
func (l *Log) sync() error {
	begun := time.Now()
	// Before the files are looked at: whatever this tail covers is in them.
	upTo := l.pub.Load()
	l.dirty.mu.Lock()
	active, complete, dir := l.dirty.active, l.dirty.complete, l.dirty.dir
	l.dirty.complete, l.dirty.dir = nil, false
	l.dirty.mu.Unlock()

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
	// The appender may complete the active chunk meanwhile; its file then stays open until the next sync.
	if active != nil {
		if err := active.Sync(); err != nil {
			return err
		}
	}
	if dir {
		if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
			return err
		}
	}
	if err := l.moveCheckpoints(upTo); err != nil {
		return err
	}
	l.syncedEnd.Store(upTo.tail.End)
	took := time.Since(begun)
	l.metrics.syncs.Observe(took.Seconds())
	l.opts.OnSync(took)
	return nil
}

// moveCheckpoints says in the checkpoint files what is durable. The writer's
// comes first: the epoch's never lies beyond it, whenever the machine stops. The
// chaser's was written with the commit; a copy of the volume is to find it, too.
func (l *Log) moveCheckpoints(p *published) error {
	if err := l.chk.Writer.Set(p.tail.End); err != nil {
		return err
	}
	if err := l.chk.Chaser.Sync(); err != nil {
		return err
	}
	if err := l.chk.Epoch.Set(p.epoch); err != nil {
		return err
	}
	if p.tail.Index == 0 {
		return nil
	}
	return l.chk.Proposal.Set(int64(p.tail.Term))
}

func (l *Log) wakeSyncer() {
	select {
	case l.syncWanted <- struct{}{}:
	default:
	}
}

// runSyncer syncs in the background whenever enough was appended.
func (l *Log) runSyncer(ctx context.Context) {
	for {
		select {
		case <-l.syncWanted:
			if l.Sync() != nil {
				return // The owner was told.
			}
		case <-ctx.Done():
			return
		}
	}
}
