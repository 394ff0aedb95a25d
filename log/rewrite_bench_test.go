package eventlog

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// benchFolder is where the benchmarks of rewriting work: in a folder of the one that
// ANNALS_BENCH_DIR names, if any.
func benchFolder(b *testing.B) string {
	b.Helper()
	dir := os.Getenv("ANNALS_BENCH_DIR")
	if dir == "" {
		return b.TempDir()
	}
	dir = check.Value(os.MkdirTemp(dir, "annals-bench-")).Must(b)
	b.Cleanup(func() { check.Must(b, os.RemoveAll(dir)) })
	return dir
}

// fullChunk makes a log with one full chunk of records of about 300 bytes in frames of 50, and a
// frame after it. It keeps the chunk's file as "pristine".
func fullChunk(b *testing.B) (l *Log, size int64) {
	b.Helper()
	m := newModel()
	o := testOptions(vfs.OS)
	o.Dir = benchFolder(b)
	o.Index.ExistenceFilterMax = 0
	l = mustOpen(b, o)
	data := strings.Repeat("x", 220)
	for m.tail.End < chunkfile.ChunkSize {
		list := make([]testEvent, 50)
		for i := range list {
			list[i] = ev(fmt.Sprint("stream-", (int(m.tail.Index)*50+i)%10_000), data)
		}
		write(b, l, m.frame(false, list...))
		m.frames = m.frames[:0]
	}
	check.Must(b, l.syncer.Sync())
	check.Must(b, os.Link(filepath.Join(o.Dir, chunkfile.FileName(0, 0)), filepath.Join(o.Dir, "pristine")))
	infos := check.Value(l.Chunks.List()).Must(b)
	return l, infos[0].DataBytes
}

// BenchmarkScavengeBlock is the least that any scavenge of a chunk does: look at
// all items with their checksums, copy every second record, hash and write. Nothing is synced.
func BenchmarkScavengeBlock(b *testing.B) {
	l, size := fullChunk(b)
	dir := l.opts.Dir
	b.SetBytes(size)
	for b.Loop() {
		check.Must(b, scavengeBlock(filepath.Join(dir, "pristine"), filepath.Join(dir, "block.out"), size))
		b.StopTimer()
		check.Must(b, os.Remove(filepath.Join(dir, "block.out")))
		b.StartTimer()
	}
}

func scavengeBlock(from, to string, size int64) error {
	in, err := vfs.OS.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	m, err := in.Map(chunkfile.HeaderSize + size)
	if err != nil {
		return err
	}
	defer m.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	sum := xxh3.New()
	buf := make([]byte, 0, 1<<20)
	flush := func() error {
		_, _ = sum.Write(buf)
		_, err := out.Write(buf)
		buf = buf[:0]
		return err
	}
	records := 0
	for data := m.Bytes()[chunkfile.HeaderSize:]; len(data) > 0; {
		n := chunkfile.Order.Uint32(data)
		it := data[:n]
		if crc32.Checksum(it[:n-chunkfile.ItemFoot], chunkfile.Castagnoli) != chunkfile.Order.Uint32(it[n-chunkfile.ItemFoot:]) {
			return fmt.Errorf("checksum does not match")
		}
		data = data[n:]
		if it[4] == chunkfile.KindRecord {
			if records++; records%2 == 0 {
				continue
			}
		}
		if len(buf)+len(it) > cap(buf) {
			if err := flush(); err != nil {
				return err
			}
		}
		buf = append(buf, it...)
	}
	return flush()
}

// BenchmarkRewrite rewrites a chunk of 256 MiB keeping every second record, with
// everything that belongs to it: synced, verified, and in use at the end.
func BenchmarkRewrite(b *testing.B) {
	l, size := fullChunk(b)
	dir := l.opts.Dir
	b.SetBytes(size)
	for b.Loop() {
		n := 0
		_, err := l.Chunks.Rewrite(context.Background(), Rewrite{IDsFrom: 1 << 60, Keep: func(*Stored) bool { n++; return n%2 == 0 }})
		check.Must(b, err)
		b.StopTimer()
		check.Must(b, os.Link(filepath.Join(dir, "pristine"), filepath.Join(dir, "x.tmp")))
		check.Must(b, l.SwitchChunk("x.tmp"))
		b.StartTimer()
	}
}

// BenchmarkScan reads all records of a chunk that the system has in memory.
func BenchmarkScan(b *testing.B) {
	l, size := fullChunk(b)
	b.SetBytes(size)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		check.Must(b, l.Chunks.Scan(context.Background(), 0, chunkfile.ChunkSize, func(s *Stored) error {
			n += len(s.Stream)
			return nil
		}))
	}
	if n == 0 {
		b.Fatal("nothing was read")
	}
}
