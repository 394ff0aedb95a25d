package raftdisk

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// segmentFiles makes the files of segments, and uses them again.
//
// Each write to a segment waits for its sync. On blocks that were never written, a sync costs the
// file system a commit of its journal in addition to the data. So a new file is filled with zeros
// before it becomes a segment, and the file of a deleted segment is reused as it is. This is done
// in parallel with the writes, when the current segment is half full.
//
// N.segment is the segment with that number; after the last one that was begun, it is a prepared
// one. N.free was a segment. No number is reused while its file is there. A name is on disk before
// anything is written to the file.
type segmentFiles struct {
	files  vfs.FS
	dir    string
	size   int64
	logger hclog.Logger

	mu     sync.Mutex
	last   uint64   // number that was given last
	next   uint64   // number of the segment to be begun; 0: there is none yet
	free   []string // paths of files that can be used again
	making bool     // the goroutine runs
	failed error    // a sync of the folder that failed: no segment is begun after it
	closed bool
	wg     sync.WaitGroup
}

const (
	// segmentSize is small enough that a segment is free again soon, and large against what
	// beginning one costs.
	segmentSize = 16 << 20
	// freeSegments bounds the disk space that waits for reuse. A snapshot frees about so many
	// segments.
	freeSegments = 4

	segmentSuffix = ".segment"
	freeSuffix    = ".free"
)

func segmentPath(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%016x%s", number, segmentSuffix))
}

// segmentNumber is the number in a file's name.
func segmentNumber(name, suffix string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	number, err := strconv.ParseUint(digits, 16, 64)
	return number, ok && err == nil && len(digits) == 16
}

// openSegmentFiles takes over what a process before left in the folder, and returns the numbers of
// segments, rising.
func openSegmentFiles(files vfs.FS, dir string, size int64, logger hclog.Logger) (*segmentFiles, []uint64, error) {
	s := &segmentFiles{files: files, dir: dir, size: size, logger: logger}
	names, err := files.List(dir)
	if err != nil {
		return nil, nil, err
	}
	var numbers []uint64
	for _, name := range names {
		if number, ok := segmentNumber(name, segmentSuffix); ok {
			numbers = append(numbers, number)
			s.last = max(s.last, number)
		} else if number, ok := segmentNumber(name, freeSuffix); ok {
			s.free = append(s.free, filepath.Join(dir, name))
			s.last = max(s.last, number)
		}
	}
	// A name that a sync which failed left in memory alone is believed from here on.
	return s, numbers, files.SyncDir(dir)
}

// Close waits for a file that is being prepared.
func (s *segmentFiles) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
}

// begin returns the number of the next segment. Where none was prepared its file is a new one, and
// its folder not synced.
func (s *segmentFiles) begin() (number uint64, unfilled bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return 0, false, s.failed
	}
	if number = s.next; number > 0 {
		s.next = 0
		return number, false, nil
	}
	s.last++
	f, err := s.files.Create(segmentPath(s.dir, s.last))
	if err != nil {
		return 0, true, err
	}
	return s.last, true, f.Close()
}

// ready reports whether the next segment is prepared.
func (s *segmentFiles) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next > 0
}

// release frees the files of deleted segments. Which of them are still there after a crash is open.
func (s *segmentFiles) release(numbers ...uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var free []string
	for _, number := range numbers {
		path := segmentPath(s.dir, number)
		name := strings.TrimSuffix(path, segmentSuffix) + freeSuffix
		if len(s.free)+len(free) >= freeSegments {
			if err := s.files.Remove(path); err != nil {
				return err
			}
		} else if err := s.files.Rename(path, name); err != nil {
			return err
		} else {
			free = append(free, name)
		}
	}
	err := s.syncDir()
	if err == nil {
		s.free = append(s.free, free...)
	}
	return err
}

// syncDir syncs the folder. The caller holds mu.
func (s *segmentFiles) syncDir() error {
	err := s.files.SyncDir(s.dir)
	if err != nil && s.failed == nil {
		s.failed = err
	}
	return err
}

// prepare has the next segment made in parallel with the writes, from a free file or a new one.
func (s *segmentFiles) prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next > 0 || s.making || s.closed || s.failed != nil {
		return
	}
	free, fill := "", false
	if n := len(s.free) - 1; n >= 0 {
		free, s.free = s.free[n], s.free[:n]
	} else {
		s.last++
		free, fill = strings.TrimSuffix(segmentPath(s.dir, s.last), segmentSuffix)+freeSuffix, true
	}
	s.making = true
	s.wg.Go(func() {
		var err error
		if fill {
			err = s.fill(free)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making = false
		if err == nil { // Its number is given now: another segment may have been begun meanwhile.
			s.last++
			err = s.files.Rename(free, segmentPath(s.dir, s.last))
		}
		if err != nil {
			err = errors.Join(err, vfs.RemoveIfThere(s.files, free))
			if !s.closed {
				s.logger.Warn("the next segment of the Raft log was not prepared", logkey.Error, err)
			}
			return
		}
		if s.syncDir() == nil {
			s.next = s.last
		}
	})
}

// fill makes a file of zeros.
func (s *segmentFiles) fill(path string) (err error) {
	f, err := s.files.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	f.Direct()
	zeros := aligned(int(min(s.size, 1<<20)))
	for at := int64(0); at < s.size; at += int64(len(zeros)) {
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return event.ErrClosed
		}
		if _, err := f.WriteAt(zeros[:min(s.size-at, int64(len(zeros)))], at); err != nil {
			return err
		}
		// All at once would hold up the syncs that writes wait for.
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// logHead is the content of the file head of a Raft log of segments:
//
//	"ANNALSRH" | version u32 = 1 | bytes of the creation id u32 | first index u64 | creation id | xxh3 of all before u64
type logHead struct {
	creation []byte
	first    uint64 // Entries below were deleted.
}

const (
	logHeadFile    = "head"
	logHeadMagic   = "ANNALSRH"
	logHeadVersion = 1
	logHeadSize    = 24 // before the creation id
)

func (h logHead) write(files vfs.FS, dir string) error {
	b := append(make([]byte, 0, 64), logHeadMagic...)
	b = le.AppendUint32(b, logHeadVersion)
	b = le.AppendUint32(b, uint32(len(h.creation)))
	b = le.AppendUint64(b, h.first)
	b = append(b, h.creation...)
	return vfs.WriteFileAtomic(files, filepath.Join(dir, logHeadFile), le.AppendUint64(b, xxh3.Hash(b)))
}

func readLogHead(files vfs.FS, dir string) (h logHead, err error) {
	name := filepath.Join(dir, logHeadFile)
	b, err := vfs.ReadFile(files, name)
	if err != nil {
		return h, err
	}
	end := len(b) - 8
	if end < logHeadSize || string(b[:8]) != logHeadMagic || le.Uint64(b[end:]) != xxh3.Hash(b[:end]) || int(le.Uint32(b[12:])) != end-logHeadSize {
		return h, &event.Corruption{File: name, Offset: -1, Detail: "the head of the Raft log is not what was written"}
	}
	if version := le.Uint32(b[8:]); version != logHeadVersion {
		return h, fmt.Errorf("%s has version %d, this program knows %d", name, version, logHeadVersion)
	}
	return logHead{creation: b[logHeadSize:end], first: le.Uint64(b[16:])}, nil
}
