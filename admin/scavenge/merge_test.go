package scavenge_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// TestMergedAsExecuted: neighbours that will be small together are written once, not once without
// what goes and once more to be merged. A file that is not executed loses nothing by it.
func TestMergedAsExecuted(t *testing.T) {
	for _, threads := range []int{1, 3} {
		h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
		for i := range 4 {
			for range 3 {
				h.append(plain([]string{"a", "b"}[i%2], "x"))
			}
			h.append(plain("c", "x"))
			h.run(scavenge.Request{})
		}
		h.append(metadataOf("a", `{"$maxCount":1}`))
		h.append(metadataOf("c", `{"$maxCount":1}`)) // Weighs 2 on each of the first.
		h.close()
		h.opts = func(*scavenge.Options) {}
		h.open()
		got := h.run(scavenge.Request{Threshold: 3, Threads: threads})
		h.m.decide(h.m.points[len(h.m.points)-1])
		chunks, err := h.log.Chunks.List()
		if err != nil || len(chunks) != 1 || chunks[0].First != 0 || chunks[0].Last != 4 || chunks[0].Version != 1 {
			t.Fatalf("%v, %+v", err, chunks)
		}
		// All but the last of a, and c in the two files that are executed.
		if got.Executed != 2 || got.Skipped != 3 || got.Merged != 5 || got.Removed != 7 {
			t.Fatalf("%+v", got)
		}
		found := h.m.checkAll(t, h.log)
		for i, r := range h.m.streams["c"] {
			check.Equal(t, found[r.position], i != 0 && i != 2, "event", i, "of c is there")
		}
		h.m.check(t, h.log, false)
		// What was left weighs still, and goes when the threshold lets it.
		if got = h.run(scavenge.Request{}); got.Executed != 1 || got.Removed != 1 {
			t.Fatalf("%+v", got)
		}
	}
}

// TestMergedAsExecutedButForDamage: a damaged file that is not executed does not keep its
// neighbours from being executed.
func TestMergedAsExecutedButForDamage(t *testing.T) {
	h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
	for i := range 5 {
		for range 5 {
			h.append(plain([]string{"a", "b"}[i%2], "xxxxxxxxxxxxxxxx"))
		}
		h.run(scavenge.Request{})
	}
	h.append(metadataOf("a", `{"$maxCount":1}`))
	h.close()
	f, err := h.disk.OpenReadWrite("db/chunk-000001.000000")
	if err == nil {
		_, err = f.WriteAt([]byte{0xAA, 0xBB}, chunkfile.HeaderSize+70)
		err = errors.Join(err, f.Close())
	}
	check.Must(t, err)
	h.opts = func(*scavenge.Options) {}
	h.open()
	got := h.run(scavenge.Request{Threads: 1})
	if got.Executed != 3 || got.Removed != 14 || got.Result != scavenge.ResultErrored || !strings.HasPrefix(got.Error, "merge chunks") {
		t.Fatalf("%+v", got)
	}
}

// tight is a disk on which only so much can be written, of which chunk files take.
type tight struct {
	vfs.FS
	size int64
}

func (f *tight) Free(string) (int64, error) {
	names, err := f.List("db")
	free := f.size
	for _, n := range names {
		if i, e := f.Stat("db/" + n); e == nil && (strings.HasPrefix(n, "chunk-") || strings.HasSuffix(n, ".scavenge.tmp")) {
			free -= i.Size()
		}
	}
	return free, err
}

// TestMergedAsExecutedOnAFullDisk: where there is no room for what is left of several files, each
// is executed alone and gives its space back before the next.
func TestMergedAsExecutedOnAFullDisk(t *testing.T) {
	h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
	for range 5 {
		for i := range 50 {
			h.append(plain([]string{"a", "b"}[i%2], strings.Repeat("x", 20_000)))
		}
		h.run(scavenge.Request{})
	}
	h.append(metadataOf("a", `{"$maxCount":1}`))
	h.service.Close()
	fsys := &tight{FS: h.disk}
	used := check.Value(fsys.Free("")).Must(t)
	fsys.size = 2<<20 - used // The files have 5 MB, of which half goes.
	h.on(fsys, scavenge.Options{DiskReserve: 1 << 20})
	got := h.run(scavenge.Request{Threads: 1})
	if got.Result != scavenge.ResultSuccess || got.Executed != 5 || got.Removed != 124 || got.Saved < 2_300_000 {
		t.Fatalf("%+v", got)
	}
}

func TestMerging(t *testing.T) {
	h := opened(t, nil)
	for range 4 {
		h.append(plain("a", "x"))
		h.run(scavenge.Request{})
	}
	chunks, err := h.log.Chunks.List()
	if err != nil || len(chunks) != 1 || chunks[0].First != 0 || chunks[0].Last != 3 {
		t.Fatalf("%v, %+v", err, chunks)
	}
	h.m.check(t, h.log, true)
}
