package eventlog

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

// pageCache is a file system that fails as Linux does: a sync that failed says so once, its pages
// count as clean from then on and can still be read, and what the disk holds of them is what it
// held before.
type pageCache struct {
	vfs.FS // what processes see

	mu    sync.Mutex           // held while a file of the log's folder is written or synced
	files map[string]*pageFile // of the folder of the log
	fails string               // the end of the name of the file whose next sync fails

	ended atomic.Bool // the process does nothing any more
}

// pageFile is what is known of a file, whatever its name.
type pageFile struct {
	dirty []extent
	disk  []byte
}

type extent struct{ from, to int64 }

var errEnded = errors.New("the process has ended")

func newPageCache() *pageCache {
	p := &pageCache{files: map[string]*pageFile{}}
	p.FS = vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
		if p.ended.Load() && op.Kind.Mutates() {
			return errEnded
		}
		return nil
	})
	return p
}

func (p *pageCache) Create(name string) (vfs.File, error) { return p.opened(p.FS.Create(name)) }
func (p *pageCache) Open(name string) (vfs.File, error)   { return p.opened(p.FS.Open(name)) }
func (p *pageCache) OpenReadWrite(name string) (vfs.File, error) {
	return p.opened(p.FS.OpenReadWrite(name))
}

func (p *pageCache) opened(f vfs.File, err error) (vfs.File, error) {
	if err != nil || filepath.Dir(f.Name()) != testDir {
		return f, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files[f.Name()] == nil {
		p.files[f.Name()] = new(pageFile)
	}
	return &openPages{f, p, p.files[f.Name()]}, nil
}

func (p *pageCache) Rename(from, to string) error {
	err := p.FS.Rename(from, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.files[from]; err == nil && f != nil {
		p.files[to] = f
		delete(p.files, from)
	}
	return err
}

func (p *pageCache) Remove(name string) error {
	err := p.FS.Remove(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		delete(p.files, name)
	}
	return err
}

// openPages is an open file.
type openPages struct {
	vfs.File
	p    *pageCache
	file *pageFile
}

func (f *openPages) WriteAt(b []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(b, at)
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	f.file.dirty = append(f.file.dirty, extent{at, at + int64(n)})
	return n, err
}

func (f *openPages) Sync() error {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.p.ended.Load() {
		return errEnded
	}
	spans := f.file.dirty
	f.file.dirty = nil // Clean from here on, whatever becomes of them.
	if f.p.fails != "" && strings.HasSuffix(f.Name(), f.p.fails) {
		f.p.fails = ""
		return syscall.EIO
	}
	size, err := f.Size()
	if err != nil {
		return err
	}
	d := f.file.disk
	d = append(d, make([]byte, max(0, int(size)-len(d)))...)[:size]
	for _, s := range spans {
		if s.from >= size {
			continue // It was cut off since.
		}
		if _, err := f.ReadAt(d[s.from:min(s.to, size)], s.from); err != nil {
			return err
		}
	}
	f.file.disk = d
	return nil
}

// restart ends the process, if it is not over, and lets another one begin.
func (p *pageCache) restart(t *testing.T, l *Log, o Options) *Log {
	t.Helper()
	p.ended.Store(true)
	check.MustFail(t, l.Close(), "the process ended in order")
	p.ended.Store(false)
	return mustOpen(t, o)
}

func (p *pageCache) failNext(name string) {
	p.mu.Lock()
	p.fails = name
	p.mu.Unlock()
}

// powerCut is what the disk holds. It leaves the index out, which is rebuilt.
func (p *pageCache) powerCut(t *testing.T) *vfs.Mem {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	m := vfs.NewMem()
	check.Must(t, m.MkdirAll(testDir))
	for name, f := range p.files {
		check.Must(t, vfs.WriteFileAtomic(m, name, slices.Clone(f.disk)))
	}
	return m
}

// TestRestartWithoutPowerCut ends the process, but not the machine, with data that the disk does
// not have: after a sync that failed, or with none at all. What the next process calls durable is
// on disk.
func TestRestartWithoutPowerCut(t *testing.T) {
	first, second := chunkfile.FileName(0, 0), chunkfile.FileName(1, 0)
	for name, c := range map[string]struct {
		fails     string
		completes bool // the chunk is complete, and the next one begun, before the sync
	}{
		"chunk":                    {first, false},
		"chunk completed since":    {first, true},
		"chunk begun since":        {second, true},
		"writer.chk":               {datadir.WriterCheckpoint, false},
		"chaser.chk":               {datadir.ChaserCheckpoint, false},
		"epoch.chk":                {datadir.EpochCheckpoint, false},
		"no sync":                  {"", false},
		"no sync, chunk completed": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPageCache()
			m := newModel()
			o := testOptions(p)
			l := mustOpen(t, o)
			write(t, l, m.frame(false, ev("s", "durable")))
			check.Must(t, l.syncer.Sync())
			m.term++
			write(t, l, m.frame(c.completes, ev("s", "acknowledged: a majority has it in its Raft log")))
			if c.completes {
				write(t, l, m.frame(false, ev("s", "and the next one, too")))
			}
			p.failNext(c.fails)
			if c.fails != "" { // A complete chunk may have been synced in the background already.
				if err := l.syncer.Sync(); !errors.Is(err, syscall.EIO) && (err != nil || !c.completes) {
					t.Fatalf("the sync: %v", err)
				}
			}
			p.failNext("")
			l = p.restart(t, l, o)
			verify(t, l, m.frames, nil)
			// From here on a snapshot may be written, and the Raft log be cut.
			check.Must(t, l.syncer.Sync())
			p.ended.Store(true)
			if err := l.Close(); err != nil && !errors.Is(err, errEnded) {
				t.Fatal(err)
			}

			o.FS = p.powerCut(t)
			l = mustOpen(t, o)
			verify(t, l, m.frames, nil)
			closeLog(t, l)
		})
	}
}

// TestSyncThatFailedIsTheLast has several goroutines sync at the same time. None of them syncs
// again, and calls durable, what the first one failed to.
func TestSyncThatFailedIsTheLast(t *testing.T) {
	for range 50 {
		p := newPageCache()
		m := newModel()
		o := testOptions(p)
		l := mustOpen(t, o)
		write(t, l, m.frame(false, ev("s", "acknowledged: a majority has it in its Raft log")))
		p.failNext(chunkfile.FileName(0, 0))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if err := l.syncer.Sync(); !errors.Is(err, syscall.EIO) {
					t.Errorf("a sync during, or after, one that failed: %v", err)
				}
			})
		}
		wg.Wait()
		check.MustBe(t, l.Close(), syscall.EIO)
		o.FS = p.powerCut(t)
		closeLog(t, mustOpen(t, o))
	}
}
