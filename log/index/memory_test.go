package index_test

import (
	"runtime"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// TestMemoryOfStreams bounds what streams with one event each cost before they are flushed.
func TestMemoryOfStreams(t *testing.T) {
	const streams = 200_000
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	x := open(t, index.Options{FS: vfs.NewMem(), MaxMemTable: streams + 1})
	empty := heap() - before
	batch := make([]index.Entry, 1000)
	for i := range int64(streams) {
		batch[i%1000] = index.Entry{Hash: spread(uint64(i)), Position: i}
		if i%1000 == 999 {
			check.Must(t, x.Add(batch, i+1, event.Chain{}))
		}
	}
	full := heap() - before
	t.Logf("empty %d KB, full %d KB", empty>>10, full>>10)
	if empty > 1<<20 || full > 72*streams {
		t.Fatalf("%d bytes when empty, %d when full", empty, full)
	}
	check.Must(t, x.Close())
}
