package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// TestReadersAndWriter: a reader that sees that a stream ends with number n reads event
// n; after a commit the writer sees its own facts, whatever readers cached
// meanwhile; chunks are completed and rewritten all the time.
func TestReadersAndWriter(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.OS} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			o := testOptions(fsys)
			o.StreamCache = 64 // One of a shard: facts are evicted and found again all the time.
			o.Index.MaxMemTable = 64
			if name == "disk" {
				o.Dir = t.TempDir()
			}
			l := mustOpen(t, o)
			const streams = 120
			stream := func(i int) string { return fmt.Sprint("stream ", i%streams) }
			var stop atomic.Bool
			var readers sync.WaitGroup
			for r := range 4 {
				readers.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(r), 1))
					for !stop.Load() {
						s := stream(rng.IntN(streams))
						if err := readSome(l, s); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for i := range 400 {
				if t.Failed() {
					break
				}
				f := m.frame(i%50 == 49, ev(stream(i), "x"), ev(stream(i*7), "y"), meta(stream(i*3), fmt.Sprintf(`{"$maxCount":%d}`, i+1)))
				write(t, l, f)
				for _, e := range f.events {
					info, err := l.Reads.StreamInfo(e.stream)
					if err != nil || info.Last != m.last[e.stream] || !event.IsMetaStream(e.stream) && i > 0 && info.MetaLast != lastOrNone(m, "$$"+e.stream) {
						t.Errorf("facts of %s after the commit are %+v, want last %d (%v)", e.stream, info, m.last[e.stream], err)
					}
				}
				if i%50 == 0 && i > 50 {
					check.Must(t, rewriteChunks(fsys, o.Dir, "x.tmp", []string{chunkfile.FileName(i/50-1, 0)}, keepAll))
					check.Must(t, l.SwitchChunk("x.tmp"))
				}
			}
			stop.Store(true)
			readers.Wait()
			verify(t, l, m.frames, nil)
		})
	}
}

// TestWritesAreSeenWhole: each frame has three events for a. No reader of the stream sees one
// without the others, whether its facts are cached or found again.
func TestWritesAreSeenWhole(t *testing.T) {
	for _, cached := range []int{1, 64} { // 1: the facts of a are evicted all the time
		m := newModel()
		o := testOptions(vfs.NewMem())
		o.StreamCache = cached
		l := mustOpen(t, o)
		const frames, size = 3000, 3
		frame := func(i int) testFrame {
			return m.frame(false, ev("a", "x"), ev("a", "x"), ev("a", "x"), ev(fmt.Sprint("b", i%100), "x"))
		}
		write(t, l, frame(0))
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for number := int64(-1); number < frames*size-1; {
					page, err := l.Reads.ReadStream(event.StreamRead{Stream: "a", From: event.Head, Count: 1, Backward: true})
					if len(page.Events) > 0 {
						number = page.Events[0].Number
					}
					if err != nil || number%size != size-1 && number >= 0 {
						t.Errorf("a write is seen up to event %d, %v", number, err)
						return
					}
				}
			})
		}
		for i := range frames - 1 {
			write(t, l, frame(i))
		}
		readers.Wait()
	}
}

func lastOrNone(m *model, stream string) int64 {
	if n, ok := m.last[stream]; ok {
		return n
	}
	return -1
}

func readSome(l *Log, stream string) error {
	info, err := l.Reads.StreamInfo(stream)
	if err != nil || info.Last < 0 {
		return err
	}
	rec, err := l.Reads.LastRecord(stream)
	if err != nil || rec.Number < info.Last {
		return fmt.Errorf("last record of %s is %d (%w), its last number %d", stream, rec.Number, err, info.Last)
	}
	page, err := l.Reads.ReadStream(event.StreamRead{Stream: stream, From: event.Head, Count: 3, Backward: true})
	if err != nil || page.Last < info.Last || len(page.Events) == 0 || page.Events[0].Number != page.Last {
		return fmt.Errorf("page of %s: %+v, %w; last number %d", stream, page, err, info.Last)
	}
	end := l.Settled()
	all, err := l.Reads.ReadAll(event.AllRead{From: event.End, Count: 5, Backward: true})
	// Of what another node sends, streams show events before all of a batch has come.
	if err != nil || len(all.Events) == 0 && end > 0 || all.LogEnd < end {
		return fmt.Errorf("the log from its end: %+v, %w", all, err)
	}
	for _, e := range all.Events {
		if e.Next > all.LogEnd {
			return fmt.Errorf("record at %d beyond the end %d", e.Position, all.LogEnd)
		}
		if id, ok, err := l.Reads.idAt(e.Stream, e.Number); err != nil || !ok || id != e.ID {
			return fmt.Errorf("event %d of %s is not in the index: %w", e.Number, e.Stream, err)
		}
	}
	return nil
}

// TestStaleFactsAreNotCached: facts that a reader found in a view from before a
// commit do not outlive the commit in the cache.
func TestStaleFactsAreNotCached(t *testing.T) {
	m := newModel()
	var pause atomic.Pointer[func()]
	o := testOptions(vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			if f := pause.Swap(nil); f != nil {
				(*f)()
			}
		}
		return nil
	}))
	l := mustOpen(t, o)
	write(t, l, m.frame(false, ev("s", "0"), meta("s", `{"$maxCount":7}`)))
	commit := func() { write(t, l, m.frame(false, ev("s", "more"), meta("s", `{"$maxCount":9}`))) }
	hash := chunkfile.HashStream("s")
	for range 3 {
		for i := range l.Reads.streams.shards {
			l.Reads.streams.shards[i].streams = map[uint64]*cachedStream{}
		}
		pause.Store(&commit) // While the reader reads the last event, the next one is committed.
		before := m.last["s"]
		info, err := l.Reads.StreamInfo("s")
		check.Must(t, err)
		check.MustEqual(t, info.Last, before, info)
		if info, err = l.Reads.StreamInfo("s"); err != nil || info.Last != before+1 || info.Metadata.MaxCount != 9 {
			t.Fatalf("after the commit: %+v, %v", info, err)
		}
		if s, ok, _ := l.Reads.streams.get(hash, "s"); ok && s.last != before+1 {
			t.Fatalf("cached: %+v", s)
		}
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		l := check.Value(Open(testOptions(vfs.NewMem()))).Must(t)
		write(t, l, m.frame(false, ev("s", "0")))
		type result struct {
			name string
			err  error
		}
		results := make(chan result, 10)
		wait := func(name string, f func() error) {
			go func() { results <- result{name, f()} }()
			synctest.Wait()
		}
		expect := func(name string, err error) {
			t.Helper()
			synctest.Wait()
			select {
			case r := <-results:
				if r.name != name || !errors.Is(r.err, err) {
					t.Errorf("%s ended with %v, want %s with %v", r.name, r.err, name, err)
				}
			default:
				t.Errorf("nothing ended, want %s", name)
			}
		}
		none := func() {
			t.Helper()
			synctest.Wait()
			select {
			case r := <-results:
				t.Errorf("%s ended with %v", r.name, r.err)
			default:
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait("there already", func() error { return l.Reads.WaitStream(ctx, "s", -1) })
		expect("there already", nil)
		wait("log there already", func() error { return l.Reads.WaitLog(ctx, 0) })
		expect("log there already", nil)

		wait("stream", func() error { return l.Reads.WaitStream(ctx, "s", 1) })
		write(t, l, m.frame(false, ev("other", "0")))
		none()
		write(t, l, m.frame(false, ev("s", "1")))
		none() // Woken, looked, and waits on.
		write(t, l, m.frame(false, ev("s", "2")))
		expect("stream", nil)

		wait("any of three", func() error { return l.Reads.WaitStreams(ctx, []string{"none", "s", "x"}, []int64{-1, 2, -1}) })
		write(t, l, m.frame(false, ev("other", "1")))
		none()
		write(t, l, m.frame(false, ev("x", "0"), ev("s", "3"))) // Two of them at once.
		expect("any of three", nil)

		wait("log", func() error { return l.Reads.WaitLog(ctx, m.tail.End) })
		none()
		write(t, l, m.frame(false, ev("other", "1")))
		expect("log", nil)

		// While a commit runs the facts of streams lag behind the tail.
		l.appender.unsettled.Store(m.tail.End)
		wait("log whose streams are not there yet", func() error { return l.Reads.WaitLog(ctx, m.tail.End-1) })
		none()
		write(t, l, m.frame(false, ev("other", "2")))
		expect("log whose streams are not there yet", nil)

		wait("deleted", func() error { return l.Reads.WaitStream(ctx, "s", 100) })
		write(t, l, m.frame(false, tombstone("s")))
		expect("deleted", nil)

		// A metadata stream is deleted with what it describes, at any depth.
		for _, stream := range []string{"$$u", "$$$$u"} {
			wait("deleted with its original", func() error { return l.Reads.WaitStream(ctx, stream, 100) })
			wait("deleted with its original", func() error { return l.Reads.WaitStreams(ctx, []string{"x", stream}, []int64{0, 100}) })
		}
		write(t, l, m.frame(false, ev("u", "0")))
		none()
		write(t, l, m.frame(false, tombstone("u")))
		for range 4 {
			expect("deleted with its original", nil)
		}

		write(t, l, m.frame(false, ev("r", "0")))
		wait("revived", func() error { return l.Reads.WaitStream(ctx, "r", 0) })
		write(t, l, m.frame(false, ev("$$r", `{"$tb":9223372036854775807}`)))
		none()
		write(t, l, m.frame(false, ev("r", "1"), ev("$$r", `{"$tb":1}`)))
		expect("revived", nil)

		wait("of no stream", func() error { return l.Reads.WaitStreams(ctx, nil, nil) })
		wait("cancelled", func() error { return l.Reads.WaitStream(ctx, "new", -1) })
		none()
		cancel()
		synctest.Wait()
		for range 2 {
			if r := <-results; r.err != context.Canceled {
				t.Errorf("%s ended with %v", r.name, r.err)
			}
		}
		timeout, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		wait("timed out", func() error { return l.Reads.WaitLog(timeout, m.tail.End) })
		time.Sleep(2 * time.Second)
		expect("timed out", context.DeadlineExceeded)
		if n := len(l.Reads.notify.streams); n != 0 || l.Reads.notify.waiting.Load() != 0 {
			t.Errorf("%d streams have waiters, %d wait", n, l.Reads.notify.waiting.Load())
		}

		wait("closed", func() error { return l.Reads.WaitStream(t.Context(), "new", -1) })
		check.Must(t, l.Close())
		expect("closed", event.ErrClosed)
		wait("log closed", func() error { return l.Reads.WaitLog(t.Context(), m.tail.End) })
		expect("log closed", event.ErrClosed)
	})
}

// TestWaitersSleep: those who wait for a position look when they begin to wait and when the log is
// there, not at each event before.
func TestWaitersSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		l := mustOpen(t, testOptions(vfs.NewMem()))
		const waiters = 1000
		var looks atomic.Int64
		var all sync.WaitGroup
		at := m.tail.End + 1<<12
		for i := range waiters {
			all.Go(func() {
				check.NoError(t, l.Reads.notify.waitFor(t.Context(), at+int64(i%2), func() (bool, error) {
					looks.Add(1)
					return l.Reads.Settled() > at+int64(i%2), nil
				}, nil))
			})
		}
		for events := 0; m.tail.End <= at+1; events++ {
			synctest.Wait()
			check.Equal(t, looks.Load(), waiters, "looks after", events, "events")
			write(t, l, m.frame(false, ev("s", "x")))
		}
		all.Wait()
		check.Equal(t, looks.Load(), 2*waiters, "looks")
		check.Must(t, l.Close())
	})
}

// TestWaitMissesNothing: waiters follow a writer from event to event.
func TestWaitMissesNothing(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	const events = 300
	var followers sync.WaitGroup
	for i := range 4 {
		followers.Go(func() {
			for n := int64(-1); n < events-1; n++ {
				var err error
				if i%2 == 0 {
					err = l.Reads.WaitStream(t.Context(), "s", n)
				} else {
					// Below the end of the next one.
					err = l.Reads.WaitLog(t.Context(), (n+1)*(chunkfile.RecordFixed+3+chunkfile.TrailerSize))
				}
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 {
					if info, err := l.Reads.StreamInfo("s"); err != nil || info.Last <= n {
						t.Errorf("woken for %d: %+v, %v", n, info, err)
						return
					}
				}
			}
		})
	}
	for range events {
		write(t, l, m.frame(false, ev("s", "x")))
	}
	followers.Wait()
}

// TestCacheAgainstCommits: readers that began before a commit never leave what they
// found in the cache: the next event's number is decided there.
func TestCacheAgainstCommits(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frame(false, ev("s", "")))
	sh := l.Reads.streams.shard(chunkfile.HashStream("s"))
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for !stop.Load() {
				if _, err := l.Reads.StreamInfo("s"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 15_000 {
		f := m.frame(false, ev("s", ""))
		m.frames = m.frames[:0]
		check.Must(t, l.Append(f.Frame))
		sh.mu.Lock()
		clear(sh.streams) // Evicted, as others would make it.
		sh.mu.Unlock()
		check.Must(t, l.Commit())
		if info, err := l.Reads.StreamInfo("s"); err != nil || info.Last != m.last["s"] {
			t.Errorf("last event %d, want %d (%v)", info.Last, m.last["s"], err)
			break
		}
	}
	stop.Store(true)
	readers.Wait()
}

// TestSettled: what lies before the settled end is seen by reads of streams.
func TestSettled(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	const events, size = 2000, chunkfile.RecordFixed + 3 + chunkfile.TrailerSize
	write(t, l, m.frame(false, ev("s", "0")))
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				end := l.Settled()
				info, err := l.Reads.StreamInfo("s")
				if err != nil || (info.Last+1)*size < end {
					t.Errorf("settled at %d: %+v, %v", end, info, err)
					return
				}
				if info.Last == events-1 {
					return
				}
			}
		})
	}
	for range events - 1 {
		write(t, l, m.frame(false, ev("s", "x")))
	}
	readers.Wait()
	check.Equal(t, l.Settled(), l.Tail().End, "settled at")
	// Nor do reads of the log see more, whichever way they go.
	last := l.Tail().End - size
	l.appender.unsettled.Store(last + 1)
	for _, from := range []int64{last - size, event.End} {
		page, err := l.Reads.ReadAll(event.AllRead{From: from, Count: events, Backward: from == event.End})
		check.Must(t, err)
		if len(page.Events) == 0 || page.Events[0].Number != events-2 || from != event.End && len(page.Events) > 1 || page.LogEnd != last {
			t.Errorf("from %d: %+v, settled at %d", from, page, last)
		}
	}
	l.appender.unsettled.Store(0)
	closeLog(t, l)
}

// TestLinksAtTheEnd: a read of the log that resolves links finds the targets that lie before them,
// also of what is being committed.
func TestLinksAtTheEnd(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	const frames, links = 150, 100
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for from, seen := int64(0), 0; seen < frames*links; {
				page, err := l.Reads.ReadAll(event.AllRead{From: from, Count: 10 * links, Links: event.EveryLink})
				if err != nil {
					t.Error(err)
					return
				}
				for i := range page.Events {
					e := &page.Events[i]
					if e.Type != event.TypeLink {
						continue
					}
					if seen++; e.Link != event.LinkResolved {
						t.Errorf("the link at %d is dead, the log ends at %d", e.Position, page.LogEnd)
						return
					}
				}
				from = page.Next
			}
		})
	}
	for i := range frames {
		all := make([]testEvent, 0, 2*links)
		for range links {
			all = append(all, ev("s", "x"))
		}
		for j := range links {
			all = append(all, testEvent{stream: "l", typ: event.TypeLink, data: fmt.Sprintf("%d@s", i*links+j)})
		}
		write(t, l, m.frame(false, all...))
	}
	readers.Wait()
	closeLog(t, l)
}
