package vfs_test

import (
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func wantFree(t *testing.T, m *vfs.Mem, want int64) {
	t.Helper()
	free, err := m.Free("/")
	ok(t, err)
	check.Equal(t, free, want, "bytes free")
}

func TestMemCapacity(t *testing.T) {
	for name, m := range map[string]*vfs.Mem{"mem": vfs.NewMem(), "crashmem": vfs.NewCrashMem()} {
		t.Run(name, func(t *testing.T) {
			const capacity = 200_000
			m.SetCapacity(capacity)
			f, err := m.Create("f")
			ok(t, err)
			n, err := f.WriteAt(make([]byte, 150_000), 0)
			check.MustEqual(t, n, 150_000, "wrote")
			check.Must(t, err, "wrote")
			wantFree(t, m, 50_000)
			n, err = f.WriteAt(make([]byte, 70_000), 140_000)
			check.Equal(t, n, 60_000, "wrote ... bytes of those that fit")
			wantIs(t, err, syscall.ENOSPC)
			wantFree(t, m, 0)
			if size, err := f.Size(); err != nil || size != capacity {
				t.Errorf("size %d, %v", size, err)
			}
			write(t, f, "what is there can be overwritten", 1_000)
			_, err = f.WriteAt([]byte{1}, capacity)
			wantIs(t, err, syscall.ENOSPC)

			ok(t, f.Truncate(100))
			wantFree(t, m, capacity-100)
			ok(t, f.Truncate(1<<30))
			wantFree(t, m, capacity-100)

			ok(t, m.Remove("f"))
			wantFree(t, m, capacity-100)
			ok(t, f.Close())
			wantFree(t, m, capacity)
			m.SetCapacity(0)
			if free, err := m.Free("/"); err != nil || free < 1<<60 {
				t.Errorf("%d bytes free without a limit, %v", free, err)
			}
		})
	}
}

func TestMemFreesWhatIsReplaced(t *testing.T) {
	m := vfs.NewMem()
	m.SetCapacity(1_000)
	put(t, m, "a", "12345")
	put(t, m, "b", "123")
	wantFree(t, m, 992)
	ok(t, m.Rename("a", "b"))
	wantFree(t, m, 995)
	put(t, m, "b", "")
	wantFree(t, m, 1_000)
	ok(t, m.MkdirAll("d/e"))
	put(t, m, "d/e/f", "12345")
	put(t, m, "d/f", "12345")
	ok(t, m.RemoveAll("/"))
	wantFree(t, m, 1_000)
	wantList(t, m, "/")
}

func TestMemRefusesWildOffsets(t *testing.T) {
	m := vfs.NewMem()
	f, err := m.Create("f")
	ok(t, err)
	_, err = f.WriteAt([]byte{1}, 1<<62)
	wantIs(t, err, syscall.EFBIG)
	wantIs(t, f.Truncate(1<<62), syscall.EFBIG)
	if size, err := f.Size(); err != nil || size != 0 {
		t.Errorf("size %d, %v", size, err)
	}
	ok(t, f.Close())
}

func TestMemNames(t *testing.T) {
	m := vfs.NewMem()
	put(t, m, "a", "A")
	wantContent(t, m, "/a", "A")
	wantContent(t, m, "./x/../a", "A")
	_, err := m.Open("a/b")
	wantIs(t, err, syscall.ENOTDIR)
	_, err = m.Open("/")
	wantIs(t, err, syscall.EISDIR)
	wantIs(t, m.Remove("/"), syscall.EINVAL)
}

// TestMemConcurrentChanges runs side by side what changes the list of blocks,
// what frees it and what clones it; the race detector and the accounting are the judges.
func TestMemConcurrentChanges(t *testing.T) {
	for name, m := range map[string]*vfs.Mem{"mem": vfs.NewMem(), "crashmem": vfs.NewCrashMem()} {
		t.Run(name, func(t *testing.T) {
			m.SetCapacity(1 << 20)
			f, err := m.Create("f")
			ok(t, err)
			const rounds = 60
			var wg sync.WaitGroup
			for w := range int64(3) {
				wg.Go(func() {
					p := make([]byte, 3_000)
					for r := range int64(rounds) {
						check.NoError(t, check.Err(f.WriteAt(p, r*2_999+w*70_000)))
						if _, err := f.ReadAt(p, r*4_001); err != nil && err != io.EOF {
							t.Error(err)
						}
					}
				})
			}
			wg.Go(func() {
				for r := range int64(rounds) {
					check.NoError(t, errors.Join(f.Truncate(r*3_333), f.Sync(), m.SyncDir("/")))
				}
			})
			wg.Go(func() {
				for range rounds {
					g, err := m.Create("g")
					if err != nil {
						t.Error(err)
						return
					}
					_, err = g.WriteAt(make([]byte, 1_000), 0)
					check.NoError(t, errors.Join(err, m.Remove("g"), g.Close()))
				}
			})
			if name == "crashmem" {
				wg.Go(func() {
					for r := range uint64(rounds) {
						clone := m.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(r, 0))})
						check.NoError(t, vfs.WriteFileAtomic(clone, "f", make([]byte, 100_000)))
					}
				})
			}
			wg.Wait()
			ok(t, f.Close())
			ok(t, m.RemoveAll("/"))
			wantFree(t, m, 1<<20)
		})
	}
}

const benchFile = 16 << 20

func benchMem(b *testing.B, m *vfs.Mem) vfs.File {
	b.Helper()
	f := check.Value(m.Create("f")).Must(b)
	for off := int64(0); off < benchFile; off += 1 << 20 {
		check.Must(b, check.Err(f.WriteAt(make([]byte, 1<<20), off)))
	}
	return f
}

func BenchmarkMemReadAt(b *testing.B) {
	f := benchMem(b, vfs.NewMem())
	b.SetBytes(4096)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		p := make([]byte, 4096)
		r := rand.New(rand.NewPCG(1, 2))
		for pb.Next() {
			if _, err := f.ReadAt(p, r.Int64N(benchFile-4096)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkMemWriteAt(b *testing.B) {
	f := benchMem(b, vfs.NewMem())
	b.SetBytes(4096)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		p := make([]byte, 4096)
		r := rand.New(rand.NewPCG(1, 2))
		for pb.Next() {
			if _, err := f.WriteAt(p, r.Int64N(benchFile-4096)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkMemAppend(b *testing.B) {
	m := vfs.NewMem()
	f := check.Value(m.Create("f")).Must(b)
	p := make([]byte, 500)
	b.SetBytes(int64(len(p)))
	off := int64(0)
	for b.Loop() {
		if off > 256<<20 {
			check.Must(b, f.Truncate(0))
			off = 0
		}
		check.Must(b, check.Err(f.WriteAt(p, off)))
		off += int64(len(p))
	}
}

func BenchmarkCrashClone(b *testing.B) {
	m := vfs.NewCrashMem()
	f := benchMem(b, m)
	check.Must(b, f.Sync())
	check.Must(b, m.SyncDir("/"))
	r := rand.New(rand.NewPCG(1, 2))
	off := int64(0)
	for b.Loop() {
		check.Must(b, check.Err(f.WriteAt(make([]byte, 500), off%benchFile)))
		off += 500
		m.CrashClone(vfs.CrashOptions{Rand: r})
		check.Must(b, f.Sync())
	}
}

// TestMappedMem: a mapping outlives the handle and the name of its file, and a clone can be mapped
// as well, but does not follow what is written to the one that it was made of.
func TestMappedMem(t *testing.T) {
	m := vfs.NewCrashMem()
	m.SetMappable()
	f, err := m.Create("f")
	ok(t, err)
	write(t, f, "first", 70_000)
	view, err := f.Map(100_000)
	ok(t, err)
	clone := m.Fork()
	write(t, f, "later", 70_000)
	ok(t, f.Close())
	ok(t, m.Remove("f"))
	check.Equal(t, string(view.Bytes()[70_000:70_005]), "later", "mapped")
	ok(t, view.Close())

	f, err = clone.Open("f")
	ok(t, err)
	view, err = f.Map(100_000)
	ok(t, err)
	check.Equal(t, string(view.Bytes()[70_000:70_005]), "first", "mapped of the clone")
	ok(t, errors.Join(view.Close(), f.Close()))
}
