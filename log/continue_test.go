package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// catchUp brings a log up to the end of another one, in blocks of about limit
// bytes, and returns how many blocks and files that took.
func catchUp(from, to *Log, limit int) (blocks, files int, err error) {
	for to.Tail() != from.Tail() {
		before := to.Tail()
		k, err := from.Transfer.Continue(before.End, before.Chain)
		if err != nil {
			return blocks, files, err
		}
		if k.File() != nil {
			files++
			err = installFrom(k, to)
		} else {
			for err == nil {
				var b Block
				if b, err = k.Next(limit); err == nil {
					blocks++
					_, err = to.AppendFrames(b.First, bytes.Clone(b.Raw))
				}
			}
			if err == io.EOF {
				err = nil
			}
		}
		if err := errors.Join(err, k.Close()); err != nil {
			return blocks, files, err
		}
		if to.Tail() == before {
			return blocks, files, fmt.Errorf("stuck at %+v, the other log ends at %+v", before, from.Tail())
		}
	}
	return blocks, files, nil
}

// fetch copies the file of a continuation into a temporary one of a log.
func fetch(k *Continuation, to *Log) (name string, err error) {
	file, name, err := to.Transfer.CreateTemp()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := io.Copy(io.NewOffsetWriter(file, 0), io.NewSectionReader(k, 0, k.File().Size)); err != nil {
		return "", err
	}
	return name, file.Sync()
}

func installFrom(k *Continuation, to *Log) error {
	name, err := fetch(k, to)
	if err != nil {
		return err
	}
	return to.Transfer.InstallChunk(name)
}

func mustCatchUp(t testing.TB, from, to *Log, limit int) {
	t.Helper()
	if _, _, err := catchUp(from, to, limit); err != nil {
		t.Fatal(err)
	}
}

// emptyLog opens a new log in memory.
func emptyLog(t testing.TB) *Log {
	t.Helper()
	o := testOptions(vfs.NewMem())
	o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	return mustOpen(t, o)
}

// raw returns frames as a log holds them.
func raw(frames ...testFrame) (b []byte) {
	for _, f := range frames {
		t := chunkfile.Trailer{First: f.First, Length: len(f.Records), Index: f.Index, Term: f.Term, Time: f.tail.Time, Chain: f.tail.Chain, Completes: f.Completes}
		b = t.Append(append(b, f.Records...))
	}
	return b
}

// TestCatchUpFromEveryFrame: from the end of every frame, in blocks of every
// kind of size, a log gets exactly what it lacks.
func TestCatchUpFromEveryFrame(t *testing.T) {
	m := newModel()
	from := emptyLog(t)
	write(t, from, m.someFrames(8, true)...)
	m.term = 3
	write(t, from, m.someFrames(9, true)...)
	for n := range len(m.frames) + 1 {
		for _, limit := range []int{1, 300, 1000, 0} {
			to := emptyLog(t)
			write(t, to, m.frames[:n]...)
			mustCatchUp(t, from, to, limit)
			verify(t, to, m.frames, nil)
			check.Must(t, to.syncer.Sync())
			closeLog(t, to)
			to = mustOpen(t, to.opts)
			verify(t, to, m.frames, nil)
			closeLog(t, to)
		}
	}
}

// TestCatchUpFiles: where chunks were rewritten whole files are fetched, and
// replace what there was.
func TestCatchUpFiles(t *testing.T) {
	for name, sources := range map[string][][]int{
		"one":          {{1}},
		"merged":       {{0, 1}},
		"all":          {{0, 1, 2}},
		"two files":    {{0}, {1, 2}},
		"twice merged": {{0, 1}, {0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			from := emptyLog(t)
			write(t, from, m.someFrames(17, true)...)
			removed, keep := scavenged(m, 3*chunkfile.ChunkSize)
			covered := map[int]bool{}
			for i, numbers := range sources {
				var names []string
				for _, n := range numbers {
					names = append(names, newestFile(t, from.opts.FS, n))
					covered[n] = true
				}
				tmp := fmt.Sprint(i, ".tmp")
				rewrite(t, from.opts.FS, tmp, names, keep)
				check.Must(t, from.SwitchChunk(tmp))
			}
			for p := range removed {
				if !covered[chunkfile.ChunkNumber(p)] && (len(sources) < 2 || name != "twice merged" || chunkfile.ChunkNumber(p) > 2) {
					delete(removed, p)
				}
			}
			verify(t, from, m.frames, removed)
			for n := range len(m.frames) + 1 {
				to := emptyLog(t)
				write(t, to, m.frames[:n]...)
				mustCatchUp(t, from, to, 500)
				got := shown(t, to)
				if missing := slices.DeleteFunc(shown(t, from), func(p int64) bool { return slices.Contains(got, p) }); len(missing) > 0 {
					t.Fatalf("from frame %d: positions %v are missing", n, missing)
				}
				// What was there before and was not replaced may hold more.
				gone := map[int64]bool{}
				for p := range removed {
					if !slices.Contains(got, p) {
						gone[p] = true
					}
				}
				if n < 1 && len(gone) != len(removed) {
					t.Fatalf("an empty log got what was removed: %v, not %v", gone, removed)
				}
				verify(t, to, m.frames, gone)
				write(t, to, m.frames[len(m.frames):]...)
				closeLog(t, to)
				to = mustOpen(t, to.opts)
				verify(t, to, m.frames, gone)
				closeLog(t, to)
				check.Must(t, to.opts.FS.RemoveAll(to.opts.IndexDir))
				to = mustOpen(t, to.opts)
				if !slices.Equal(shown(t, to), got) {
					t.Fatal("with a new index the log shows something else")
				}
				closeLog(t, to)
			}
		})
	}
}

// newestFile returns the name of the file in use that begins with a chunk.
func newestFile(t testing.TB, fsys vfs.FS, number int) string {
	t.Helper()
	last := ""
	for _, name := range chunkFiles(t, fsys) {
		if n, _, _ := chunkfile.ParseFileName(name); n == number {
			last = name
		}
	}
	return last
}

// shown returns the positions of all records that a log shows.
func shown(t testing.TB, l *Log) (positions []int64) {
	t.Helper()
	page := check.Value(l.Reads.ReadAll(event.AllRead{Count: 10_000})).Must(t)
	for _, e := range page.Events {
		positions = append(positions, e.Position)
	}
	return positions
}

func TestContinueRefuses(t *testing.T) {
	m := newModel()
	l := emptyLog(t)
	write(t, l, m.someFrames(12, true)...)
	other := newModel()
	other.someFrames(3, false)
	in := m.frames[5]
	cases := map[string]struct {
		end   int64
		chain event.Chain
		want  error
	}{
		"other chain":            {in.tail.End, event.Chain{1}, event.ErrOtherHistory},
		"other chain at the end": {m.tail.End, event.Chain{1}, event.ErrOtherHistory},
		"other genesis":          {0, event.Chain{1}, event.ErrOtherHistory},
		"chain of another frame": {in.tail.End, m.frames[4].tail.Chain, event.ErrOtherHistory},
		"inside a frame":         {in.First + int64(len(in.Records)), in.tail.Chain, event.ErrOtherHistory},
		"inside a record":        {in.First + 7, in.tail.Chain, event.ErrOtherHistory},
		"in the void":            {m.frames[4].tail.End - 1, m.frames[4].tail.Chain, event.ErrOtherHistory},
		"negative":               {-1, event.Chain{}, event.ErrOtherHistory},
		"beyond the end":         {m.tail.End + 1, m.tail.Chain, event.ErrBeyondEnd},
	}
	for name, c := range cases {
		k, err := l.Transfer.Continue(c.end, c.chain)
		if k != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if at, ok := errors.AsType[*event.OtherHistory](err); ok && at.Position != c.end {
			t.Errorf("%s: says position %d", name, at.Position)
		}
	}
	k := check.Value(l.Transfer.Continue(m.tail.End, m.tail.Chain)).Must(t)
	if b, err := k.Next(0); err != io.EOF || k.File() != nil {
		t.Fatalf("at the end: %+v, %v", b, err)
	}
	check.MustFail(t, check.Err(k.ReadAt(make([]byte, 1), 0)), "read a file where there is none")
	check.Must(t, errors.Join(k.Close(), k.Close()))
	check.MustBe(t, check.Err(k.Next(0)), event.ErrClosed)
}

// TestContinuationOutlivesSwitch: a continuation keeps the files that it began with, whatever is
// written and switched in the meantime.
func TestContinuationOutlivesSwitch(t *testing.T) {
	m := newModel()
	l := emptyLog(t)
	write(t, l, m.someFrames(12, true)...)
	whole := m.frames
	frames := check.Value(l.Transfer.Continue(0, chunkfile.GenesisChain(testCluster))).Must(t)
	rewrite(t, l.opts.FS, "x.tmp", []string{chunkfile.FileName(0, 0)}, keepAll)
	check.Must(t, l.SwitchChunk("x.tmp"))
	file := check.Value(l.Transfer.Continue(0, chunkfile.GenesisChain(testCluster))).Must(t)
	if f := file.File(); f == nil || f.Name != chunkfile.FileName(0, 1) || f.First != 0 || f.Last != 0 || f.End != chunkfile.ChunkSize || f.Chain != m.frames[4].tail.Chain {
		t.Fatalf("file %+v", file.File())
	}
	rewrite(t, l.opts.FS, "y.tmp", []string{chunkfile.FileName(0, 1), chunkfile.FileName(1, 0)}, keepAll)
	check.Must(t, l.SwitchChunk("y.tmp"))
	write(t, l, m.someFrames(4, true)...)

	to := emptyLog(t)
	for {
		b, err := frames.Next(400)
		if err == io.EOF {
			break
		}
		check.Must(t, err)
		_, err = to.AppendFrames(b.First, b.Raw)
		check.Must(t, err)
	}
	verify(t, to, whole, nil) // Up to the end at the time.
	check.Must(t, installFrom(file, emptyLog(t)))
	check.Must(t, errors.Join(frames.Close(), file.Close()))
	check.MustSlice(t, chunkFiles(t, l.opts.FS), []string{chunkfile.FileName(0, 2), chunkfile.FileName(2, 0)}, "files")
}

func TestAppendFramesRefuses(t *testing.T) {
	m := newModel()
	frames := slices.Clone(m.someFrames(7, true))
	at := frames[5].First // The first of the second chunk.
	remade := func(change func(tr *chunkfile.Trailer)) []byte {
		f := frames[6]
		tr := chunkfile.Trailer{First: f.First, Length: len(f.Records), Index: f.Index, Term: f.Term, Time: f.tail.Time, Chain: f.tail.Chain}
		change(&tr)
		return append(raw(frames[5]), tr.Append(bytes.Clone(f.Records))...)
	}
	flagged := remade(func(*chunkfile.Trailer) {})
	flagged[len(flagged)-chunkfile.TrailerSize+6] = 2
	copy(flagged[len(flagged)-chunkfile.ItemFoot:], checksumOf(flagged[len(flagged)-chunkfile.TrailerSize:len(flagged)-chunkfile.ItemFoot]))
	other := newModel()
	other.tail = frames[4].tail
	other.tail.Chain[3]++
	foreign := other.frame(false, ev("s", "x"))
	fork := newModel() // The same until the second frame.
	fork.someFrames(2, false)
	fork.frame(false, ev("fork", "x"))
	fork.frame(false, ev("fork", "y"))
	stranger := newModel()
	stranger.frame(false, ev("fork", "x"))

	cases := map[string]struct {
		first int64
		raw   []byte
		want  error
	}{
		"nothing":                 {at, nil, event.ErrBadFrames},
		"negative":                {-1, raw(frames[5]), event.ErrBadFrames},
		"a gap":                   {frames[6].First, raw(frames[6]), event.ErrBadFrames},
		"a whole chunk missing":   {2 * chunkfile.ChunkSize, raw(frames[5]), event.ErrBadFrames},
		"no trailer":              {at, frames[5].Records, event.ErrBadFrames},
		"cut in the second frame": {at, raw(frames[5:7]...)[:len(raw(frames[5]))+70], event.ErrBadFrames},
		"index does not rise":     {at, remade(func(tr *chunkfile.Trailer) { tr.Index = frames[5].Index }), event.ErrBadFrames},
		"term falls":              {at, remade(func(tr *chunkfile.Trailer) { tr.Term = 0 }), event.ErrBadFrames},
		"time falls":              {at, remade(func(tr *chunkfile.Trailer) { tr.Time = 0 }), event.ErrBadFrames},
		"time is not the newest":  {at, remade(func(tr *chunkfile.Trailer) { tr.Time++ }), event.ErrBadFrames},
		"length":                  {at, remade(func(tr *chunkfile.Trailer) { tr.Length--; tr.First++ }), event.ErrBadFrames},
		"chain":                   {at, remade(func(tr *chunkfile.Trailer) { tr.Chain[0]++ }), event.ErrBadFrames},
		"unknown flags":           {at, flagged, event.ErrBadFrames},
		"records alone":           {at, (&chunkfile.Trailer{First: at, Index: 99, Term: 1, Time: 1}).Append(nil), event.ErrBadFrames},
		"two chunks":              {frames[4].First, raw(frames[4], frames[5]), event.ErrBadFrames},
		"across the border":       {chunkfile.ChunkSize - 10, raw(frames[5]), event.ErrBadFrames},
		"another history":         {foreign.First, raw(foreign), event.ErrOtherHistory},
		"another, from the start": {0, raw(stranger.frames...), event.ErrOtherHistory},
		"another, below the end":  {fork.frames[2].First, raw(fork.frames[2:]...), event.ErrOtherHistory},
		"inside a record":         {3, raw(frames[0]), event.ErrOtherHistory},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := emptyLog(t)
			write(t, l, frames[:5]...)
			n, err := l.AppendFrames(c.first, c.raw)
			if n != 0 || !errors.Is(err, c.want) {
				t.Fatalf("%d frames, %v, want %v", n, err, c.want)
			}
			verify(t, l, frames[:5], nil)
			n, err = l.AppendFrames(at, raw(frames[5:]...))
			check.MustEqual(t, n, 2, "frames")
			check.Must(t, err, "frames")
			verify(t, l, frames, nil)
		})
	}
}

// TestAppendFramesThere: frames that the log has are passed over if they are the same.
func TestAppendFramesThere(t *testing.T) {
	m := newModel()
	m.someFrames(9, false)
	for have := range m.frames {
		for from := 0; from <= have; from++ {
			l := emptyLog(t)
			write(t, l, m.frames[:have]...)
			until := 5 + have%5 // Now and then all is there.
			if until <= from {
				continue
			}
			n, err := l.AppendFrames(m.frames[from].First, raw(m.frames[from:until]...))
			if want := max(0, until-have); n != want || err != nil {
				t.Fatalf("%d frames there, %d to %d given: %d taken (%v), want %d", have, from, until, n, err, want)
			}
			verify(t, l, m.frames[:max(have, until)], nil)
		}
	}
}

// TestAppendFramesFlipped: whatever byte of a block is damaged, nothing of it is taken.
func TestAppendFramesFlipped(t *testing.T) {
	m := newModel()
	frames := m.someFrames(4, false)
	block := raw(frames[1:]...)
	l := emptyLog(t)
	write(t, l, frames[0])
	for i := range block {
		b := bytes.Clone(block)
		b[i] ^= 1 << (i % 8)
		if n, err := l.AppendFrames(frames[1].First, b); err == nil || n != 0 || l.Tail() != frames[0].tail {
			t.Fatalf("byte %d: %d frames, %v, tail %+v", i, n, err, l.Tail())
		}
	}
	verify(t, l, frames[:1], nil)
	_, err := l.AppendFrames(frames[1].First, block)
	check.Must(t, err)
	verify(t, l, frames, nil)
}

// TestAppendFramesBehindAppend: what was appended and not committed is before the frames.
func TestAppendFramesBehindAppend(t *testing.T) {
	m := newModel()
	frames := m.someFrames(4, false)
	l := emptyLog(t)
	check.Must(t, l.Append(frames[0].Frame))
	n, err := l.AppendFrames(0, raw(frames...))
	check.MustEqual(t, n, 3, "frames")
	check.Must(t, err, "frames")
	verify(t, l, frames, nil)
}

// TestCatchUpWhileWriting: a log follows another one that is written to and
// whose chunks are rewritten, while readers read both.
func TestCatchUpWhileWriting(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, fsys := range map[string]func() vfs.FS{"memory": func() vfs.FS { return vfs.NewMem() }, "disk": func() vfs.FS { return vfs.OS }} {
		t.Run(name, func(t *testing.T) {
			var logs [2]*Log
			for i := range logs {
				o := testOptions(fsys())
				o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
				if o.FS == vfs.OS {
					o.Dir = t.TempDir()
				}
				logs[i] = mustOpen(t, o)
			}
			followWhileWriting(t, rand.New(rand.NewPCG(seed, 1)), logs[0], logs[1])
		})
	}
}

func followWhileWriting(t *testing.T, rng *rand.Rand, from, to *Log) {
	m := newModel()
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				for _, l := range []*Log{from, to} {
					for _, stream := range []string{"a0", "a1", "a2", "b0"} {
						if err := readSome(l, stream); err != nil {
							t.Error(err)
							return
						}
					}
					if _, err := l.Reads.ReadAll(event.AllRead{From: 0, Count: 50}); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 60 {
		write(t, from, m.someFrames(1+rng.IntN(6), true)...)
		mf := check.Value(from.Snapshot()).Must(t)
		if n := len(mf.Chunks); n > 1 && i%4 == 3 {
			var names []string
			first := rng.IntN(n)
			for _, c := range mf.Chunks[first : first+1+rng.IntN(n-first)] {
				names = append(names, chunkfile.FileName(c.First, c.Version))
			}
			check.Must(t, rewriteChunks(from.opts.FS, from.opts.Dir, "x.tmp", names, keepAll))
			check.Must(t, from.SwitchChunk("x.tmp"))
		}
		if i%3 == 0 {
			mustCatchUp(t, from, to, 1+rng.IntN(3000))
		}
	}
	close(done)
	readers.Wait()
	mustCatchUp(t, from, to, 0)
	verify(t, from, m.frames, nil)
	verify(t, to, m.frames, nil)
}
