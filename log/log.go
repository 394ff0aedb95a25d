package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/postings"
	"github.com/annalsdb/annals/stats"
)

// Log is the event log of one node with its index. Its parts do the work: the appender, the syncer,
// and the exported parts below.
//
// One goroutine appends (Append, Commit); any number read. Lock order: Chunks.jobs, state.bringing,
// Chunks.switchMu, syncer.syncMu, then state.setMu or dirtyFiles.mu. Only the first four are held
// during I/O: they serialize it, or keep it from running after Close.
type Log struct {
	*state
	Reads    *Reader   // of streams, events and the whole log
	Facts    *Facts    // for decisions
	Chunks   *Chunks   // the files, and what is in them, hidden or not
	Transfer *Transfer // of data between nodes
	Health   *Health   // what of the files is damaged
	Names    *Names    // of streams, in order

	syncer    *syncer
	appender  *appender
	progress  *progress
	lock      io.Closer
	directory event.ID
	mapped    bool // chunk files are mapped into memory; set by Open

	cancel   context.CancelFunc
	owned    sync.WaitGroup // background goroutines
	closed   sync.Once
	closeErr error
}

// newLog returns a log of which nothing is open yet.
func newLog(ctx context.Context, o Options) *Log {
	s := &state{opts: o, logger: o.Logger, lifetime: ctx, metrics: newMetrics(o.Stats), damages: newDamages()}
	l := &Log{state: s, progress: newProgress(o.Progress)}
	lk := lookup{s}
	l.Reads = &Reader{lookup: lk, streamFacts: streamFacts{lookup: lk, streams: newStreamCache(o.StreamCache)},
		eventIDs: eventIDs{lookup: lk, ids: newRecentIDs(o.RecentIDs)}, withdrawn: withdrawn{lookup: lk}, choosing: newChoosing()}
	l.syncer = &syncer{state: s, syncWanted: make(chan struct{}, 1)}
	l.Chunks = &Chunks{state: s, syncer: l.syncer, reads: l.Reads}
	l.Names = newNames(s, l.Reads, l.Chunks, l.syncer)
	numbers := &order{state: s, reads: l.Reads, wake: make(chan struct{}, 1), seen: map[uint64]int64{}}
	l.appender = &appender{state: s, syncer: l.syncer, reads: l.Reads, names: l.Names, order: numbers, poster: *s.newPoster()}
	l.Health = &Health{state: s, reads: l.Reads, chunks: l.Chunks, order: numbers}
	l.Facts = &Facts{Reader: l.Reads, health: l.Health}
	l.Transfer = &Transfer{state: s, syncer: l.syncer, appender: l.appender, reads: l.Reads, chunks: l.Chunks, health: l.Health}
	return l
}

// Open opens the log in a folder, making it if it is not there: it cuts a torn
// tail, applies truncate.chk, and brings the index up to the log's end.
func Open(o Options) (_ *Log, err error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := newLog(ctx, o)
	l.cancel = cancel
	defer func() {
		l.progress.end()
		if err != nil {
			err = errors.Join(fmt.Errorf("open log %s: %w", o.Dir, err), l.closeFiles())
		}
	}()
	if err := l.openDirectory(); err != nil {
		return nil, err
	}
	if err := (&recovery{l: l}).recover(); err != nil {
		return nil, err
	}
	if err := l.openIndex(); err != nil {
		return nil, err
	}
	if err := l.openPostings(); err != nil {
		return nil, err
	}
	if _, err := l.Reads.withdrawn.all(); err != nil {
		// Queries by tags are refused until it can be read.
		l.logger.Error("the record of redactions cannot be read", logkey.Error, err)
	}
	l.mapped = l.files[0].Mapped != nil // One file system holds all of them.
	l.watch(o.Stats)
	l.owned.Go(func() { l.syncer.runSyncer(ctx) })
	l.owned.Go(func() { l.Reads.loadRecentIDs(ctx) })
	l.owned.Go(func() { l.Health.runChecks(ctx) })
	l.owned.Go(func() { l.Health.mendIndex(ctx) })
	l.owned.Go(func() { l.postings.Run(ctx) })
	l.owned.Go(func() { l.Names.run(ctx) })
	l.owned.Go(func() { l.appender.order.run(ctx) })
	return l, nil
}

// openDirectory makes or checks the folder, takes its lock, and opens the checkpoint files.
func (l *Log) openDirectory() error {
	fsys, dir := l.opts.FS, l.opts.Dir
	if err := vfs.MkdirAllSync(fsys, dir); err != nil {
		return err
	}
	lock, err := fsys.Lock(filepath.Join(dir, datadir.LockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("another process uses the folder: %w", err)
	}
	if err != nil {
		return err
	}
	l.lock = lock
	if l.directory, err = datadir.ID(fsys, dir); err != nil {
		return err
	}
	l.syncer.chk, err = datadir.OpenCheckpoints(fsys, dir)
	return err
}

// Directory is the id of the folder, made when the folder was.
func (l *Log) Directory() event.ID { return l.directory }

// Stats is where the log registers its metrics, for what stands on it; nil: nowhere.
func (l *Log) Stats() *stats.Registry { return l.opts.Stats }

// Index gives access to the index for merging and statistics.
func (l *Log) Index() *index.Index { return l.index }

// Postings gives access to the index of categories, types and tags.
func (l *Log) Postings() *postings.Index { return l.postings }

// Sync makes everything committed durable and then moves the checkpoint files up to it.
// An error is final, as with Append: a sync that failed is never tried again.
func (l *Log) Sync() error { return l.syncer.Sync() }

// Close syncs what is committed, writes the index if that spares the next start much work, and
// closes everything. It is idempotent, and returns the error that stopped the log if there was one.
// Appends must have stopped. Running reads finish, later ones get event.ErrClosed.
func (l *Log) Close() error {
	l.closed.Do(func() {
		l.Reads.notify.close()
		l.cancel()
		l.owned.Wait()
		// Running rewrites end at their next look at the context; later ones find the log closed.
		l.Chunks.jobs.Lock()
		defer l.Chunks.jobs.Unlock()
		err := l.syncer.Sync() // The error that stopped the log, if one did.
		if err == nil && l.Tail().End-l.index.Checkpoint() > flushAtClose {
			if e := l.index.Flush(); e != nil {
				err = fmt.Errorf("flush index: %w", e)
			}
		}
		if err == nil {
			err = l.postings.Flush(flushAtClose)
		}
		l.closeErr = errors.Join(err, l.closeFiles())
	})
	return l.closeErr
}

// flushAtClose is how many bytes of log may be left to the next start to index.
const flushAtClose = 8 << 20

func (l *Log) closeFiles() error {
	l.cancel()
	var err error
	if l.index != nil {
		err = errors.Join(err, l.index.Close()) // Waits for a flush, which may wait for syncMu.
	}
	if l.postings != nil {
		err = errors.Join(err, l.postings.Close())
	}
	l.syncer.syncMu.Lock()
	defer l.syncer.syncMu.Unlock()
	l.gone.Store(true)
	l.syncer.dirty.mu.Lock()
	for _, f := range l.syncer.dirty.complete {
		err = errors.Join(err, f.Close())
	}
	if l.syncer.dirty.active != nil {
		err = errors.Join(err, l.syncer.dirty.active.Close())
	}
	l.syncer.dirty.complete, l.syncer.dirty.active = nil, nil
	l.syncer.dirty.mu.Unlock()
	if p := l.pub.Load(); p != nil {
		p.set.release()
	}
	err = errors.Join(err, chunkfile.ReleaseAll(l.files))
	if l.syncer.chk != nil {
		err = errors.Join(err, l.syncer.chk.Close())
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// What Open does, for Options.Progress.
const (
	doingRecover = "reading the log"
	doingIndex   = "indexing the log"
	doingRebuild = "rebuilding the index"
)

// progressPace is the least time between two reports of one activity.
const progressPace = 250 * time.Millisecond

// progress passes on how far Open is, from whatever goroutine, now and then.
type progress struct {
	told  func(doing string, done, total int64) // nil: no reports
	begun time.Time
	next  atomic.Int64 // nanoseconds since begun, before which nothing is reported
	done  atomic.Bool  // Open has returned
}

func newProgress(told func(doing string, done, total int64)) *progress {
	return &progress{told: told, begun: time.Now()}
}

// at reports the progress of a step, unless it did a moment ago.
func (p *progress) at(doing string, done, total int64) {
	if p.told == nil || p.done.Load() {
		return
	}
	now, next := int64(time.Since(p.begun)), p.next.Load()
	if now < next || !p.next.CompareAndSwap(next, now+int64(progressPace)) {
		return
	}
	p.told(doing, min(done, total), total)
}

// begin reports that something begins, at once. Only the goroutine of Open calls it.
func (p *progress) begin(doing string, total int64) {
	p.next.Store(0)
	p.at(doing, 0, total)
}

// end keeps background work from reporting.
func (p *progress) end() { p.done.Store(true) }
