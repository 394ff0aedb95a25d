package index

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func TestBloomRate(t *testing.T) {
	const n = 100_000
	r := rand.New(rand.NewPCG(5, 6))
	b := newBloom(n)
	for i := range uint64(n) {
		b.add(i) // as far from uniform as can be
	}
	for i := range uint64(n) {
		if !b.mayContain(i) {
			t.Fatalf("denies %d", i)
		}
	}
	wrong := 0
	for range n {
		if h := r.Uint64(); h >= n && b.mayContain(h) {
			wrong++
		}
	}
	if rate := float64(wrong) / n; rate > 0.02 {
		t.Fatalf("%.2f%% false positives", 100*rate)
	}
}

func TestExistenceFilter(t *testing.T) {
	cases := []struct {
		name   string
		bound  int64
		hashes uint64
		rate   float64 // most false positives
	}{
		{"small", 1 << 30, 1000, 0.001},
		{"several layers", 1 << 30, 150_000, 0.02},
		{"bounded", 192 << 10, 150_000, 0.5},
		{"tiny bound", 10, 100, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newExistenceFilter(c.bound)
			for i := range c.hashes {
				f.add(i * 0x9e3779b97f4a7c15)
			}
			if f.bytes() > max(c.bound, bloomBlock) {
				t.Fatalf("%d bytes exceed the bound", f.bytes())
			}
			fsys := vfs.NewMem()
			check.Must(t, f.save(fsys, "", 77))
			g, checkpoint, err := loadExistence(fsys, "", c.bound)
			check.Must(t, err, "load: checkpoint")
			check.MustEqual(t, checkpoint, 77, "load: checkpoint")
			wrong := 0
			for i := range c.hashes {
				if h := i * 0x9e3779b97f4a7c15; !f.mayContain(h) || !g.mayContain(h) {
					t.Fatalf("denies %x", h)
				}
				if g.mayContain(i<<20 + 1<<62 + 5) {
					wrong++
				}
			}
			if rate := float64(wrong) / float64(c.hashes); rate > c.rate {
				t.Fatalf("%.2f%% false positives", 100*rate)
			}
			if len(*g.layers.Load()) != len(*f.layers.Load()) || g.bytes() != f.bytes() {
				t.Fatal("layers changed on the way through the file")
			}
		})
	}
}

// TestLargeExistenceFilterIsSavedSeldom checks that a filter larger than the
// tables is not written at every flush, and that the older file is brought up to date.
func TestLargeExistenceFilterIsSavedSeldom(t *testing.T) {
	fsys, saves := vfs.NewMem(), 0
	counting := vfs.NewFaulty(fsys, func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && filepath.Base(op.NewName) == existenceName {
			saves++
		}
		return nil
	})
	x, err := Open(Options{FS: counting, Dir: "index", MaxAutoMergeLevel: -1})
	check.Must(t, err)
	big := &existenceFilter{max: 64 << 20}
	big.layers.Store(&[]*existenceLayer{newExistenceLayer(existenceSmall + bloomBlock)})
	x.existence.filter.Store(big)
	for i := range int64(5) {
		check.Must(t, x.Add([]Entry{{Hash: uint64(i) << 40, Position: i}}, i+1, event.Chain{}))
		check.Must(t, x.Flush())
	}
	check.MustEqual(t, saves, 1, "saved ... times")
	// A merge counts as well: what it makes has all that the file lacks.
	x.commitMu.Lock()
	x.existence.unsaved = existenceSmall
	x.commitMu.Unlock()
	check.Must(t, x.Merge(t.Context()))
	check.MustEqual(t, saves, 2, "saved ... times after a merge")
	check.Must(t, x.Add([]Entry{{Hash: 5 << 40, Position: 5}}, 6, event.Chain{}))
	check.Must(t, errors.Join(x.Flush(), x.Close()))
	if x, err = Open(Options{FS: fsys, Dir: "index"}); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(6) {
		if !x.MayExist(i << 40) {
			t.Fatalf("denies %x", i<<40)
		}
	}
	if x.MayExist(12345) {
		t.Fatal("was made without the older file")
	}
	check.Must(t, x.Close())
}
