package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/stats"
)

// Options say where and how a log is kept. Dir is needed; the zero value of everything else works.
type Options struct {
	Dir      string // of chunks and checkpoint files
	IndexDir string // default: Dir/index
	FS       vfs.FS // default: the real file system
	// of a log that is created; an existing one keeps its own, and a different one given here is an
	// error
	ClusterID event.ID

	Index       index.Options // FS, Dir, Logger, OnFatal and Stats are filled in
	StreamCache int           // streams whose facts are kept, default 50,000
	RecentIDs   int           // newest events whose ids are remembered, default 1,048,576
	// bytes that truncate.chk may cut, default 256 MiB, negative: no limit
	MaxTruncate  int64
	SkipVerify   bool  // do not verify complete chunks in the background after start
	VerifyPerSec int64 // bytes a second that the verification reads, default 64 MiB

	// how often all complete chunks are compared with their checksums; 0: only at start
	CheckEvery time.Duration
	// bytes a second that this reads at most, a fourth of that while the log is used; default 32
	// MiB
	CheckPerSec int64

	Logger hclog.Logger
	// told once when a write or sync failed: the process must stop; must not call Close, which may
	// wait for it
	OnFatal func(error)
	// told how long it took to make the log durable; must not block
	OnSync func(took time.Duration)
	// gets each complete chunk that is not what was written, and when the newest event ids cannot
	// be read
	OnDamage func(error)
	Now      func() time.Time // the clock that $maxAge is judged by, default time.Now

	// Redacted returns the events from a position up to another of which this node blanked the
	// data, by rising position: they are blanked in chunk files that come from other nodes. nil:
	// none.
	Redacted func(from, to int64) []Redaction

	// BeforeCut is called when truncate.chk is about to cut the log at a position: the folder was
	// restored. The caller must put away everything that knows of the longer log. An error stops
	// the start before anything was changed.
	BeforeCut func(at int64) error

	// Progress gets during Open what is being done, in a few words, and how far
	// it is: bytes done of all. It is called when something begins and then at most four
	// times a second, must not block, and is not called once Open has returned.
	Progress func(doing string, done, total int64)

	// where the metrics are registered, those of the index too; default: nowhere
	Stats *stats.Registry
}

// EnsureDefaults fills in what was left zero.
func (o *Options) EnsureDefaults() {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.IndexDir == "" {
		o.IndexDir = filepath.Join(o.Dir, "index")
	}
	if o.StreamCache <= 0 {
		o.StreamCache = 50_000
	}
	if o.RecentIDs <= 0 {
		o.RecentIDs = recentIDsDefault
	}
	if o.MaxTruncate == 0 {
		o.MaxTruncate = 256 << 20
	}
	if o.VerifyPerSec <= 0 {
		o.VerifyPerSec = 64 << 20
	}
	if o.CheckPerSec <= 0 {
		o.CheckPerSec = checkPerSec
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.OnFatal == nil {
		o.OnFatal = func(error) {}
	}
	if o.OnSync == nil {
		o.OnSync = func(time.Duration) {}
	}
	if o.OnDamage == nil {
		o.OnDamage = func(error) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	if o.Dir == "" {
		return errors.New("no folder for the log")
	}
	if filepath.Clean(o.Dir) == filepath.Clean(o.IndexDir) {
		return errors.New("the index must not lie in the folder of the log itself")
	}
	return nil
}

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
	l.Reads = &Reader{state: s, ids: newRecentIDs(o.RecentIDs), streams: newStreamCache(o.StreamCache)}
	l.syncer = &syncer{state: s, syncWanted: make(chan struct{}, 1)}
	l.Chunks = &Chunks{state: s, syncer: l.syncer, reads: l.Reads}
	l.Names = newNames(s, l.Reads, l.Chunks, l.syncer)
	numbers := &order{state: s, reads: l.Reads, wake: make(chan struct{}, 1), seen: map[uint64]int64{}}
	l.appender = &appender{state: s, syncer: l.syncer, reads: l.Reads, names: l.Names, order: numbers}
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
	l.mapped = l.files[0].Mapped != nil // One file system holds all of them.
	l.watch(o.Stats)
	l.owned.Go(func() { l.syncer.runSyncer(ctx) })
	l.owned.Go(func() { l.Reads.loadRecentIDs(ctx) })
	l.owned.Go(func() { l.Health.runChecks(ctx) })
	l.owned.Go(func() { l.Health.mendIndex(ctx) })
	l.owned.Go(func() { l.Names.run(ctx) })
	l.owned.Go(func() { l.appender.order.run(ctx) })
	return l, nil
}

// Directory is the id of the folder, made when the folder was.
func (l *Log) Directory() event.ID { return l.directory }

// Stats is where the log registers its metrics, for what stands on it; nil: nowhere.
func (l *Log) Stats() *stats.Registry { return l.opts.Stats }

// Index gives access to the index for merging and statistics.
func (l *Log) Index() *index.Index { return l.index }

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
