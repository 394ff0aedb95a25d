package history_test

import (
	"encoding/binary"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// The queue is bounded. The first and the last event of a run always find room.
func TestOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		k.lead(false)
		r := k.w.Begin(id(1), history.Started{})
		const most, more = 10_000, 50
		for i := range most + more {
			switch i % 3 {
			case 0:
				r.Chunk(history.ChunkCompleted{First: i})
			case 1:
				r.Merge(history.MergeCompleted{First: i})
			case 2:
				r.Index(history.IndexCompleted{Level: i})
			}
		}
		r.Completed(history.Completed{Result: history.Success})
		next := k.w.Begin(id(2), history.Started{})
		next.Chunk(history.ChunkCompleted{})
		next.Completed(history.Completed{Result: history.Success})
		check.Equal(t, k.log.count("too many wait"), 2, "lines about events left out")
		k.lead(true)
		time.Sleep(20 * time.Second)
		types := k.types(history.StreamOf(id(1)))
		if len(types) != most+2 || types[most] != "ChunksCompleted" || types[most+1] != "Completed" {
			t.Errorf("%d events, the last are %v", len(types), types[len(types)-2:])
		}
		k.check(history.StreamOf(id(2)), "Started", "Completed")
		k.metrics(most+2+2+4, more+1, 0)

		// There is room again.
		again := k.w.Begin(id(3), history.Started{})
		again.Chunk(history.ChunkCompleted{})
		k.w.Close()
		k.check(history.StreamOf(id(3)), "Started", "ChunksCompleted")
	})
}

// Runs are bounded as well: one that finds no room is left out as a whole.
func TestTooManyRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		k.lead(false)
		of := func(n int) (id event.ID) {
			binary.BigEndian.PutUint32(id[:], uint32(n))
			return id
		}
		const most = 5000
		for n := range most + 1 {
			r := k.w.Begin(of(n), history.Started{})
			r.Chunk(history.ChunkCompleted{})
			r.Completed(history.Completed{Result: history.Success})
		}
		k.lead(true)
		time.Sleep(20 * time.Second)
		k.check(history.StreamOf(of(most-1)), "Started", "ChunksCompleted", "Completed")
		k.check(history.StreamOf(of(most)))
		k.metrics(5*most, 3, 0)

		k.w.Begin(of(most+1), history.Started{})
		k.w.Close()
		k.check(history.StreamOf(of(most+1)), "Started")
	})
}

// Many threads report at once while the run continues. Only the first end counts. Close writes the
// rest of the queue, but not for ever: in a bubble that takes no time.
func TestConcurrent(t *testing.T) { synctest.Test(t, testConcurrent) }

func testConcurrent(t *testing.T) {
	k := start(t, newDatabase())
	var runs sync.WaitGroup
	for n := range byte(3) {
		runs.Go(func() {
			r := k.w.Begin(id(n), history.Started{})
			var threads sync.WaitGroup
			for range 4 {
				threads.Go(func() {
					for i := range 100 {
						r.Chunk(history.ChunkCompleted{First: i})
					}
				})
			}
			threads.Wait()
			r.Completed(history.Completed{Result: history.Success})
			r.Completed(history.Completed{Result: history.Failed})
			r.Chunk(history.ChunkCompleted{})
		})
	}
	runs.Wait()
	k.w.Close()
	for n := range byte(3) {
		types := k.types(history.StreamOf(id(n)))
		if len(types) != 402 || types[0] != "Started" || types[401] != "Completed" {
			t.Errorf("run %d has %d events: %v", n, len(types), types)
		}
		if got := k.payload(history.StreamOf(id(n)), 401)["result"]; got != history.Success {
			t.Errorf("run %d ended as %v", n, got)
		}
	}
	k.metrics(3*404, 0, 0)
}

func TestClose(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(k *kit)
		most    time.Duration
		flushed bool
		dropped int
	}{
		{"flushes", func(*kit) {}, 0, true, 0},
		{"slow", func(k *kit) { k.delay = 200 * time.Millisecond }, 3 * time.Second, true, 0},
		{"too slow", func(k *kit) { k.delay = 900 * time.Millisecond }, 4 * time.Second, false, 9},
		{"no leader", func(k *kit) { k.lead(false) }, 2 * time.Second, false, 9},
		{"not ready", func(k *kit) { k.refuse(event.ErrNotReady) }, 0, false, 9},
		{"hangs", func(k *kit) { k.patience = func() chan struct{} { return hung } }, 4 * time.Second, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hung = make(chan struct{})
				k := start(t, newDatabase())
				c.prepare(k)
				begun := time.Now()
				r := k.w.Begin(id(1), history.Started{})
				everything(r)
				r.Completed(history.Completed{Result: history.Stopped})
				if took := time.Since(begun); took > 0 {
					t.Errorf("the run waited for %v", took)
				}
				var closers sync.WaitGroup
				for range 2 {
					closers.Go(k.w.Close)
				}
				closers.Wait()
				if took := time.Since(begun); took > c.most {
					t.Errorf("closing took %v, at most %v are allowed", took, c.most)
				}
				k.w.Close()
				types := k.types(history.StreamOf(id(1)))
				if flushed := len(types) == 9 && types[8] == "Completed"; flushed != c.flushed {
					t.Errorf("%d events were written: %v", len(types), types)
				}
				check.Equal(t, k.figure("dropped_total"), c.dropped, "events dropped")
				late := k.w.Begin(id(2), history.Started{})
				late.Completed(history.Completed{Result: history.Success})
				if got := k.figure("dropped_total"); got != c.dropped+2 {
					t.Errorf("%d events dropped after the end, expected %d", got, c.dropped+2)
				}
				k.check(history.StreamOf(id(2)))
				close(hung)
				synctest.Wait()
			})
		})
	}
}

// hung is the channel that a store hangs on; each test makes its own.
var hung chan struct{}

// A Writer that waits for a leader, or between two tries, stops when it is closed.
func TestCloseWhileWaiting(t *testing.T) {
	for name, err := range map[string]error{"refused": event.ErrDiskFull, "failed": errBroken} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := start(t, newDatabase())
				k.failing(func(*event.Write) (before, after error) { return err, nil })
				r := k.w.Begin(id(1), history.Started{})
				r.Completed(history.Completed{Result: history.Stopped})
				time.Sleep(10 * time.Second)
				begun := time.Now()
				k.w.Close()
				if took := time.Since(begun); took > 0 {
					t.Errorf("closing took %v", took)
				}
				if name == "refused" {
					k.metrics(0, 2, 0)
				} else {
					k.metrics(0, 0, 2)
				}
			})
		})
	}
}
