package eventlog

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/vfs"
)

// pageCache is a file system that fails as Linux does: a sync that failed says so once, its pages count as
// clean from then on and can still be read, and what the disk holds of them is what it held before.
type pageCache struct {
	vfs.FS // what processes see
	cache  *vfs.Mem

	mu    sync.Mutex
	dirty map[string][]extent
	disk  map[string][]byte // of the files in the folder of the log
	fails string            // the end of the name of the file whose next sync fails
	ended bool              // the process does nothing any more
}

type extent struct{ from, to int64 }

var errEnded = errors.New("the process has ended")

func newPageCache() *pageCache {
	p := &pageCache{cache: vfs.NewMem(), dirty: map[string][]extent{}, disk: map[string][]byte{}}
	p.FS = vfs.NewFaulty(p.cache, p.inject)
	return p
}

func (p *pageCache) inject(op vfs.Op) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended && op.Kind.Mutates() {
		return errEnded
	}
	if filepath.Dir(op.Name) != testDir {
		return nil
	}
	switch op.Kind {
	case vfs.OpWrite:
		p.dirty[op.Name] = append(p.dirty[op.Name], extent{op.Offset, op.Offset + op.Len})
	case vfs.OpRename:
		p.dirty[op.NewName], p.disk[op.NewName] = p.dirty[op.Name], p.disk[op.Name]
	case vfs.OpSync:
		spans := p.dirty[op.Name]
		delete(p.dirty, op.Name) // Clean from here on, whatever becomes of them.
		if n := len(spans); n > 0 && (p.fails == "" || !strings.HasSuffix(op.Name, p.fails)) {
			p.dirty[op.Name] = []extent{spans[n-1]} // It may still be under way: it is noted before it is done.
		}
		if p.fails != "" && strings.HasSuffix(op.Name, p.fails) {
			p.fails = ""
			return syscall.EIO
		}
		data, err := vfs.ReadFile(p.cache, op.Name)
		if err != nil {
			return err
		}
		d := p.disk[op.Name]
		d = append(d, make([]byte, max(0, len(data)-len(d)))...)[:len(data)]
		for _, s := range spans {
			if s.from < int64(len(data)) { // Else it was cut off since.
				copy(d[s.from:min(s.to, int64(len(data)))], data[s.from:])
			}
		}
		p.disk[op.Name] = d
	}
	return nil
}

// restart ends the process, if it is not over, and lets another one begin.
func (p *pageCache) restart(t *testing.T, l *Log, o Options) *Log {
	t.Helper()
	p.end(true)
	if err := l.Close(); err == nil {
		t.Fatal("the process ended in order")
	}
	p.end(false)
	return mustOpen(t, o)
}

func (p *pageCache) failNext(name string) {
	p.mu.Lock()
	p.fails = name
	p.mu.Unlock()
}

func (p *pageCache) end(ended bool) {
	p.mu.Lock()
	p.ended = ended
	p.mu.Unlock()
}

// powerCut is what the disk holds. The index is left out: it is made anew.
func (p *pageCache) powerCut(t *testing.T) *vfs.Mem {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	m := vfs.NewMem()
	must(t, m.MkdirAll(testDir))
	names, err := p.cache.List(testDir)
	must(t, err)
	for _, name := range names {
		path := filepath.Join(testDir, name)
		if info, err := p.cache.Stat(path); err != nil || info.IsDir() {
			continue
		}
		must(t, vfs.WriteFileAtomic(m, path, slices.Clone(p.disk[path])))
	}
	return m
}

// TestRestartWithoutPowerCut ends the process, but not the machine, with data that the disk does not
// have: after a sync that failed, or with none at all. What the next process calls durable is on disk.
func TestRestartWithoutPowerCut(t *testing.T) {
	first, second := chunkFileName(0, 0), chunkFileName(1, 0)
	for name, c := range map[string]struct {
		fails     string
		completes bool // the chunk is complete, and the next one begun, before the sync
	}{
		"chunk":                    {first, false},
		"chunk completed since":    {first, true},
		"chunk begun since":        {second, true},
		"writer.chk":               {writerCheckpoint, false},
		"chaser.chk":               {chaserCheckpoint, false},
		"epoch.chk":                {epochCheckpoint, false},
		"no sync":                  {"", false},
		"no sync, chunk completed": {"", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPageCache()
			m := newModel()
			o := testOptions(p)
			l := mustOpen(t, o)
			write(t, l, m.frame(false, ev("s", "durable")))
			must(t, l.Sync())
			m.term++
			write(t, l, m.frame(c.completes, ev("s", "acknowledged: a majority has it in its Raft log")))
			if c.completes {
				write(t, l, m.frame(false, ev("s", "and the next one, too")))
			}
			p.failNext(c.fails)
			if c.fails != "" { // A complete chunk may have been synced in the background already.
				if err := l.Sync(); !errors.Is(err, syscall.EIO) && (err != nil || !c.completes) {
					t.Fatalf("the sync: %v", err)
				}
			}
			p.failNext("")
			l = p.restart(t, l, o)
			verify(t, l, m.frames, nil)
			must(t, l.Sync()) // From here on a manifest may be written, and the Raft log be cut.
			p.end(true)
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
