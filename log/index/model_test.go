package index_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// TestModel does random things to an index and to a plain list of entries.
func TestModel(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "index")
	rapid.Check(t, func(t *rapid.T) {
		if rapid.Bool().Draw(t, "in memory") {
			runModel(t, vfs.NewMem(), "db/index")
			return
		}
		check.Must(t, os.RemoveAll(dir))
		runModel(t, unsynced{vfs.OS}, dir)
	})
}

// unsynced is a file system that does not wait for the disk: this test is not about power cuts.
type unsynced struct{ vfs.FS }

type unsyncedFile struct{ vfs.File }

func (unsynced) SyncDir(string) error { return nil }
func (unsyncedFile) Sync() error      { return nil }
func (u unsynced) Create(name string) (vfs.File, error) {
	f, err := u.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func runModel(t *rapid.T, fsys vfs.FS, dir string) {
	opt := index.Options{
		FS: fsys, Dir: dir,
		MaxMemTable:        rapid.SampledFrom([]int{1, 7, 40}).Draw(t, "memtable"),
		MaxAutoMergeLevel:  rapid.SampledFrom([]int{-1, 0, 1}).Draw(t, "merge level"),
		Packed:             rapid.Bool().Draw(t, "packed"),
		NoBloom:            rapid.Bool().Draw(t, "no bloom"),
		ExistenceFilterMax: rapid.SampledFrom([]int64{-1, 0, 64, 4096}).Draw(t, "existence"),
	}
	x := open(t, opt)
	defer func() { check.Must(t, x.Close()) }()
	m := &model{packed: opt.Packed}
	next := map[uint64]int64{}
	hashes := []uint64{0, 1, 2, 1 << 63, 1<<64 - 1, spread(1), spread(2)}
	hash := rapid.SampledFrom(hashes)
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) { m.check(t, x, hash.Draw(t, "checked")) },
		"append": func(t *rapid.T) {
			var batch []index.Entry
			for range rapid.IntRange(1, 30).Draw(t, "events") {
				h := hash.Draw(t, "hash")
				batch = append(batch, m.add(h, next[h]))
				next[h]++
			}
			check.Must(t, x.Add(batch, m.end, event.Chain{}))
		},
		"collide": func(t *rapid.T) {
			h := hash.Draw(t, "hash")
			var batch []index.Entry
			for range rapid.IntRange(1, 10).Draw(t, "events") {
				batch = append(batch, m.add(h, rapid.SampledFrom([]int64{0, 1, 2, 3, 8, 50, 1<<63 - 1}).Draw(t, "number")))
			}
			check.Must(t, x.Add(batch, m.end, event.Chain{}))
		},
		"pass": func(t *rapid.T) {
			m.end += 1000
			check.Must(t, x.Add(nil, m.end, event.Chain{}))
		},
		"rebuild": func(t *rapid.T) { check.Must(t, index.Rebuild(context.Background(), x, m.refill)) },
		"flush": func(t *rapid.T) {
			check.Must(t, x.Flush())
			check.MustEqual(t, x.Checkpoint(), m.end, "checkpoint ... after a flush at")
		},
		"merge": func(t *rapid.T) { check.Must(t, x.Merge(t.Context())) },
		"prune": func(t *rapid.T) {
			check.Must(t, x.Flush())
			gone := hash.Draw(t, "gone")
			check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{Keep: keeping(func(e index.Entry) bool { return e.Hash != gone })}))
			var left []index.Entry
			for _, e := range m.log {
				if e.Hash != gone {
					left = append(left, e)
				}
			}
			m.log = left
		},
		"scavenge": func(t *rapid.T) {
			h, below := hash.Draw(t, "scavenged"), rapid.Int64Range(0, 20).Draw(t, "discard point")
			if m.packed {
				below *= 100
			}
			keep := func(e index.Entry) bool { return e.Hash != h || e.Number >= below }
			var kept, dropped int64
			check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{
				Keep: keeping(keep),
				Done: func(s index.ScavengedTable) { kept, dropped = kept+s.Kept, dropped+s.Dropped },
			}))
			before := int64(len(m.log))
			m.drop(m.end, keep)
			// Of what merges put together in between some may be seen twice.
			if now := int64(len(m.log)); x.Checkpoint() != m.end || kept < now || dropped != before-now {
				t.Fatalf("%d kept and %d dropped of %d, %d are left; checkpoint %d of %d", kept, dropped, before, now, x.Checkpoint(), m.end)
			}
		},
		"reopen": func(t *rapid.T) {
			check.Must(t, x.Close())
			if x.Checkpoint() > 0 {
				m.verifyFiles(t, fsys, dir)
			}
			before := x.Checkpoint()
			x = open(t, opt)
			check.MustEqual(t, x.Checkpoint(), before, "checkpoint ... after reopening ... before")
			m.replay(t, x)
		},
		"void": func(t *rapid.T) {
			check.Must(t, x.Close())
			check.Must(t, index.Void(fsys, dir))
			x = open(t, opt)
			if x.Checkpoint() != 0 || len(x.Tables()) != 0 {
				t.Fatalf("checkpoint %d, tables %v after a Void", x.Checkpoint(), x.Tables())
			}
			m.replay(t, x)
		},
	})
	for _, h := range hashes {
		m.check(t, x, h)
	}
}
