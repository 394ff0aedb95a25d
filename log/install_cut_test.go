package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// quarter removes every fourth event of the streams "a…", which are never the newest, and tells
// which.
func quarter(m *model, rest int64, first, last int) (removed map[int64]bool) {
	removed = map[int64]bool{}
	for _, f := range m.frames {
		for _, e := range f.events {
			if e.stream[0] == 'a' && e.number%4 == rest {
				removed[e.position] = true
			}
		}
	}
	return within(removed, first, last)
}

// filesWith lists files in a log's folder.
func filesWith(t testing.TB, l *Log, prefix, suffix string) []string {
	t.Helper()
	names := check.Value(l.opts.FS.List(l.opts.Dir)).Must(t)
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) || !strings.HasSuffix(n, suffix) })
}

// itemsOf lists the positions of all items that a view shows.
func itemsOf(t testing.TB, v view) (at []int64) {
	t.Helper()
	cu := cursor{v: v}
	check.Must(t, cu.seekForward(0))
	for {
		it, position, err := cu.next()
		check.Must(t, err)
		if it == nil {
			return at
		}
		at = append(at, position)
	}
}

// TestInstallIntoMerged: of a file that begins inside a merged one of this log that is taken which
// this log lacks.
func TestInstallIntoMerged(t *testing.T) {
	type files [][2]int
	cases := map[string]struct {
		have        int
		own         files
		first, last int // of the other node's file
		from        int // chunk from which on it is taken
		files       []string
	}{
		"at the log's end":          {20, files{{1, 3}}, 2, 5, 4, []string{"chunk-000000.000000", "chunk-000001.000001", "chunk-000004.000001"}},
		"before an active chunk":    {22, files{{1, 3}}, 2, 5, 4, []string{"chunk-000000.000000", "chunk-000001.000001", "chunk-000004.000001"}},
		"before whole files":        {27, files{{1, 3}, {4, 4}}, 3, 5, 4, []string{"chunk-000000.000000", "chunk-000001.000001", "chunk-000004.000002"}},
		"before another merged one": {20, files{{0, 1}, {2, 3}}, 1, 4, 2, []string{"chunk-000000.000001", "chunk-000002.000002"}},
		"all of them":               {21, files{{0, 3}}, 3, 4, 4, []string{"chunk-000000.000001", "chunk-000004.000001"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, o Options) {
				m := newModel()
				m.someFrames(15, true) // Chunks of five frames.
				m.term = 2
				m.someFrames(18, true)
				from := emptyLog(t)
				write(t, from, m.frames...)
				theirs := quarter(m, 2, c.first, c.last)
				_, err := from.Chunks.Rewrite(background, Rewrite{First: c.first, Last: c.last, Keep: keepNot(theirs), IDsFrom: 4*chunkfile.ChunkSize + 300})
				check.Must(t, err)

				counting := vfs.NewCounting(o.FS)
				o.FS = counting
				o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
				to := mustOpen(t, o)
				write(t, to, m.frames[:c.have]...)
				ours := map[int64]bool{}
				for _, f := range c.own {
					removed := quarter(m, 0, f[0], f[1])
					_, err := to.Chunks.Rewrite(background, Rewrite{First: f[0], Last: f[1], Keep: keepNot(removed)})
					check.Must(t, err)
					maps.Copy(ours, removed)
				}
				removed := within(ours, 0, c.from-1)
				maps.Copy(removed, within(theirs, c.from, c.last))
				old := check.Value(to.view()).Must(t)
				before := itemsOf(t, old)
				k := check.Value(from.Transfer.Continue(to.Tail().End, to.Tail().Chain)).Must(t)
				if k.File().First != c.first || k.File().Last != c.last {
					t.Fatalf("offered %+v", k.File())
				}
				name, err := fetch(k, to)
				check.Must(t, errors.Join(err, k.Close()))

				check.Must(t, to.Transfer.InstallChunk(name))
				ends := 5 * (c.last + 1)
				verify(t, to, m.frames[:ends], removed)
				checkFiles(t, to)
				if !slices.Equal(itemsOf(t, old), before) {
					t.Fatal("a reader that began before sees something else")
				}
				old.release()
				check.MustSlice(t, filesWith(t, to, "chunk-", ""), c.files, "files")
				noTemps(t, to)
				write(t, to, m.frames[ends:]...)
				verify(t, to, m.frames, removed)
				closeLog(t, to)
				nothingOpen(t, counting)
				inspected(t, o)
				to = mustOpen(t, o)
				verify(t, to, m.frames, removed)
				closeLog(t, to)
				check.Must(t, o.FS.RemoveAll(filepath.Join(o.Dir, "index")))
				to = mustOpen(t, o)
				verify(t, to, m.frames, removed)
				// It hands the part on.
				third := emptyLog(t)
				mustCatchUp(t, to, third, 0)
				verify(t, third, m.frames, removed)
			})
		})
	}
}

func nothingOpen(t testing.TB, fsys *vfs.Counting) {
	t.Helper()
	if open := fsys.OpenFiles(); len(open) > 0 {
		t.Fatalf("left open: %v", open)
	}
	if misuse := fsys.UsedAfterClose(); len(misuse) > 0 {
		t.Fatalf("used after close: %v", misuse)
	}
}

// TestInstallMergedMeanwhile: this log's files are merged between the verification of the file and
// its turn.
func TestInstallMergedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		own   [2]int // merged before
		files []string
	}{
		"it fitted":         {[2]int{2, 3}, []string{"chunk-000000.000001", "chunk-000005.000001"}},
		"it was cut before": {[2]int{1, 3}, []string{"chunk-000000.000001", "chunk-000005.000001"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			m.someFrames(33, true)
			from := rewrittenSource(t, m, 2, 5, keepAll)
			counting := vfs.NewCounting(vfs.NewMem())
			o := testOptions(counting)
			o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
			to := mustOpen(t, o)
			write(t, to, m.frames[:21]...)
			_, err := to.Chunks.Rewrite(background, Rewrite{First: c.own[0], Last: c.own[1]})
			check.Must(t, err)
			p := check.Value(to.Transfer.PrepareChunk(chunkFrom(t, from, to, 2))).Must(t)
			write(t, to, m.frames[21:26]...)
			_, err = to.Chunks.Rewrite(background, Rewrite{First: 0, Last: 4})
			check.Must(t, err)
			check.Must(t, p.Install())
			check.Must(t, p.Close())
			verify(t, to, m.frames[:30], nil)
			checkFiles(t, to)
			noTemps(t, to)
			check.MustSlice(t, chunkFiles(t, counting), c.files, "files")
			write(t, to, m.frames[30:]...)
			verify(t, to, m.frames, nil)
			closeLog(t, to)
			nothingOpen(t, counting)
			inspected(t, o)
		})
	}
}

// TestInstallIntoMergedDiskFull: without room for the part of a file that is lacking nothing
// changes.
func TestInstallIntoMergedDiskFull(t *testing.T) {
	m := newModel()
	m.someFrames(27, true)
	from := rewrittenSource(t, m, 1, 4, keepAll)
	var full atomic.Bool
	counting := vfs.NewCounting(vfs.NewMem())
	o := testOptions(vfs.NewFaulty(counting, func(op vfs.Op) error {
		if full.Load() && op.Kind == vfs.OpWrite && filepath.Dir(op.Name) == testDir && strings.HasSuffix(op.Name, vfs.TempSuffix) {
			return errors.New("no space left on device")
		}
		return nil
	}))
	o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	to := mustOpen(t, o)
	write(t, to, m.frames[:17]...)
	_, err := to.Chunks.Rewrite(background, Rewrite{First: 0, Last: 2})
	check.Must(t, err)
	fetched := chunkFrom(t, from, to, 1)
	before := filesWith(t, to, "", "")
	full.Store(true)
	check.MustSay(t, to.Transfer.InstallChunk(fetched), "no space left")
	check.MustSlice(t, filesWith(t, to, "", ""), before, "files ..., before")
	verify(t, to, m.frames[:17], nil)
	full.Store(false)
	check.Must(t, to.Transfer.InstallChunk(fetched))
	verify(t, to, m.frames[:25], nil)
	noTemps(t, to)
	closeLog(t, to)
	nothingOpen(t, counting)
}

// TestInstallRefusedAfterCut: what was made of a file that is refused goes; the file itself is its
// owner's.
func TestInstallRefusedAfterCut(t *testing.T) {
	m := newModel()
	m.someFrames(28, true)
	from := rewrittenSource(t, m, 1, 3, keepAll)
	counting := vfs.NewCounting(vfs.NewMem())
	o := testOptions(counting)
	to := mustOpen(t, o)
	write(t, to, m.frames[:16]...)
	_, err := to.Chunks.Rewrite(background, Rewrite{First: 0, Last: 2})
	check.Must(t, err)
	tmp := chunkFrom(t, from, to, 1)
	p, err := to.Transfer.PrepareChunk(tmp)
	check.Must(t, err)
	write(t, to, m.frames[16:21]...) // More than the file has.
	check.MustFail(t, p.Install(), "it was taken")
	check.Must(t, errors.Join(p.Close(), p.Close()))
	check.MustSlice(t, filesWith(t, to, "", vfs.TempSuffix), []string{tmp}, "left")
	check.Must(t, to.Transfer.DropTemp(tmp))
	verify(t, to, m.frames[:21], nil)
	closeLog(t, to)
	nothingOpen(t, counting)
}

// TestCatchUpMergedDifferently: two logs of one history take turns in growing, rewrite and merge
// their files as it comes, and the one that is behind always catches up, whatever its files are.
func TestCatchUpMergedDifferently(t *testing.T) {
	lives := 60
	if testing.Short() || raceDetector {
		lives = 20
	}
	cut := 0
	for range lives {
		seed := rand.Uint64()
		h := &twoLogs{t: t, m: newModel(), rng: rand.New(rand.NewPCG(seed, 1)), gone: map[int64]bool{}}
		check.Must(t, h.live(), "seed", seed)
		cut += h.cut
	}
	t.Logf("%d files of %d lives were cut", cut, lives)
	if cut == 0 {
		t.Error("none was")
	}
}

type twoLogs struct {
	t    *testing.T
	m    *model
	rng  *rand.Rand
	logs [2]*Log
	gone map[int64]bool // removed from one of them at least
	cut  int
}

func (h *twoLogs) live() error {
	for i := range h.logs {
		h.logs[i] = emptyLog(h.t)
	}
	for range 4 {
		from, to := h.logs[0], h.logs[1]
		for range 1 + h.rng.IntN(20) {
			ends := h.rng.IntN(2) == 0
			f := h.m.frame(ends, ev(fmt.Sprint("a", h.rng.IntN(3)), "x"), ev(fmt.Sprint("b", h.rng.IntN(3)), "y"))
			if err := errors.Join(from.Append(f.Frame), from.Commit()); err != nil {
				return err
			}
		}
		for range h.rng.IntN(5) {
			if err := h.rewrite(from); err != nil {
				return err
			}
		}
		if err := h.catchUp(from, to); err != nil {
			return err
		}
		for i, l := range h.logs {
			if err := h.check(l); err != nil {
				return fmt.Errorf("log %d: %w", i, err)
			}
		}
		if h.rng.IntN(2) == 0 {
			h.logs[0], h.logs[1] = to, from
		}
	}
	for _, l := range h.logs {
		if err := l.Close(); err != nil {
			return err
		}
		inspected(h.t, l.opts)
	}
	return nil
}

// rewrite makes one file of some neighbours, if there are any to be rewritten: anywhere, or so that
// files of the two logs are likely to overlap where the one that is behind ends. The newest event
// of each stream stays.
func (h *twoLogs) rewrite(l *Log) error {
	chunks, err := l.Chunks.List()
	if err != nil {
		return err
	}
	chunks = slices.DeleteFunc(chunks, func(c ChunkInfo) bool { return !c.Complete })
	if len(chunks) == 0 {
		return nil
	}
	first := h.rng.IntN(len(chunks))
	last := first + h.rng.IntN(4)
	if h.rng.IntN(3) > 0 {
		end := chunkfile.ChunkNumber(h.logs[1].Tail().End) - 1
		at := max(0, slices.IndexFunc(chunks, func(c ChunkInfo) bool { return c.Last >= end }))
		first, last = at, at+1+h.rng.IntN(2)
		if l == h.logs[1] {
			first, last = max(0, at-1-h.rng.IntN(2)), at
		}
	}
	last = min(last, len(chunks)-1)
	// Or there will soon be one file.
	for last > first && chunks[last].Last-chunks[first].First >= 6 {
		last--
	}
	_, err = l.Chunks.Rewrite(background, Rewrite{
		First: chunks[first].First, Last: chunks[last].Last, IDsFrom: int64(h.rng.IntN(20)) * chunkfile.ChunkSize,
		Keep: func(s *Stored) bool {
			info, err := l.Reads.StreamInfo(string(s.Stream))
			if err == nil && s.Number < info.Last && h.rng.IntN(4) == 0 {
				h.gone[s.Position] = true
				return false
			}
			return true
		},
	})
	return err
}

func (h *twoLogs) catchUp(from, to *Log) error {
	for to.Tail() != from.Tail() {
		for range h.rng.IntN(3) {
			if err := h.rewrite(to); err != nil {
				return err
			}
		}
		before := to.Tail()
		k, err := from.Transfer.Continue(before.End, before.Chain)
		if err != nil {
			return err
		}
		if k.File() == nil {
			b, err := k.Next(400)
			if err == nil {
				_, err = to.AppendFrames(b.First, b.Raw)
			}
			if err != nil && err != io.EOF {
				return errors.Join(err, k.Close())
			}
		} else if err := h.install(k, to); err != nil {
			return errors.Join(err, k.Close())
		}
		if err := k.Close(); err != nil {
			return err
		}
		if to.Tail() == before {
			return fmt.Errorf("stuck at %+v, the other log ends at %+v", before, from.Tail())
		}
	}
	return nil
}

func (h *twoLogs) install(k *Continuation, to *Log) error {
	name, err := fetch(k, to)
	if err != nil {
		return err
	}
	p, err := to.Transfer.PrepareChunk(name)
	if err != nil {
		return err
	}
	if p.c.Header.First > k.File().First {
		h.cut++
	}
	if h.rng.IntN(2) == 0 {
		err = h.rewrite(to)
	}
	return errors.Join(err, p.Install(), p.Close())
}

// check expects everything but what a rewrite removed.
func (h *twoLogs) check(l *Log) error {
	removed := maps.Clone(h.gone)
	err := l.Chunks.Scan(background, 0, l.Tail().End, func(s *Stored) error {
		delete(removed, s.Position)
		return nil
	})
	if err != nil {
		return err
	}
	checkFiles(h.t, l)
	noTemps(h.t, l)
	return holds(l, h.m.frames, removed)
}

// TestInstallAmongRewrites: files are merged by others while they are caught up with.
func TestInstallAmongRewrites(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	m := newModel()
	m.someFrames(150, true)
	from := emptyLog(t)
	write(t, from, m.frames...)
	for n := 0; n < 27; n += 3 {
		_, err := from.Chunks.Rewrite(background, Rewrite{First: n, Last: n + 2})
		check.Must(t, err)
	}
	counting := vfs.NewCounting(vfs.NewMem())
	o := testOptions(counting)
	o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	to := mustOpen(t, o)
	write(t, to, m.frames[:26]...)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		rng := rand.New(rand.NewPCG(seed, 2))
		for ctx.Err() == nil {
			chunks, err := to.Chunks.List()
			if err != nil {
				ended <- err
				return
			}
			chunks = slices.DeleteFunc(chunks, func(c ChunkInfo) bool { return !c.Complete })
			last := len(chunks) - 1
			_, err = to.Chunks.Rewrite(ctx, Rewrite{First: chunks[max(0, last-rng.IntN(2))].First, Last: chunks[last].Last})
			if err != nil && !errors.Is(err, event.ErrChunkReplaced) && !errors.Is(err, context.Canceled) {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	mustCatchUp(t, from, to, 0)
	cancel()
	check.Must(t, <-ended)
	verify(t, to, m.frames, nil)
	checkFiles(t, to)
	noTemps(t, to)
	closeLog(t, to)
	nothingOpen(t, counting)
	inspected(t, o)
}

// mergedFile is a rewritten file of some frames, of whose records none are left where removed says
// so.
func mergedFile(t testing.TB, frames []testFrame, removed map[int64]bool) []byte {
	t.Helper()
	last := frames[len(frames)-1]
	h := chunkfile.Header{First: chunkfile.ChunkNumber(frames[0].First), Last: chunkfile.ChunkNumber(last.First), Mapped: true, FileID: event.ID{1}, Cluster: testCluster}
	f := chunkfile.Footer{
		Mapped: true, LastCompletes: last.Completes, End: last.First + int64(len(last.Records)) + chunkfile.TrailerSize,
		FirstIndex: frames[0].Index, LastIndex: last.Index, LastTerm: last.Term, LastTime: last.tail.Time, Chain: last.tail.Chain,
	}
	var data, places []byte
	add := func(it []byte, position int64) {
		places = chunkfile.Order.AppendUint64(places, uint64(position))
		places = chunkfile.Order.AppendUint32(places, uint32(chunkfile.HeaderSize+len(data)))
		data = append(data, it...)
	}
	for _, fr := range frames {
		if !removed[fr.First] {
			add(fr.Records, fr.First) // One in each of these frames.
			f.Records++
		}
		add(raw(fr)[len(fr.Records):], fr.First+int64(len(fr.Records)))
	}
	f.DataSize, f.MapSize = int64(len(data)), int64(len(places))
	file := slices.Concat(h.Bytes(), data, places)
	return append(file, f.Bytes(func(part []byte) [16]byte { return hash128(slices.Concat(file, part)) })...)
}

// TestInstallIntoMergedOverVoid: the file of this log ends before its last chunk does, because a
// frame did not fit.
func TestInstallIntoMergedOverVoid(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("makes records of 256 MiB")
	}
	m := newModel()
	m.frame(true, ev("s", "small"))
	big := strings.Repeat("x", 15<<20)
	removed := map[int64]bool{}
	for m.tail.End < 2*chunkfile.ChunkSize {
		f := m.frame(false, ev("s", big))
		removed[f.First] = chunkfile.ChunkNumber(f.First) == 1
	}
	have := len(m.frames) - 1 // The last one did not fit.
	m.frame(true, ev("s", "x"))
	m.frame(false, ev("s", "y"))
	to := emptyLog(t)
	install := func(frames ...testFrame) {
		t.Helper()
		file, name, err := to.Transfer.CreateTemp()
		check.Must(t, err)
		_, err = file.WriteAt(mergedFile(t, frames, removed), 0)
		check.Must(t, errors.Join(err, file.Close(), to.Transfer.InstallChunk(name)))
	}
	install(m.frames[:have]...)
	check.MustEqual(t, to.Tail(), m.frames[have-1].tail)
	install(m.frames[1 : have+2]...)
	for range 2 {
		if got, want := chunkFiles(t, to.opts.FS), []string{chunkfile.FileName(0, 1), chunkfile.FileName(2, 1)}; !slices.Equal(got, want) {
			t.Fatalf("files %v, want %v", got, want)
		}
		verify(t, to, m.frames[:have+2], removed)
		closeLog(t, to)
		inspected(t, to.opts)
		to = mustOpen(t, to.opts)
	}
	write(t, to, m.frames[have+2:]...)
	verify(t, to, m.frames, removed)
}
