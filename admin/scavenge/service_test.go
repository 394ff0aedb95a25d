package scavenge_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

// run scavenges once and returns how that ended.
func (h *house) run(r scavenge.Request) scavenge.Status {
	h.t.Helper()
	id := check.Value(h.service.Start(r)).Must(h.t, "start")
	status := check.Value(h.service.Wait(context.Background(), id)).Must(h.t, "wait")
	return status
}

// on opens the log again on a file system, with a service of its own: the one before is closed.
func (h *house) on(fsys vfs.FS, o scavenge.Options) {
	h.t.Helper()
	err := h.log.Close()
	if err == nil {
		h.log, err = eventlog.Open(eventlog.Options{Dir: "db", FS: fsys, ClusterID: h.m.cluster, SkipVerify: true, Now: func() time.Time { return time.Unix(0, h.m.clock) }})
	}
	check.Must(h.t, err)
	o.Log, o.FS, o.Dir, o.Write, o.History = func() (*eventlog.Log, error) { return h.log, nil }, h.disk, "db/index/scavenging", h.writePoint, h.history
	h.service = scavenge.New(o)
}

// opened is a house with a log that is open until the test ends.
func opened(t *testing.T, options func(*scavenge.Options)) *house {
	h := newHouse(t, 1)
	if options != nil {
		h.opts = options
	}
	h.open()
	t.Cleanup(h.close)
	return h
}

func plain(stream, data string) proposed {
	return proposed{stream: stream, typ: "type", data: []byte(data)}
}

func metadataOf(stream, data string) proposed {
	return proposed{stream: event.MetaStreamOf(stream), typ: event.TypeMetadata, flags: event.FlagJSON, data: []byte(data)}
}

func TestNothingHasRunYet(t *testing.T) {
	h := opened(t, nil)
	if got := h.service.Last(); got.Result != scavenge.ResultUnknown || !got.ID.IsZero() || got.Phase != scavenge.PhaseIdle {
		t.Errorf("last: %+v", got)
	}
	if got := h.service.Current(); !got.ID.IsZero() || got.Phase != scavenge.PhaseIdle {
		t.Errorf("current: %+v", got)
	}
	for _, id := range []event.ID{{}, event.ID(uuid.New())} {
		if _, err := h.service.Stop(context.Background(), id); !errors.Is(err, scavenge.ErrNoSuchRun) {
			t.Errorf("stop %v: %v", id, err)
		}
		if _, err := h.service.Wait(context.Background(), id); !errors.Is(err, scavenge.ErrNoSuchRun) {
			t.Errorf("wait for %v: %v", id, err)
		}
	}
}

func TestStartRefused(t *testing.T) {
	var lock chunklock.Lock
	held := check.Value(lock.TryLock()).Must(t)
	cases := []struct {
		name    string
		options func(*scavenge.Options)
		want    error
	}{
		{"in memory", func(o *scavenge.Options) { o.InMemory = true }, scavenge.ErrInMemory},
		{"no log yet", func(o *scavenge.Options) { o.Log = func() (*eventlog.Log, error) { return nil, event.ErrNotReady } }, event.ErrNotReady},
		{"another job", func(o *scavenge.Options) { o.Lock = &lock }, event.ErrChunksLocked},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := opened(t, c.options)
			check.Is(t, check.Err(h.service.Start(scavenge.Request{})), c.want, "start")
		})
	}
	held.Unlock()
	h := opened(t, func(o *scavenge.Options) { o.Lock = &lock })
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess {
		t.Errorf("after the other job: %+v", got)
	}
	if again, err := lock.TryLock(); err != nil {
		t.Errorf("the run did not let go of the lock: %v", err)
	} else {
		again.Unlock()
	}
	h.service.Close()
	if _, err := h.service.Start(scavenge.Request{}); !errors.Is(err, event.ErrClosed) {
		t.Errorf("start of a closed service: %v", err)
	}
}

func TestOneAtATimeAndStop(t *testing.T) {
	asked := make(chan struct{})
	var once atomic.Bool
	h := opened(t, func(o *scavenge.Options) {
		write := o.Write
		o.Write = func(ctx context.Context, w *event.Write) (event.Written, error) {
			if once.CompareAndSwap(false, true) {
				close(asked)
				<-ctx.Done() // A cluster without a leader.
				return event.Written{}, ctx.Err()
			}
			return write(ctx, w)
		}
	})
	h.append(plain("a", "x"))
	id := check.Value(h.service.Start(scavenge.Request{Threads: 9, ThrottlePercent: 100})).Must(t)
	<-asked
	check.Is(t, check.Err(h.service.Start(scavenge.Request{})), scavenge.ErrRunning, "second start")
	if got := h.service.Current(); got.ID != id || got.Result != scavenge.ResultInProgress || got.Request.Threads != scavenge.MaxThreads {
		t.Errorf("current: %+v", got)
	}
	if _, err := h.service.Stop(context.Background(), event.ID(uuid.New())); !errors.Is(err, scavenge.ErrNoSuchRun) {
		t.Errorf("stop of another: %v", err)
	}
	if got, err := h.service.Stop(context.Background(), event.ID{}); err != nil || got != id {
		t.Errorf("stop: %v, %v", got, err)
	}
	if got := h.service.Last(); got.ID != id || got.Result != scavenge.ResultStopped || got.Ended.IsZero() {
		t.Errorf("last: %+v", got)
	}
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess || got.ID == id {
		t.Errorf("right after the stop: %+v", got)
	}
}

func TestPoints(t *testing.T) {
	h := opened(t, nil)
	h.append(plain("a", "x"))
	if got := h.run(scavenge.Request{SyncOnly: true}); got.Result != scavenge.ResultSuccess || got.Point != nil || len(h.m.points) != 0 {
		t.Fatalf("sync only without a point: %+v", got)
	}
	got := h.run(scavenge.Request{Threshold: 3})
	if got.Point == nil || got.Point.Number != 0 || got.Point.Threshold != 3 || got.Point.Position != h.m.points[0].position || got.Point.EffectiveNow.UnixNano() != h.m.points[0].time {
		t.Fatalf("first point: %+v", got.Point)
	}
	if got := h.run(scavenge.Request{SyncOnly: true}); got.Result != scavenge.ResultSuccess || got.Point != nil || len(h.m.points) != 1 {
		t.Fatalf("sync only with nothing new: %+v", got)
	}
	// Points that others make: the newest counts, and its threshold.
	for n := range 3 {
		h.append(plain("a", "y"))
		h.append(proposed{stream: event.ScavengePointsStream, typ: event.TypeScavengePoint, flags: event.FlagJSON, data: fmt.Appendf(nil, `{"threshold":%d}`, 10+n)})
	}
	if got := h.run(scavenge.Request{Threshold: 5, SyncOnly: true}); got.Point == nil || got.Point.Number != 3 || got.Point.Threshold != 12 {
		t.Fatalf("points of others: %+v", got.Point)
	}
	if got := h.run(scavenge.Request{}); got.Point == nil || got.Point.Number != 4 || got.Point.Threshold != 0 {
		t.Fatalf("next point: %+v", got.Point)
	}
}

func TestPointRace(t *testing.T) {
	var h *house
	raced := false
	h = opened(t, func(o *scavenge.Options) {
		write := o.Write
		o.Write = func(ctx context.Context, w *event.Write) (event.Written, error) {
			if !raced {
				raced = true
				h.append(proposed{stream: event.ScavengePointsStream, typ: event.TypeScavengePoint, flags: event.FlagJSON, data: []byte(`{"threshold":7}`)})
			}
			return write(ctx, w)
		}
	})
	h.append(plain("a", "x"))
	got := h.run(scavenge.Request{Threshold: 1})
	if got.Result != scavenge.ResultSuccess || got.Point == nil || got.Point.Number != 0 || got.Point.Threshold != 7 || len(h.m.points) != 1 {
		t.Fatalf("%+v, point %+v", got, got.Point)
	}
}

func TestPointCannotBeWritten(t *testing.T) {
	refuse := true
	h := opened(t, func(o *scavenge.Options) {
		write := o.Write
		o.Write = func(ctx context.Context, w *event.Write) (event.Written, error) {
			if refuse {
				return event.Written{}, event.ErrNotReady
			}
			return write(ctx, w)
		}
	})
	h.append(plain("a", "x"))
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultErrored || !strings.Contains(got.Error, "scavenge point") {
		t.Fatalf("%+v", got)
	}
	refuse = false
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess {
		t.Fatalf("%+v", got)
	}
}

func TestSkippedChunkKeepsItsEventsUntilItWeighsEnough(t *testing.T) {
	h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
	for range 4 {
		h.append(plain("a", "x"))
	}
	h.append(metadataOf("a", `{"$maxCount":1}`))
	got := h.run(scavenge.Request{Threshold: 7}) // Three events that go weigh 6.
	h.m.decide(h.m.points[0])
	if got.Executed != 0 || got.Skipped != 1 || got.Removed != 0 {
		t.Fatalf("below the threshold: %+v", got)
	}
	h.m.check(t, h.log, false)
	if found := h.m.checkAll(t, h.log); !found[h.m.streams["a"][0].position] {
		t.Fatal("the event is gone from the log")
	}
	// What was decided does not come back to readers, whatever is said now.
	h.append(metadataOf("a", `{}`))
	h.m.check(t, h.log, false)
	got = h.run(scavenge.Request{Threshold: 6}) // With the metadata that were replaced it is 8.
	h.m.decide(h.m.points[1])
	if got.Executed != 1 || got.Removed != 4 {
		t.Fatalf("at the threshold: %+v", got)
	}
	h.m.check(t, h.log, false)
}

func TestNegativeThresholdExecutesEverything(t *testing.T) {
	h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
	for range 3 {
		h.append(plain("a", "x"))
		if got := h.run(scavenge.Request{}); got.Executed != 0 {
			t.Fatalf("nothing weighs anything: %+v", got)
		}
	}
	if got := h.run(scavenge.Request{Threshold: -1}); got.Executed != 3 || got.Skipped != 0 || got.Removed != 0 {
		t.Fatalf("%+v", got)
	}
}

func TestEraseIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		h := newHouse(t, 1)
		h.opts = func(o *scavenge.Options) {
			o.Erase = func(_ context.Context, position int64) error {
				if tries.Add(1) < 3 {
					return event.ErrNotReady
				}
				check.Equal(t, position, chunkfile.ChunkSize, "erase up to")
				return nil
			}
		}
		h.open()
		defer h.close()
		h.append(plain("a", "x"), plain("a", "y"))
		h.append(metadataOf("a", `{"$maxCount":1}`))
		if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess || tries.Load() != 1 {
			t.Fatalf("%+v after %d tries", got, tries.Load())
		}
		time.Sleep(time.Minute) // Of the bubble's clock.
		synctest.Wait()
		check.Equal(t, tries.Load(), 3, "tries")
	})
}

// A process that ends before the Raft log could be compacted leaves that to the next one, however
// it ends.
func TestEraseOutlivesTheProcess(t *testing.T) {
	for _, c := range []struct {
		name  string
		end   func(*house)
		wants []int64 // positions that the next processes erase up to
	}{
		{"closed", (*house).close, []int64{chunkfile.ChunkSize}},
		{"power cut", (*house).crash, []int64{chunkfile.ChunkSize}},
		{"what is known of scavenging goes", func(h *house) {
			h.close()
			check.Must(h.t, h.fsys.RemoveAll(filepath.Join("db", "index", scavenge.Folder)))
		}, []int64{chunkfile.ChunkSize}},
		{"the file is damaged", func(h *house) {
			h.close()
			check.Must(h.t, vfs.WriteFileAtomic(h.fsys, filepath.Join("db", "erase.pending"), []byte("?")))
		}, []int64{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex // guards the fields below
				refuse, erased := true, []int64(nil)
				h := newHouse(t, 1)
				h.opts = func(o *scavenge.Options) {
					o.PendingDir = "db"
					o.Erase = func(_ context.Context, position int64) error {
						mu.Lock()
						defer mu.Unlock()
						if refuse {
							return event.ErrNotReady
						}
						erased = append(erased, position)
						return nil
					}
				}
				h.open()
				h.append(plain("a", "x"), plain("a", "y"))
				h.append(metadataOf("a", `{"$maxCount":1}`))
				if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess || got.Removed != 1 {
					t.Fatalf("%+v", got)
				}
				c.end(h)
				h.open() // It cannot erase either.
				time.Sleep(time.Minute)
				h.close()
				mu.Lock()
				refuse = false
				mu.Unlock()
				for range 2 { // Once is enough.
					h.open()
					time.Sleep(time.Minute)
					synctest.Wait()
					h.close()
				}
				check.Slice(t, erased, c.wants, "erased up to")
			})
		})
	}
}

// A run that cannot write down what is left to erase has not succeeded, and the next one erases.
func TestEraseThatCannotBeWrittenDown(t *testing.T) {
	var tries atomic.Int64
	h := opened(t, func(o *scavenge.Options) {
		o.PendingDir = "missing"
		o.Erase = func(context.Context, int64) error {
			if tries.Add(1) == 1 {
				return event.ErrNotReady
			}
			return nil
		}
	})
	h.append(plain("a", "x"), plain("a", "y"))
	h.append(metadataOf("a", `{"$maxCount":1}`))
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultErrored || !strings.Contains(got.Error, "erase.pending") {
		t.Fatalf("%+v", got)
	}
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess || !got.Resumed || tries.Load() != 2 {
		t.Fatalf("%+v after %d tries", got, tries.Load())
	}
}

func TestEstimate(t *testing.T) {
	h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
	for n := range 10 {
		h.append(plain("counted", "0123456789"), plain("kept", "0123456789"), plain("deleted", strings.Repeat("x", n)), plain("cut", "0"))
	}
	h.append(metadataOf("counted", `{"$maxCount":2}`), metadataOf("cut", `{"truncateBefore":3}`), metadataOf("kept", `{"$maxCount":100}`))
	h.append(metadataOf("kept", `{"$maxCount":200}`))
	h.append(proposed{stream: "deleted", typ: event.TypeStreamDeleted, flags: event.FlagDeleted})
	estimate, err := h.service.Estimate(context.Background(), scavenge.EstimateOptions{Top: 3})
	check.Must(t, err)
	type stream struct {
		name   string
		events int64
		why    string
	}
	var streams []stream
	for _, s := range estimate.Streams {
		streams = append(streams, stream{s.Stream, s.Events, s.Why})
	}
	if want := []stream{{"counted", 8, "$maxCount"}, {"deleted", 10, "deleted"}, {"cut", 3, "$tb"}}; !slices.Equal(streams, want) && !slices.Equal(streams, []stream{want[1], want[0], want[2]}) {
		t.Errorf("streams: %v", streams)
	}
	if len(estimate.Kept) == 0 || estimate.Kept[0].Stream != "kept" || estimate.Kept[0].Why != "$maxCount 200 leaves all that is there" {
		t.Errorf("kept: %+v", estimate.Kept)
	}
	if len(estimate.Chunks) != 1 || !estimate.Chunks[0].Executed || estimate.Chunks[0].Events != 22 || estimate.Events != 22 {
		t.Errorf("%+v", estimate)
	}
	if got := h.run(scavenge.Request{}); got.Removed != estimate.Events {
		t.Errorf("%d events went, the estimate said %d", got.Removed, estimate.Events)
	}
	if estimate, err = h.service.Estimate(context.Background(), scavenge.EstimateOptions{Top: 3}); err != nil || estimate.Events != 0 || len(estimate.Streams) != 0 {
		t.Errorf("after the run: %+v, %v", estimate, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := h.service.Estimate(ctx, scavenge.EstimateOptions{Top: 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A point counts even if metadata hide it from readers of its stream.
func TestPointsHiddenByMetadata(t *testing.T) {
	for name, document := range map[string]string{"truncated beyond the end": `{"$tb":1000}`, "deleted": `{"$tb":9223372036854775807}`, "too old": `{"$maxAge":1}`} {
		t.Run(name, func(t *testing.T) {
			h := opened(t, nil)
			h.append(plain("a", "x"))
			if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess {
				t.Fatalf("first: %+v", got)
			}
			h.append(metadataOf(event.ScavengePointsStream, document))
			h.append(proposed{stream: event.ScavengePointsStream, typ: event.TypeScavengePoint, flags: event.FlagJSON, data: []byte(`{"threshold":7}`)})
			h.append(proposed{stream: event.ScavengePointsStream, typ: "else"})
			h.m.advance(time.Hour)
			// That of another node, then own ones; 2 is something else.
			for _, number := range []int64{1, 3, 4} {
				got := h.run(scavenge.Request{})
				if got.Result != scavenge.ResultSuccess || got.Point == nil || got.Point.Number != number {
					t.Fatalf("point %d: %+v, %+v", number, got, got.Point)
				}
			}
		})
	}
}

// What was redacted decides which events conditions find: no scavenge removes it.
func TestRedactionsStay(t *testing.T) {
	for name, limit := range map[string]proposed{
		"limited": metadataOf(event.RedactionsStream, `{"$maxCount":1}`),
		"aged":    metadataOf(event.RedactionsStream, `{"$maxAge":1}`),
		"deleted": {stream: event.RedactionsStream, typ: event.TypeStreamDeleted, flags: event.FlagDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			h := opened(t, nil)
			h.append(plain(event.RedactionsStream, "0"), plain(event.RedactionsStream, "1"), plain("a", "0"), plain("a", "1"))
			h.append(metadataOf("a", `{"$maxCount":1}`), limit)
			h.m.advance(time.Hour)
			estimate := check.Value(h.service.Estimate(t.Context(), scavenge.EstimateOptions{Top: 3})).Must(t)
			if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess || got.Removed != 1 || estimate.Events != 1 {
				t.Fatalf("%+v, estimated %+v", got, estimate)
			}
			for n := range int64(2) {
				places := check.Value(h.log.Chunks.EventPositions(event.RedactionsStream, n)).Must(t)
				check.Equal(t, len(places), 1, "record", n)
			}
		})
	}
}

// It may be asked all the time.
func TestStatusWhileItRuns(t *testing.T) {
	h := opened(t, nil)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, s := range []scavenge.Status{h.service.Current(), h.service.Last()} {
				if s.Point != nil && s.Point.EffectiveNow.IsZero() || s.Total > 0 && s.Done > s.Total {
					t.Errorf("%+v", s)
				}
			}
		}
	})
	for range 20 {
		h.append(plain("a", "x"))
		h.append(metadataOf("a", `{"$maxCount":1}`))
		h.run(scavenge.Request{})
	}
	close(stop)
	asking.Wait()
}

// Who learns of a run's end from Last can start the next one.
func TestStartWhenLastHasEnded(t *testing.T) {
	h := opened(t, nil)
	for range 100 {
		id, err := h.service.Start(scavenge.Request{SyncOnly: true})
		check.Must(t, err, "start after the end of the last run")
		for h.service.Last().Result == scavenge.ResultInProgress {
			runtime.Gosched()
		}
		if got := h.service.Current(); got.ID == id {
			t.Fatalf("the run has ended and is running: %+v", got)
		}
	}
}

// An error of the store that looks like the end of a context is a failure unless someone stopped
// the run.
func TestNobodyStoppedTheRun(t *testing.T) {
	h := opened(t, func(o *scavenge.Options) {
		o.Write = func(context.Context, *event.Write) (event.Written, error) { return event.Written{}, context.Canceled }
	})
	h.append(plain("a", "x"))
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultErrored {
		t.Errorf("%+v", got)
	}
}

// As long as the Raft log cannot be compacted, one attempt at a time stands for all runs that asked
// for it.
func TestEraseIsAwaitedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the fields below
		refuse, tries := true, []int64(nil)
		h := newHouse(t, 1)
		h.opts = func(o *scavenge.Options) {
			o.Erase = func(_ context.Context, position int64) error {
				mu.Lock()
				defer mu.Unlock()
				tries = append(tries, position/chunkfile.ChunkSize)
				if refuse {
					return event.ErrNotReady
				}
				return nil
			}
		}
		h.open()
		defer h.close()
		for range 3 {
			h.append(plain("a", "x"), plain("a", "y"))
			h.append(metadataOf("a", `{"$maxCount":1}`))
			if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess {
				t.Fatalf("%+v", got)
			}
		}
		time.Sleep(15 * time.Second) // Of the bubble's clock.
		synctest.Wait()
		mu.Lock()
		refuse = false
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		check.Slice(t, tries, []int64{1, 2, 3, 3, 3}, "erased up to chunks")
	})
}

// recorded keeps what the run gave to the history.
type recorded struct {
	noStore
	once   sync.Once
	failed chan struct{} // closed when an event reported a bad block

	mu     sync.Mutex
	events []event.Proposed
}

func (r *recorded) WriteOwn(_ context.Context, w *event.Write) (event.Written, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, w.Events...)
	if strings.Contains(string(w.Events[0].Data), "a bad block") {
		r.once.Do(func() { close(r.failed) })
	}
	return event.Written{}, nil
}

// When a chunk file cannot be executed, the others that were worked on have no error of their own.
func TestOneChunkFails(t *testing.T) {
	store := &recorded{failed: make(chan struct{})}
	h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
	for range 6 {
		for range 2000 {
			h.append(plain("a", "x"))
		}
		h.append(metadataOf("a", `{"$maxCount":1000000}`))
		h.run(scavenge.Request{})
	}
	h.append(metadataOf("a", `{"$maxCount":1}`))
	h.service.Close()
	h.history.Close()
	h.history = history.New(history.Options{Store: store, Endpoint: func() string { return "test" }})
	// The third file that is made cannot be; the others wait until that is recorded.
	damage := errors.New("a bad block")
	var made atomic.Int64
	fsys := vfs.NewFaulty(h.disk, func(op vfs.Op) error {
		if op.Kind != vfs.OpCreate || !strings.HasSuffix(op.Name, ".scavenge.tmp") {
			return nil
		}
		if made.Add(1) == 3 {
			return damage
		}
		<-store.failed
		return nil
	})
	h.on(fsys, scavenge.Options{DisableMerging: true})
	if got := h.run(scavenge.Request{Threads: 4}); got.Result != scavenge.ResultErrored || !strings.Contains(got.Error, "a bad block") {
		t.Fatalf("%+v", got)
	}
	h.service.Close()
	h.history.Close()
	failed := 0
	for _, e := range store.events {
		if e.Type == history.TypeChunksCompleted && strings.Contains(string(e.Data), "a bad block") {
			failed++
		}
	}
	check.Equal(t, failed, 1, "chunk files are said to have failed")
}

func TestInterrupt(t *testing.T) {
	asked := make(chan struct{}, 1)
	h := opened(t, func(o *scavenge.Options) {
		o.Write = func(ctx context.Context, w *event.Write) (event.Written, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return event.Written{}, ctx.Err()
		}
	})
	h.service.Interrupt(event.ErrChunksFetched) // Nothing runs.
	h.append(plain("a", "x"))
	id := check.Value(h.service.Start(scavenge.Request{})).Must(t)
	<-asked
	h.service.Interrupt(event.ErrChunksFetched)
	if got := h.service.Last(); got.ID != id || got.Result != scavenge.ResultErrored || got.Error != event.ErrChunksFetched.Error() {
		t.Errorf("%+v", got)
	}
}

func TestDatabaseIsClosedWhenItCannotBeWritten(t *testing.T) {
	var fail atomic.Bool
	counting := new(vfs.Counting)
	h := opened(t, func(o *scavenge.Options) {
		counting = vfs.NewCounting(vfs.NewFaulty(o.FS, func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, "scavenging.db-wal") && fail.Load() {
				return errPowerCut
			}
			return nil
		}))
		o.FS = counting
	})
	h.append(plain("a", "x"))
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess {
		t.Fatalf("%+v", got)
	}
	fail.Store(true)
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultErrored {
		t.Fatalf("%+v", got)
	}
	if open := counting.OpenFiles(); len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
	fail.Store(false)
	if got := h.run(scavenge.Request{}); got.Result != scavenge.ResultSuccess {
		t.Fatalf("%+v", got)
	}
}

// TestInterruptInExecution: a run that is interrupted while it writes a chunk file says why, and
// nothing else.
func TestInterruptInExecution(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
		for range 2000 {
			h.append(plain("a", "x"))
		}
		h.append(metadataOf("a", `{"$maxCount":1}`))
		h.service.Close()
		at, goOn := make(chan struct{}), make(chan struct{})
		fsys := vfs.NewFaulty(h.disk, func(op vfs.Op) error {
			if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, ".scavenge.tmp") {
				close(at)
				<-goOn
			}
			return nil
		})
		h.on(fsys, scavenge.Options{DisableMerging: true})
		check.Must(t, check.Err(h.service.Start(scavenge.Request{})))
		<-at
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.service.Interrupt(event.ErrChunksFetched)
		}()
		synctest.Wait()
		close(goOn)
		<-done
		if got := h.service.Last(); got.Result != scavenge.ResultErrored || got.Error != event.ErrChunksFetched.Error() {
			t.Errorf("%s %q", got.Result, got.Error)
		}
	})
}

// TestRunsFollowEachOther: the history has the end of a run before the begin of the next, however
// soon that is started.
func TestRunsFollowEachOther(t *testing.T) {
	store := &recorded{failed: make(chan struct{})}
	h := opened(t, func(o *scavenge.Options) { o.DisableMerging = true })
	h.append(plain("a", "x"))
	h.service.Close()
	h.history.Close()
	h.history = history.New(history.Options{Store: store, Endpoint: func() string { return "test" }})
	h.service = scavenge.New(scavenge.Options{
		Log: func() (*eventlog.Log, error) { return h.log, nil }, FS: h.disk, Dir: "db/index/scavenging", Write: h.writePoint, History: h.history, DisableMerging: true,
	})
	for runs := 0; runs < 20; {
		_, err := h.service.Start(scavenge.Request{})
		if err == nil {
			runs++
		} else if !errors.Is(err, scavenge.ErrRunning) && !errors.Is(err, event.ErrChunksLocked) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	h.service.Close()
	h.history.Close()
	running := 0
	for _, e := range store.events {
		switch e.Type {
		case history.TypeStarted:
			if running++; running > 1 {
				t.Fatal("a run began in the history before the one before it had ended there")
			}
		case history.TypeCompleted:
			running--
		}
	}
}
