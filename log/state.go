package eventlog

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/postings"
)

// state is what every part of a log stands on: the options, what readers see, and the error that
// stopped the log.
type state struct {
	opts     Options
	logger   hclog.Logger
	cluster  event.ID
	metrics  metrics
	index    *index.Index
	postings *postings.Index
	damages  *damages
	lifetime context.Context // ends when the log is being closed

	unsettled    atomic.Int64 // 1 + the end before what is being committed; 0: nothing is
	pub          atomic.Pointer[published]
	setMu        sync.Mutex // guards what follows, and replacing pub
	files        []*chunkfile.Chunk
	filesChanged bool // the published set holds other chunks

	// bringing is held by what brings records into chunks and the index that were in neither, and
	// while the index is built again from the chunks.
	bringing sync.Mutex

	failed atomic.Pointer[error]
	gone   atomic.Bool // the files are closed
}

// Tail is the end of what is applied and indexed.
func (s *state) Tail() event.Tail { return s.pub.Load().tail }

// Settled is the end up to which reads of streams, too, see all events. During a commit it is lower
// than the tail's end: the log shows its events a moment before the facts of their streams do.
func (s *state) Settled() int64 {
	if before := s.unsettled.Load(); before > 0 {
		return before - 1
	}
	end := s.Tail().End
	if before := s.unsettled.Load(); before > 0 {
		return min(end, before-1) // The end may be that of the commit.
	}
	return end
}

// EpochPosition is where the newest term's first record stands, -1 in an empty log.
func (s *state) EpochPosition() int64 { return s.pub.Load().epoch }

// Cluster is the id of the cluster that the log belongs to.
func (s *state) Cluster() event.ID { return s.cluster }

// Failed returns the error that stopped the log, nil while all is well.
func (s *state) Failed() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// usable returns why nothing can be written any more.
func (s *state) usable() error {
	if s.gone.Load() {
		return event.ErrClosed
	}
	return s.Failed()
}

// fail makes an error final and tells the owner, once.
func (s *state) fail(err error) error {
	if s.failed.CompareAndSwap(nil, &err) {
		s.opts.OnFatal(err)
		return err
	}
	return *s.failed.Load()
}

func (s *state) view() (view, error) {
	for {
		p := s.pub.Load()
		if p.set.acquire() {
			return view{p}, nil
		}
		if s.gone.Load() {
			return view{}, event.ErrClosed
		}
	}
}

// read calls f with what readers see now. It is not for what is read most often: that does the same
// without a function to call.
func (s *state) read(f func(v view) error) (err error) {
	v, err := s.view()
	if err != nil {
		return err
	}
	defer v.release()
	defer s.met(&err)
	defer chunkfile.GuardFaults(&err)()
	return f(v)
}

func (s *state) closeFailed(err error) {
	s.logger.Warn("closing replaced chunks", logkey.Error, err)
}

// publish shows readers a new tail, and the chunks as they are now.
func (s *state) publish(tail event.Tail, epoch int64) {
	s.setMu.Lock()
	replaced := s.publishLocked(tail, epoch)
	s.setMu.Unlock()
	replaced.release()
}

// publishLocked runs under setMu. The caller releases the set it returns once
// it has let go of the lock, because that may close and remove files.
func (s *state) publishLocked(tail event.Tail, epoch int64) (replaced *chunkSet) {
	before := s.pub.Load()
	next := &published{tail: tail, epoch: epoch}
	if before != nil && !s.filesChanged {
		next.set = before.set
	} else {
		s.adopt()
		next.set = newChunkSet(s.files, s.closeFailed)
		s.filesChanged = false
		if before != nil {
			replaced = before.set
		}
	}
	s.pub.Store(next)
	return replaced
}

// adopt lets chunks tell of what reads meet in them. It runs under setMu.
func (s *state) adopt() {
	for _, c := range s.files {
		c.Suspect.Store(&s.damages.report)
	}
}

// met is deferred by reads, before GuardFaults: it names the chunk or index file of which mapped
// memory could not be read.
func (s *state) met(err *error) {
	fault, ok := errors.AsType[*chunkfile.Fault](*err)
	if !ok {
		return
	}
	v, viewErr := s.view()
	if viewErr != nil {
		return
	}
	defer v.release()
	for _, c := range v.set.chunks {
		base := uintptr(unsafe.Pointer(unsafe.SliceData(c.Mapped)))
		if len(c.Mapped) > 0 && fault.Addr >= base && fault.Addr-base < uintptr(len(c.Mapped)) {
			*err = c.Corrupt(int64(fault.Addr-base), "%s", fault.Detail)
			return
		}
	}
	if ofIndex := index.Faulted(s.index, fault.Addr, fault.Detail); ofIndex != nil {
		*err = ofIndex
	} else if ofIndex := s.postings.Faulted(fault.Addr, fault.Detail); ofIndex != nil {
		*err = ofIndex
	}
}

// nextChunk is the number of the chunk after the last one that has a file.
func (s *state) nextChunk() int {
	s.setMu.Lock()
	defer s.setMu.Unlock()
	if len(s.files) == 0 {
		return 0
	}
	return s.files[len(s.files)-1].Header.Last + 1
}

// inUse reports whether all of these chunks are in the log's list, which has each of them once.
func (s *state) inUse(sources []*chunkfile.Chunk) bool {
	s.setMu.Lock()
	defer s.setMu.Unlock()
	for _, c := range sources {
		if !slices.Contains(s.files, c) {
			return false
		}
	}
	return true
}

// scavengeFolder lies in the folder of the index. It says what was scavenged of
// the files that are there, and is void when others take their place.
const scavengeFolder = "scavenging"

func (s *state) removeScavengeState() error {
	fsys, path := s.opts.FS, filepath.Join(s.opts.IndexDir, scavengeFolder)
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := fsys.RemoveAll(path); err != nil {
		return err
	}
	return fsys.SyncDir(s.opts.IndexDir)
}
