package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

var background = context.Background()

// keepNot keeps every record but the removed ones.
func keepNot(removed map[int64]bool) func(*Stored) bool {
	return func(s *Stored) bool { return !removed[s.Position] }
}

// within returns those of some positions that lie in a range of chunks.
func within(removed map[int64]bool, first, last int) map[int64]bool {
	removed = maps.Clone(removed)
	maps.DeleteFunc(removed, func(p int64, _ bool) bool { return chunkfile.ChunkNumber(p) < first || chunkfile.ChunkNumber(p) > last })
	return removed
}

// onBoth runs a test in memory, where files are read, and on disk, where they are mapped.
func onBoth(t *testing.T, f func(t *testing.T, o Options)) {
	t.Run("memory", func(t *testing.T) { f(t, testOptions(vfs.NewMem())) })
	t.Run("disk", func(t *testing.T) {
		o := testOptions(vfs.OS)
		o.Dir = t.TempDir()
		f(t, o)
	})
}

// checkFiles verifies all complete chunk files: content, map, footer, checksum.
func checkFiles(t testing.TB, l *Log) {
	t.Helper()
	v := check.Value(l.view()).Must(t)
	defer v.release()
	for _, c := range v.set.chunks {
		if !c.Complete {
			continue
		}
		check.Must(t, check.Err(c.CheckContent()))
		check.Must(t, c.Verify(func(int64) error { return nil }))
	}
}

func noTemps(t testing.TB, l *Log) {
	t.Helper()
	names := check.Value(l.opts.FS.List(l.opts.Dir)).Must(t)
	for _, n := range names {
		if strings.HasSuffix(n, vfs.TempSuffix) {
			t.Fatalf("%s is left", n)
		}
	}
}

// stubsOf lists the positions of all stubs.
func stubsOf(t testing.TB, l *Log) (at []int64) {
	t.Helper()
	v := check.Value(l.view()).Must(t)
	defer v.release()
	cu := cursor{v: v}
	check.Must(t, cu.seekForward(0))
	for {
		it, position, err := cu.next()
		check.Must(t, err)
		if it == nil {
			return at
		}
		if it.IsStub() {
			at = append(at, position)
		}
	}
}

func TestRewrite(t *testing.T) {
	cases := map[string]struct {
		first, last int
		ids         int64
	}{
		"one chunk":                   {1, 1, math.MaxInt64},
		"one chunk, all stubs":        {1, 1, 0},
		"two merged":                  {0, 1, math.MaxInt64},
		"all merged, stubs of a half": {0, 2, chunkfile.ChunkSize + 500},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, o Options) {
				m := newModel()
				counting := vfs.NewCounting(o.FS)
				o.FS = counting
				l := mustOpen(t, o)
				write(t, l, m.someFrames(17, true)...)
				removed, _ := scavenged(m, 3*chunkfile.ChunkSize)
				removed = within(removed, c.first, c.last)
				var wantStubs []int64
				var want Rewritten
				for _, f := range m.frames {
					for i, e := range f.events {
						if !removed[e.position] {
							continue
						}
						if e.position >= c.ids {
							wantStubs = append(wantStubs, e.position)
						}
						end := f.First + int64(len(f.Records))
						if i+1 < len(f.events) {
							end = f.events[i+1].position
						}
						want.Removed++
						want.RemovedBytes += end - e.position
					}
				}
				before, err := l.Chunks.List()
				check.Must(t, err)
				old := 0
				for _, b := range before[c.first : c.last+1] {
					want.OldBytes += b.FileBytes
					old += b.Records
				}
				paced := int64(0)
				got, err := l.Chunks.Rewrite(background, Rewrite{
					First: c.first, Last: c.last, Keep: keepNot(removed), IDsFrom: c.ids,
					Pace: func(_ context.Context, n int64) error { paced += n; return nil },
				})
				check.Must(t, err)
				check.Must(t, got.Closed(background))
				got.replaced = nil
				chunks, err := l.Chunks.List()
				check.Must(t, err)
				want.Chunk = chunks[c.first]
				removedThere, saved := 0, int64(0)
				for i, source := range got.Sources {
					removedThere, saved = removedThere+source.Removed, saved+source.Saved
					check.MustEqual(t, source.First, c.first+i, got.Sources)
					check.MustEqual(t, source.Last, source.First, got.Sources)
				}
				// What is saved besides is a header and a footer for each file but one.
				files := int64(len(got.Sources))
				saved += (files - 1) * (chunkfile.HeaderSize + chunkfile.FooterSize)
				if int(files) != c.last-c.first+1 || removedThere != want.Removed || saved != got.OldBytes-got.Chunk.FileBytes {
					t.Fatalf("%+v: %d bytes saved, %d events removed", got, saved, removedThere)
				}
				got.Sources = nil
				if !reflect.DeepEqual(got, want) || want.Chunk.Records != old-want.Removed || want.Chunk.Stubs != len(wantStubs) || !want.Chunk.Complete || !want.Chunk.Rewritten {
					t.Fatalf("%+v, want %+v", got, want)
				}
				if paced != want.OldBytes-files*(chunkfile.HeaderSize+chunkfile.FooterSize) {
					t.Fatalf("%d bytes were paced of %d", paced, want.OldBytes)
				}
				check.MustSlice(t, stubsOf(t, l), wantStubs, "stubs at")
				verify(t, l, m.frames, removed)
				checkFiles(t, l)
				noTemps(t, l)
				write(t, l, m.someFrames(3, true)...)
				closeLog(t, l)
				if open := counting.OpenFiles(); len(open) > 0 {
					t.Fatalf("left open: %v", open)
				}
				if misuse := counting.UsedAfterClose(); len(misuse) > 0 {
					t.Fatalf("used after close: %v", misuse)
				}
				l = mustOpen(t, o)
				verify(t, l, m.frames, removed)
				closeLog(t, l)
				check.Must(t, o.FS.RemoveAll(filepath.Join(o.Dir, "index")))
				l = mustOpen(t, o)
				verify(t, l, m.frames, removed)

				// Merging keeps the stubs that are still needed, and only those.
				got, err = l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 2, IDsFrom: max(c.ids, chunkfile.ChunkSize)})
				check.Must(t, err)
				wantStubs = slices.DeleteFunc(wantStubs, func(p int64) bool { return p < chunkfile.ChunkSize })
				if left := stubsOf(t, l); got.Removed != 0 || got.Chunk.Stubs != len(wantStubs) || !slices.Equal(left, wantStubs) {
					t.Fatalf("%+v, stubs at %v, want %v", got, left, wantStubs)
				}
				verify(t, l, m.frames, removed)
				checkFiles(t, l)
			})
		})
	}
}

// TestRewriteBounded: files that have no room in the new one are left as they are, and the new
// one is what it is without them.
func TestRewriteBounded(t *testing.T) {
	for fit := 1; fit <= 3; fit++ {
		for _, spare := range []int64{0, 1, 300} {
			t.Run(fmt.Sprintf("%d files, %d bytes more", fit, spare), func(t *testing.T) {
				onBoth(t, func(t *testing.T, o Options) {
					m := newModel()
					m.someFrames(17, true)
					removed, _ := scavenged(m, 3*chunkfile.ChunkSize)
					other := mustOpen(t, testOptions(vfs.NewMem()))
					write(t, other, m.frames...)
					want, err := other.Chunks.Rewrite(background, Rewrite{First: 0, Last: fit - 1, Keep: keepNot(removed), IDsFrom: chunkfile.ChunkSize})
					check.Must(t, err)

					l := mustOpen(t, o)
					write(t, l, m.frames...)
					got, err := l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 2, Keep: keepNot(removed), IDsFrom: chunkfile.ChunkSize, MaxData: want.Chunk.DataBytes + spare})
					check.Must(t, err)
					check.Must(t, got.Closed(background))
					got.replaced, want.replaced = nil, nil
					check.MustDeep(t, got, want)
					removed = within(removed, 0, fit-1)
					verify(t, l, m.frames, removed)
					checkFiles(t, l)
					noTemps(t, l)
					closeLog(t, l)
					l = mustOpen(t, o)
					verify(t, l, m.frames, removed)
				})
			})
		}
	}
}

// TestRewriteWhich: a chunk is rewritten when no frame can be added to it any more, and not before.
func TestRewriteWhich(t *testing.T) {
	m := newModel()
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	l := mustOpen(t, o)
	refused := func(first, last int, is error) {
		t.Helper()
		_, err := l.Chunks.Rewrite(background, Rewrite{First: first, Last: last})
		if err == nil || is != nil && !errors.Is(err, is) {
			t.Fatalf("chunks %d to %d: %v", first, last, err)
		}
		check.Must(t, l.Failed())
		noTemps(t, l)
		verify(t, l, m.frames, nil)
	}
	rewritten := func(first, last int) {
		t.Helper()
		_, err := l.Chunks.Rewrite(background, Rewrite{First: first, Last: last})
		check.Must(t, err)
		verify(t, l, m.frames, nil)
	}
	refused(0, 0, nil) // Empty.
	write(t, l, m.someFrames(4, true)...)
	refused(0, 0, nil)              // The active one.
	appended := func(f testFrame) { // Not committed.
		check.Must(t, l.Append(f.Frame))
		m.frames = m.frames[:len(m.frames)-1]
	}
	committed := func() {
		check.Must(t, l.Commit())
		m.frames = m.frames[:len(m.frames)+1]
	}
	appended(m.frame(true, ev("s", "completes its chunk")))
	refused(0, 0, nil)
	committed()
	// Nothing follows yet, and what follows will not go here.
	rewritten(0, 0)
	refused(0, 1, nil)
	refused(1, 1, nil)
	refused(-1, 0, nil)
	closeLog(t, l)
	l = mustOpen(t, o)
	verify(t, l, m.frames, nil)
	write(t, l, m.someFrames(3, true)...)
	verify(t, l, m.frames, nil)

	appended(m.frame(true, ev("s", "completes the next")))
	rewritten(0, 0) // Publishes the list of chunks.
	if c, err := l.Chunks.List(); err != nil || len(c) != 2 || c[1].Complete || c[1].Records >= 0 || c[1].End != l.Tail().End {
		t.Fatalf("%+v, %v", c, err)
	}
	refused(1, 1, nil)
	committed()
	rewritten(0, 1)
	refused(1, 1, event.ErrChunkReplaced)
	refused(0, 0, event.ErrChunkReplaced)
	// A chunk that is complete because a frame did not fit might become active again while that is
	// not committed.
	c := &chunkfile.Chunk{Header: chunkfile.Header{First: 3, Last: 4}, Complete: true}
	for end, settled := range map[int64]bool{5*chunkfile.ChunkSize - 100: false, 5 * chunkfile.ChunkSize: true, 5*chunkfile.ChunkSize + 100: true} {
		check.MustEqual(t, c.Settled(end), settled, "in a log that ends at", end)
	}
	checkFiles(t, l)
	closeLog(t, l)
	check.MustBe(t, check.Err(l.Chunks.Rewrite(background, Rewrite{})), event.ErrClosed)
	check.MustBe(t, check.Err(l.Chunks.List()), event.ErrClosed)
}

// TestRewriteEnds: whatever ends a rewrite leaves the log as it was.
func TestRewriteEnds(t *testing.T) {
	stop := errors.New("stop")
	type setup struct {
		t      *testing.T
		l      *Log
		fsys   vfs.FS
		cancel func()
		r      *Rewrite
		after  func()
	}
	cases := map[string]struct {
		begin func(s *setup)
		is    error
	}{
		"pace":              {func(s *setup) { s.r.Pace = func(context.Context, int64) error { return stop } }, stop},
		"context before":    {func(s *setup) { s.cancel() }, context.Canceled},
		"context meanwhile": {func(s *setup) { s.r.Keep = func(*Stored) bool { s.cancel(); return true } }, context.Canceled},
		"context in pace": {func(s *setup) {
			s.r.Pace = func(ctx context.Context, _ int64) error { s.cancel(); <-ctx.Done(); return ctx.Err() }
		}, context.Canceled},
		"close": {func(s *setup) {
			s.r.Pace = func(ctx context.Context, _ int64) error {
				closed := make(chan error, 1)
				go func() { closed <- s.l.Close() }()
				s.after = func() { check.Must(s.t, <-closed) }
				<-ctx.Done()
				return ctx.Err()
			}
		}, event.ErrClosed},
		"replaced": {func(s *setup) {
			s.r.Pace = func(context.Context, int64) error {
				rewrite(s.t, s.fsys, "x.tmp", []string{chunkfile.FileName(1, 0)}, keepAll)
				return s.l.SwitchChunk("x.tmp")
			}
		}, event.ErrChunkReplaced},
		"merged meanwhile": {func(s *setup) {
			s.r.Pace = func(ctx context.Context, _ int64) error {
				_, err := s.l.Chunks.Rewrite(ctx, Rewrite{First: 0, Last: 1})
				return err
			}
		}, event.ErrChunkReplaced},
		"reserve": {func(s *setup) { s.r.Reserve = math.MaxInt64 }, event.ErrDiskFull},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			fsys := vfs.NewCounting(vfs.NewMem())
			o := testOptions(fsys)
			o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
			l := mustOpen(t, o)
			write(t, l, m.someFrames(13, true)...)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			r := Rewrite{First: 1, Last: 1, Keep: func(*Stored) bool { return false }}
			s := &setup{t, l, fsys, cancel, &r, func() {}}
			c.begin(s)
			if got, err := l.Chunks.Rewrite(ctx, r); !errors.Is(err, c.is) || !reflect.DeepEqual(got, Rewritten{}) {
				t.Fatalf("%+v, %v", got, err)
			}
			s.after()
			noTemps(t, l)
			if name == "close" {
				l = mustOpen(t, o)
			}
			verify(t, l, m.frames, nil)
			write(t, l, m.someFrames(3, true)...)
			verify(t, l, m.frames, nil)
			closeLog(t, l)
			if open := fsys.OpenFiles(); len(open) > 0 {
				t.Fatalf("left open: %v", open)
			}
		})
	}
}

// TestRewriteDamaged: a rewrite does not carry damage on.
func TestRewriteDamaged(t *testing.T) {
	m := newModel()
	m.someFrames(12, true)
	first := m.frames[5]
	second := int64(chunkfile.HeaderSize) + first.events[1].position - first.First
	cases := map[string]struct {
		change func(b []byte)
		offset int64
	}{
		"data":   {func(b []byte) { b[second+chunkfile.RecordHead+3] ^= 1 }, second},
		"length": {func(b []byte) { b[second+1] ^= 1 }, second},
		"kind": {func(b []byte) {
			b[second+4] = chunkfile.KindStub
			copy(b[second:], seal(b[second:second+int64(chunkfile.Order.Uint32(b[second:]))]))
		}, second},
		"another record": {func(b []byte) {
			copy(b[chunkfile.HeaderSize:], seal(append(bytes.Clone(b[chunkfile.HeaderSize:chunkfile.HeaderSize+8]), make([]byte, 8)...)))
		}, chunkfile.HeaderSize},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, o Options) {
				o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
				l := mustOpen(t, o)
				write(t, l, m.frames...)
				closeLog(t, l)
				path := filepath.Join(o.Dir, chunkfile.FileName(1, 0))
				b, err := vfs.ReadFile(o.FS, path)
				check.Must(t, err)
				c.change(b)
				check.Must(t, vfs.WriteFileAtomic(o.FS, path, b))
				l = mustOpen(t, o)
				_, err = l.Chunks.Rewrite(background, Rewrite{First: 1, Last: 1})
				var damage *event.Corruption
				if !errors.As(err, &damage) || damage.File != path || damage.Offset != c.offset {
					t.Fatalf("%v, want one of %s at %d", err, path, c.offset)
				}
				err = l.Chunks.Scan(background, chunkfile.ChunkSize, math.MaxInt64, func(*Stored) error { return nil })
				if !errors.As(err, &damage) || damage.File != path || damage.Offset != c.offset {
					t.Fatalf("scan: %v", err)
				}
				noTemps(t, l)
				check.Must(t, l.Failed())
			})
		})
	}
}

// TestStubsOnlyInRewrittenFiles: as written, a stub is damage.
func TestStubsOnlyInRewrittenFiles(t *testing.T) {
	m := newModel()
	e := ev("s", "")
	e.typ = ""
	f := m.frame(false, e, ev("s", "x"))
	stub := chunkfile.AppendStub(nil, chunkfile.Item(f.Records)[:chunkfile.Order.Uint32(f.Records)])
	it, err := chunkfile.ParseItem(stub)
	if err != nil || !it.IsStub() || it.Position() != f.First || it.Id() != f.events[0].id || it.Number() != 0 || it.Time() != f.events[0].time || it.StreamHash() != chunkfile.HashStream("s") {
		t.Fatalf("%x: %v", stub, err)
	}
	longer := append(bytes.Clone(stub[:56]), make([]byte, 16)...)
	chunkfile.Order.PutUint32(longer, 72)
	if _, err := chunkfile.ParseItem(chunkfile.CloseItem(longer[:64], 0, 72)); err == nil {
		t.Fatal("a stub of 72 bytes was taken")
	}

	o := testOptions(vfs.NewMem())
	fatal := 0
	o.OnFatal = func(error) { fatal++ }
	l := mustOpen(t, o)
	write(t, l, f)
	next := m.frame(false, ev("t", "y"))
	body := chunkfile.AppendStub(nil, chunkfile.Item(next.Records))
	tr := chunkfile.Trailer{First: next.First, Length: len(body), Index: next.Index, Term: next.Term, Time: next.tail.Time, Chain: chunkfile.NextChain(f.tail.Chain, next.First, body)}
	check.MustBe(t, check.Err(l.AppendFrames(next.First, tr.Append(bytes.Clone(body)))), event.ErrBadFrames)
	if r := scanFrames(tr.Append(bytes.Clone(body)), next.First, f.tail, -1, func(int64) {}); r.frames != 0 || !errors.Is(r.why, chunkfile.ErrStub) {
		t.Fatalf("%+v", r)
	}
	if err := l.Append(Frame{First: next.First, Records: body, Index: next.Index, Term: next.Term}); err == nil {
		t.Fatal("a frame with a stub was appended")
	}
	check.MustEqual(t, fatal, 1, "OnFatal was called ... times")
}

func TestChunks(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.someFrames(12, true)...)
	_, err := l.Chunks.Rewrite(background, Rewrite{First: 1, Last: 1, Keep: func(*Stored) bool { return false }})
	check.Must(t, err)
	got, err := l.Chunks.List()
	check.Must(t, err)
	data := func(frames []testFrame) (n int64) {
		for _, f := range frames {
			n += int64(len(f.Records)) + chunkfile.TrailerSize
		}
		return n
	}
	first, last := data(m.frames[:5]), data(m.frames[10:])
	stubs := int64(5*chunkfile.TrailerSize + 15*chunkfile.StubSize)
	want := []ChunkInfo{
		{File: "chunk-000000.000000", Complete: true, End: first, DataBytes: first, FileBytes: first + 256, Records: 15},
		{File: "chunk-000001.000001", First: 1, Last: 1, Version: 1, Complete: true, Rewritten: true, Start: chunkfile.ChunkSize, End: m.frames[9].First + int64(len(m.frames[9].Records)) + chunkfile.TrailerSize, DataBytes: stubs, FileBytes: stubs + 20*chunkfile.MapEntrySize + 256, Stubs: 15},
		{File: "chunk-000002.000000", First: 2, Last: 2, Start: 2 * chunkfile.ChunkSize, End: m.tail.End, DataBytes: last, FileBytes: last + chunkfile.HeaderSize, Records: -1},
	}
	check.MustSlice(t, got, want)
	for _, c := range got {
		info := check.Value(l.opts.FS.Stat(filepath.Join(testDir, c.File))).Must(t)
		check.MustEqual(t, info.Size(), c.FileBytes, c.File, info)
	}
}

// TestRewriteAtOnce: rewrites of different files do not disturb one another.
func TestRewriteAtOnce(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.someFrames(42, true)...)
	removed, _ := scavenged(m, 8*chunkfile.ChunkSize)
	failed := make(chan error, 4)
	for i := range 4 {
		go func() {
			_, err := l.Chunks.Rewrite(background, Rewrite{First: 2 * i, Last: 2*i + 1, Keep: keepNot(removed), IDsFrom: 3 * chunkfile.ChunkSize})
			failed <- err
		}()
	}
	for range 4 {
		check.Must(t, <-failed)
	}
	verify(t, l, m.frames, removed)
	checkFiles(t, l)
	noTemps(t, l)
	if c, err := l.Chunks.List(); err != nil || len(c) != 5 {
		t.Fatal(fmt.Sprint(c), err)
	}
}
