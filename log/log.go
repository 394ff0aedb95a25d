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

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/stats"
)

// Options say where and how a log is kept. Dir is needed; the zero value of everything else works.
type Options struct {
	Dir       string   // of chunks and checkpoint files
	IndexDir  string   // default: Dir/index
	FS        vfs.FS   // default: the real file system
	ClusterID event.ID // of a log that is created; an existing one keeps its own, and a different one given here is an error

	Index        index.Options // FS, Dir, Logger, OnFatal, Progress and Stats are filled in
	StreamCache  int           // streams whose facts are kept, default 50,000
	RecentIDs    int           // newest events whose ids are remembered, default 1,048,576
	MaxTruncate  int64         // bytes that truncate.chk may cut, default 256 MiB, negative: no limit
	SkipVerify   bool          // do not verify complete chunks in the background after start
	VerifyPerSec int64         // bytes a second that the verification reads, default 64 MiB

	CheckEvery  time.Duration // how often all complete chunks are compared with their checksums; 0: only at start
	CheckPerSec int64         // bytes a second that this reads at most, a fourth of that while the log is used; default 32 MiB

	Logger   hclog.Logger
	OnFatal  func(error)              // told once when a write or sync failed: the process must stop; must not call Close, which may wait for it
	OnSync   func(took time.Duration) // told how long it took to make the log durable; must not block
	OnDamage func(error)              // gets each complete chunk that is not what was written, and when the newest event ids cannot be read
	Now      func() time.Time         // the clock that $maxAge is judged by, default time.Now

	// Redacted returns the events from a position up to another of which this node blanked the
	// data, by rising position: they are blanked in chunk files that come from other nodes. nil: none.
	Redacted func(from, to int64) []Redaction

	// BeforeCut is called when truncate.chk is about to cut the log at a position: the folder was
	// restored. What knows of a log that went on must be put away then. An error stops the start; nothing was changed yet.
	BeforeCut func(at int64) error

	// Progress gets during Open what is being done, in a few words, and how far
	// it is: bytes done of all. It is called when something begins and then at most four
	// times a second, must not block, and is not called once Open has returned.
	Progress func(doing string, done, total int64)

	Stats *stats.Registry // where the metrics are registered, those of the index too; default: nowhere
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

// Log is the event log of one node with its index.
//
// One goroutine appends (Append, Commit); any number read. Lock order: jobs,
// switchMu, syncMu, then setMu or dirty.mu. Only the first three are held
// during I/O: to let it happen once at a time, or not behind Close, is their purpose.
type Log struct {
	opts      Options
	logger    hclog.Logger
	progress  *progress
	lock      io.Closer
	directory event.ID
	cluster   event.ID
	metrics   metrics
	mapped    bool // chunk files are mapped into memory; set by Open

	appender appender
	index    *index.Index
	ids      *recentIDs
	streams  *streamCache
	notify   notifier
	damages  *damages
	checked  atomic.Pointer[CheckProgress] // nil: nothing was checked yet

	unsettled     atomic.Int64 // 1 + the end before what is being committed; 0: nothing is
	pub           atomic.Pointer[published]
	setMu         sync.Mutex // guards what follows, and replacing pub
	chunks        []*chunkfile.Chunk
	chunksChanged bool // the published set holds other chunks

	switchMu   sync.Mutex // one switchChunk at a time
	chk        *datadir.Checkpoints
	syncMu     sync.Mutex // one sync at a time; guards chk but for the chaser's, which is the appender's, and the closing of files
	dirty      dirtyFiles
	syncedEnd  atomic.Int64
	syncWanted chan struct{}

	failed atomic.Pointer[error]
	gone   atomic.Bool // the files are closed

	lifetime context.Context // ends when the log is being closed
	cancel   context.CancelFunc
	owned    sync.WaitGroup // background goroutines
	jobs     sync.RWMutex   // held for reading by jobs that rewrite or switch chunks; Close takes it
	closed   sync.Once
	closeErr error
}

// Open opens the log in a folder, making it if it is not there: it cuts a torn
// tail, applies truncate.chk, and brings the index up to the log's end.
func Open(o Options) (_ *Log, err error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Log{
		opts: o, logger: o.Logger, lifetime: ctx, cancel: cancel, progress: newProgress(o.Progress),
		metrics: newMetrics(o.Stats), ids: newRecentIDs(o.RecentIDs), streams: newStreamCache(o.StreamCache),
		damages: newDamages(), syncWanted: make(chan struct{}, 1),
	}
	defer func() {
		l.progress.end()
		if err != nil {
			err = errors.Join(fmt.Errorf("open log %s: %w", o.Dir, err), l.closeFiles())
		}
	}()
	if err := l.openDirectory(); err != nil {
		return nil, err
	}
	if err := l.recover(); err != nil {
		return nil, err
	}
	if err := l.openIndex(); err != nil {
		return nil, err
	}
	l.mapped = l.chunks[0].Mapped != nil // One file system holds all of them.
	l.watch(o.Stats)
	l.owned.Go(func() { l.runSyncer(ctx) })
	l.owned.Go(func() { l.loadRecentIDs(ctx) })
	l.owned.Go(func() { l.runChecks(ctx) })
	return l, nil
}

// Tail is the end of what is applied and indexed.
func (l *Log) Tail() event.Tail { return l.pub.Load().tail }

// Settled is the end up to which reads of streams, too, see all events. While a
// commit is under way that is not the tail's: the log shows its events a
// moment before the facts of their streams do.
func (l *Log) Settled() int64 {
	if before := l.unsettled.Load(); before > 0 {
		return before - 1
	}
	end := l.Tail().End
	if before := l.unsettled.Load(); before > 0 {
		return min(end, before-1) // The end may be that of the commit.
	}
	return end
}

// EpochPosition is where the newest term's first record stands, -1 in an empty log.
func (l *Log) EpochPosition() int64 { return l.pub.Load().epoch }

// Cluster is the id of the cluster that the log belongs to.
func (l *Log) Cluster() event.ID { return l.cluster }

// Directory is the id of the folder, made when the folder was.
func (l *Log) Directory() event.ID { return l.directory }

// Stats is where the log registers its metrics, for what stands on it; nil: nowhere.
func (l *Log) Stats() *stats.Registry { return l.opts.Stats }

// Index gives access to the index for merging and statistics.
func (l *Log) Index() *index.Index { return l.index }

// Failed returns the error that stopped the log, nil while all is well.
func (l *Log) Failed() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// usable returns why nothing can be written any more.
func (l *Log) usable() error {
	if l.gone.Load() {
		return event.ErrClosed
	}
	return l.Failed()
}

// fail makes an error final and tells the owner, once.
func (l *Log) fail(err error) error {
	if l.failed.CompareAndSwap(nil, &err) {
		l.opts.OnFatal(err)
		return err
	}
	return *l.failed.Load()
}

func (l *Log) closeFailed(err error) {
	l.logger.Warn("closing replaced chunks", "error", err)
}

// publish shows readers a new tail, and the chunks as they are now.
func (l *Log) publish(tail event.Tail, epoch int64) {
	l.setMu.Lock()
	replaced := l.publishLocked(tail, epoch)
	l.setMu.Unlock()
	replaced.release()
}

// publishLocked runs under setMu. The caller releases the set it returns once
// it has let go of the lock, because that may close and remove files.
func (l *Log) publishLocked(tail event.Tail, epoch int64) (replaced *chunkSet) {
	before := l.pub.Load()
	next := &published{tail: tail, epoch: epoch}
	if before != nil && !l.chunksChanged {
		next.set = before.set
	} else {
		l.adopt()
		next.set = newChunkSet(l.chunks, l.closeFailed)
		l.chunksChanged = false
		if before != nil {
			replaced = before.set
		}
	}
	l.pub.Store(next)
	return replaced
}

// Close syncs what is committed, writes the index if that spares the next
// start much work, and closes everything. It is idempotent, and returns the error
// that stopped the log if there was one. Appends must have stopped; reads
// that are under way finish, later ones get event.ErrClosed.
func (l *Log) Close() error {
	l.closed.Do(func() {
		l.notify.close()
		l.cancel()
		l.owned.Wait()
		l.jobs.Lock() // Rewrites under way end at their next look at the context; later ones find the log closed.
		defer l.jobs.Unlock()
		err := l.Sync() // The error that stopped the log, if one did.
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
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.gone.Store(true)
	l.dirty.mu.Lock()
	for _, f := range l.dirty.complete {
		err = errors.Join(err, f.Close())
	}
	if l.dirty.active != nil {
		err = errors.Join(err, l.dirty.active.Close())
	}
	l.dirty.complete, l.dirty.active = nil, nil
	l.dirty.mu.Unlock()
	if p := l.pub.Load(); p != nil {
		p.set.release()
	}
	for _, c := range l.chunks {
		err = errors.Join(err, c.Release())
	}
	if l.chk != nil {
		err = errors.Join(err, l.chk.Close())
	}
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}
