package eventlog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

// madeLog is a closed log in memory with the frames it holds.
func madeLog(t *testing.T, make func(m *model)) (*vfs.Mem, *model) {
	t.Helper()
	m, fsys := newModel(), vfs.NewMem()
	make(m)
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.frames...)
	closeLog(t, l)
	return fsys, m
}

// forget sets the checkpoint files back to the end of frame n, as if nothing after it had been
// synced.
func forget(t *testing.T, fsys vfs.FS, m *model, n int) {
	t.Helper()
	end := int64(0)
	if n > 0 {
		end = m.frames[n-1].tail.End
	}
	epoch := min(m.frames[0].First, end)
	if n == 0 {
		epoch = -1
	}
	setCheckpoint(t, fsys, datadir.EpochCheckpoint, epoch)
	setCheckpoint(t, fsys, datadir.ChaserCheckpoint, end)
	setCheckpoint(t, fsys, datadir.WriterCheckpoint, end)
}

// reopens opens the log, expects its first n frames, appends the others again and expects all.
func reopens(t *testing.T, fsys vfs.FS, m *model, n int) {
	t.Helper()
	l := mustOpen(t, testOptions(fsys))
	verify(t, l, m.frames[:n], nil)
	write(t, l, m.frames[n:]...)
	verify(t, l, m.frames, nil)
	closeLog(t, l)
	l = mustOpen(t, testOptions(fsys))
	verify(t, l, m.frames, nil)
	closeLog(t, l)
}

func active(b []byte, size int) []byte { return b[:chunkfile.HeaderSize+size] }

func TestTornTail(t *testing.T) {
	fsys, m := madeLog(t, func(m *model) { m.someFrames(3, false) })
	name := chunkfile.FileName(0, 0)
	raw := check.Value(vfs.ReadFile(fsys, filepath.Join(testDir, name))).Must(t)
	step, from := testkit.Sample(t, everyCut)
	for size := int(m.frames[1].tail.End) + from; size < int(m.frames[2].tail.End); size += step {
		for what, tail := range map[string][]byte{"cut": nil, "zeros": make([]byte, 200), "garbage": bytes.Repeat([]byte{0xa5, 68, 0, 2}, 50)} {
			b := append(slices.Clone(active(raw, size)), tail...)
			if bytes.HasPrefix(b, active(raw, int(m.tail.End))) {
				continue // The frame ends in zeros itself.
			}
			edit(t, fsys, name, func([]byte) []byte { return b })
			forget(t, fsys, m, size%3)
			l := check.Value(Open(testOptions(fsys))).Must(t, what, "at", size)
			check.Must(t, holds(l, m.frames[:2], nil), what, "at", size)
			closeLog(t, l)
		}
	}
	reopens(t, fsys, m, 2)
}

func TestValidFramesBeyondCheckpoint(t *testing.T) {
	fsys, m := madeLog(t, func(m *model) { m.someFrames(3, false); m.term = 2; m.someFrames(14, true) })
	forget(t, fsys, m, 1)
	reopens(t, fsys, m, len(m.frames))
}

func TestOldFrameBehindEnd(t *testing.T) {
	// The same bytes at the same place, but of another history.
	other := newModel()
	other.frame(false, ev("s", "2"))
	foreign := other.frame(false, ev("s", "stale"))
	m := newModel()
	m.frame(false, ev("s", "1"))
	check.MustEqual(t, m.tail.End, other.frames[0].tail.End, "frames of one length are needed")
	stale := func(change func(tr *chunkfile.Trailer)) []byte {
		tr := chunkfile.Trailer{First: foreign.First, Length: len(foreign.Records), Index: 2, Term: 1, Time: 1, Chain: chunkfile.NextChain(m.tail.Chain, foreign.First, foreign.Records)}
		change(&tr)
		return tr.Append(slices.Clone(foreign.Records))
	}
	cases := map[string]struct {
		tail  []byte
		valid bool
	}{
		"a frame that fits":    {stale(func(*chunkfile.Trailer) {}), true},
		"chain of another log": {stale(func(tr *chunkfile.Trailer) { tr.Chain = foreign.tail.Chain }), false},
		"index does not rise":  {stale(func(tr *chunkfile.Trailer) { tr.Index = 1 }), false},
		"term falls":           {stale(func(tr *chunkfile.Trailer) { tr.Term = 0 }), false},
		"time falls":           {stale(func(tr *chunkfile.Trailer) { tr.Time = 0 }), false},
		"wrong length":         {stale(func(tr *chunkfile.Trailer) { tr.Length -= 64; tr.First += 64 }), false},
		"moved":                {stale(func(*chunkfile.Trailer) {})[4:], false},
		"empty frame":          {(&chunkfile.Trailer{First: m.tail.End, Index: 2, Term: 1, Time: 1, Chain: chunkfile.NextChain(m.tail.Chain, m.tail.End, nil)}).Append(nil), false},
		"no trailer":           {foreign.Records, false},
		"trailer damaged":      {append(stale(func(*chunkfile.Trailer) {})[:len(foreign.Records)+20], make([]byte, 60)...), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			l := mustOpen(t, testOptions(fsys))
			write(t, l, m.frames...)
			closeLog(t, l)
			edit(t, fsys, chunkfile.FileName(0, 0), func(b []byte) []byte { return append(active(b, int(m.tail.End)), c.tail...) })
			l = mustOpen(t, testOptions(fsys))
			want := int64(len(m.frames[0].Records) + chunkfile.TrailerSize)
			if c.valid {
				want = foreign.tail.End
			}
			check.MustEqual(t, l.Tail().End, want, "the log ends at")
			closeLog(t, l)
			b, err := vfs.ReadFile(fsys, filepath.Join(testDir, chunkfile.FileName(0, 0)))
			check.Must(t, err)
			check.MustEqual(t, int64(len(b)), chunkfile.HeaderSize+want, "file of", len(b), "bytes")
		})
	}
}

func TestFooterLost(t *testing.T) {
	make := func(m *model) { m.someFrames(12, true) } // Chunks 0 and 1 complete, 2 active.
	dataSize := func(m *model, n int) int {
		return int(m.frames[n].First) + len(m.frames[n].Records) + chunkfile.TrailerSize
	}
	withoutFooter := func(m *model) func(b []byte) []byte {
		return func(b []byte) []byte { return active(b, dataSize(m, 4)) }
	}
	cases := map[string]struct {
		change  func(m *model) func(b []byte) []byte
		synced  int  // frames
		frames  int  // left
		corrupt bool // and refused, as a chunk has a successor only when it is durable
	}{
		"missing":                    {withoutFooter, 0, 12, false},
		"torn":                       {func(*model) func(b []byte) []byte { return func(b []byte) []byte { return b[:len(b)-5] } }, 3, 12, false},
		"damaged":                    {func(*model) func(b []byte) []byte { return func(b []byte) []byte { b[len(b)-60]++; return b } }, 3, 12, false},
		"missing in a durable chunk": {withoutFooter, 8, 12, false},
		"data lost before it": {func(m *model) func(b []byte) []byte {
			return func(b []byte) []byte { clear(b[chunkfile.HeaderSize+m.frames[3].First:][:20]); return b }
		}, 2, 0, true},
		"last frame lost with it": {func(m *model) func(b []byte) []byte {
			return func(b []byte) []byte { return active(b, int(m.frames[4].First)) }
		}, 4, 0, true},
		"durable frame lost with it": {func(m *model) func(b []byte) []byte {
			return func(b []byte) []byte { return active(b, int(m.frames[4].First)) }
		}, 5, 0, true},
		"all lost but the header":     {func(m *model) func(b []byte) []byte { return func(b []byte) []byte { return active(b, 0) } }, 0, 0, true},
		"trailing bytes on an active": {func(m *model) func(b []byte) []byte { return func(b []byte) []byte { return append(b, 1, 2, 3) } }, 0, 12, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys, m := madeLog(t, make)
			forget(t, fsys, m, c.synced)
			edit(t, fsys, chunkfile.FileName(0, 0), c.change(m))
			if c.corrupt {
				refuses(t, testOptions(fsys), true, chunkfile.FileName(0, 0))
				return
			}
			reopens(t, fsys, m, c.frames)
		})
	}
}

// refuses expects that the log does not open, twice, and that nothing stays open.
func refuses(t *testing.T, o Options, corruption bool, says string) {
	t.Helper()
	counting := vfs.NewCounting(o.FS)
	o.FS = counting
	for range 2 {
		l, err := Open(o)
		if err == nil {
			t.Fatal(errors.Join(errors.New("the log opened"), l.Close()))
		}
		check.MustEqual(t, event.IsCorruption(err), corruption)
		check.MustContain(t, err.Error(), says)
	}
	if open := counting.OpenFiles(); len(open) > 0 {
		t.Fatalf("left open: %v", open)
	}
}

// TestNextChunkTorn: a chunk has its name when its header is durable. Data after the header may be
// lost.
func TestNextChunkTorn(t *testing.T) {
	cases := map[string]struct {
		change  func(b []byte) []byte
		aside   bool // it is kept under another name
		refused bool
	}{
		"empty file":           {change: func([]byte) []byte { return nil }, refused: true},
		"torn header":          {change: func(b []byte) []byte { return b[:50] }, refused: true},
		"zeroed header":        {change: func(b []byte) []byte { clear(b[:chunkfile.HeaderSize]); return b }, refused: true},
		"header alone":         {change: func(b []byte) []byte { return b[:chunkfile.HeaderSize] }},
		"header and zeros":     {change: func(b []byte) []byte { clear(b[chunkfile.HeaderSize:]); return b }},
		"header and torn data": {change: func(b []byte) []byte { return b[:chunkfile.HeaderSize+90] }, aside: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys, m := madeLog(t, func(m *model) { m.someFrames(6, true) })
			forget(t, fsys, m, 5)
			edit(t, fsys, chunkfile.FileName(1, 0), c.change)
			if c.refused {
				refuses(t, testOptions(fsys), true, chunkfile.FileName(1, 0))
				return
			}
			reopens(t, fsys, m, 5)
			kept := check.Value(fsys.List(testDir)).Must(t)
			check.Equal(t, slices.ContainsFunc(kept, func(n string) bool {
				return strings.HasPrefix(n, "aside-") && strings.HasSuffix(n, chunkfile.FileName(1, 0))
			}), c.aside, "the folder has", kept)
		})
		t.Run(name+", durable", func(t *testing.T) {
			fsys, _ := madeLog(t, func(m *model) { m.someFrames(6, true) })
			edit(t, fsys, chunkfile.FileName(1, 0), c.change)
			refuses(t, testOptions(fsys), true, chunkfile.FileName(1, 0))
		})
	}
}

// TestChunksBehindEnd: whatever the checkpoints say, a start refuses if it finds chunks after the
// end of the log. It names them and changes no chunk.
func TestChunksBehindEnd(t *testing.T) {
	checkpoints := map[string]func(t *testing.T, fsys *vfs.Mem, m *model){
		"as they were": func(*testing.T, *vfs.Mem, *model) {},
		"writer.chk missing": func(t *testing.T, fsys *vfs.Mem, _ *model) {
			check.Must(t, fsys.Remove(filepath.Join(testDir, datadir.WriterCheckpoint)))
		},
		"all missing":          func(t *testing.T, fsys *vfs.Mem, _ *model) { withoutCheckpoints(t, fsys) },
		"of an older copy":     func(t *testing.T, fsys *vfs.Mem, m *model) { forget(t, fsys, m, 2) },
		"all at the beginning": func(t *testing.T, fsys *vfs.Mem, m *model) { forget(t, fsys, m, 0) },
		"empty files": func(t *testing.T, fsys *vfs.Mem, _ *model) {
			for name := range datadir.InitialCheckpoints {
				edit(t, fsys, name, func([]byte) []byte { return nil })
			}
		},
	}
	chunks := map[string]func(t *testing.T, fsys *vfs.Mem){
		"missing": func(t *testing.T, fsys *vfs.Mem) {
			check.Must(t, fsys.Remove(filepath.Join(testDir, chunkfile.FileName(1, 0))))
		},
		"empty": func(t *testing.T, fsys *vfs.Mem) {
			edit(t, fsys, chunkfile.FileName(1, 0), func([]byte) []byte { return nil })
		},
		"cut short": func(t *testing.T, fsys *vfs.Mem) {
			edit(t, fsys, chunkfile.FileName(1, 0), func(b []byte) []byte { return b[:len(b)/2] })
		},
		"its header torn": func(t *testing.T, fsys *vfs.Mem) { rot(t, fsys, chunkfile.FileName(1, 0), 20) },
		"its first frame": func(t *testing.T, fsys *vfs.Mem) { rot(t, fsys, chunkfile.FileName(1, 0), chunkfile.HeaderSize+80) },
		"a user's": func(t *testing.T, fsys *vfs.Mem) {
			check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(testDir, chunkfile.FileName(9, 0)), bytes.Repeat([]byte("a user's file"), 50)))
		},
	}
	for what, spoil := range chunks {
		for which, change := range checkpoints {
			t.Run(what+", "+which, func(t *testing.T) {
				fsys, m := madeLog(t, func(m *model) { m.someFrames(22, true) })
				spoil(t, fsys)
				change(t, fsys, m)
				before := folderOfChunks(t, fsys)
				l, err := Open(testOptions(fsys))
				if err == nil {
					if _, err = l.Reads.ReadAll(event.AllRead{From: event.End, Count: 1, Backward: true}); err == nil && l.Tail().End != m.tail.End {
						t.Errorf("it opened, and ends at %d of %d", l.Tail().End, m.tail.End)
					}
					// The footer of what was durable is believed, and the rest verified in the
					// background.
					closeLog(t, l)
				} else if !strings.Contains(err.Error(), "chunk-00000") {
					t.Error(err)
				}
				if after := folderOfChunks(t, fsys); !maps.Equal(before, after) {
					t.Errorf("chunks have changed: %d files, then %d", len(before), len(after))
				}
			})
		}
	}
}

func withoutCheckpoints(t *testing.T, fsys vfs.FS) {
	t.Helper()
	for name := range datadir.InitialCheckpoints {
		check.Must(t, fsys.Remove(filepath.Join(testDir, name)))
	}
}

// folderOfChunks is the content of all chunk files.
func folderOfChunks(t *testing.T, fsys vfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range chunkFiles(t, fsys) {
		b := check.Value(vfs.ReadFile(fsys, filepath.Join(testDir, name))).Must(t)
		all[name] = string(b)
	}
	return all
}

// TestCheckpointsLost: missing and empty checkpoint files, all or one of them, are made again from
// a whole log.
func TestCheckpointsLost(t *testing.T) {
	lose := map[string]func(t *testing.T, fsys vfs.FS, name string){
		"missing": func(t *testing.T, fsys vfs.FS, name string) { check.Must(t, fsys.Remove(filepath.Join(testDir, name))) },
		"empty":   func(t *testing.T, fsys vfs.FS, name string) { edit(t, fsys, name, func([]byte) []byte { return nil }) },
	}
	for how, f := range lose {
		for name := range datadir.InitialCheckpoints {
			t.Run(name+" "+how, func(t *testing.T) {
				fsys, m := madeLog(t, func(m *model) { m.someFrames(13, true) })
				f(t, fsys, name)
				reopens(t, fsys, m, 13)
			})
		}
		t.Run("all "+how, func(t *testing.T) {
			fsys, m := madeLog(t, func(m *model) { m.someFrames(13, true) })
			for name := range datadir.InitialCheckpoints {
				f(t, fsys, name)
			}
			reopens(t, fsys, m, 13)
		})
	}
}

func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		change     func(t *testing.T, fsys *vfs.Mem, m *model, o *Options)
		corruption bool
		says       string
	}{
		"durable data damaged": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			edit(t, fsys, chunkfile.FileName(2, 0), func(b []byte) []byte { b[chunkfile.HeaderSize+70] ^= 1; return b })
		}, true, chunkfile.FileName(2, 0)},
		"first chunk missing": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			check.Must(t, fsys.Remove(filepath.Join(testDir, chunkfile.FileName(0, 0))))
		}, false, "chunk 0 is missing"},
		"chunk missing": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			check.Must(t, fsys.Remove(filepath.Join(testDir, chunkfile.FileName(1, 0))))
		}, false, "chunk 1 is missing"},
		"last chunk missing": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			check.Must(t, fsys.Remove(filepath.Join(testDir, chunkfile.FileName(2, 0))))
		}, false, "was durable up to"},
		"chunk missing and cut above": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			check.Must(t, fsys.Remove(filepath.Join(testDir, chunkfile.FileName(1, 0))))
			setCheckpoint(t, fsys, datadir.TruncateCheckpoint, 2*chunkfile.ChunkSize)
		}, false, "was durable up to"},
		"all chunks missing": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			for i := range 3 {
				check.Must(t, fsys.Remove(filepath.Join(testDir, chunkfile.FileName(i, 0))))
			}
		}, false, "was durable up to"},
		"epoch ahead of writer": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			setCheckpoint(t, fsys, datadir.EpochCheckpoint, m.tail.End+1)
		}, false, "contradict"},
		"checkpoint of a wrong size": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			edit(t, fsys, datadir.WriterCheckpoint, func(b []byte) []byte { return b[:7] })
		}, false, "need 8"},
		"newer folder": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			edit(t, fsys, datadir.FormatFile, func([]byte) []byte {
				return fmt.Appendf(nil, `{"format":%d,"directoryId":%q}`, datadir.NewestFormat+1, event.ID(uuid.New()))
			})
		}, false, "newer"},
		"newer chunk": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			forget(t, fsys, m, 2)
			edit(t, fsys, chunkfile.FileName(2, 0), func(b []byte) []byte {
				chunkfile.Order.PutUint16(b[8:], chunkfile.FormatVersion+1)
				return closeHeader(b)
			})
		}, false, "newer format version"},
		"another cluster": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			o.ClusterID = event.ID{9}
		}, false, "belongs to cluster"},
		"chunk of another cluster": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			edit(t, fsys, chunkfile.FileName(1, 0), func(b []byte) []byte { b[40]++; return closeHeader(b) })
		}, true, chunkfile.FileName(1, 0)},
		"chunk under a wrong name": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			check.Must(t, fsys.Rename(filepath.Join(testDir, chunkfile.FileName(0, 0)), filepath.Join(testDir, chunkfile.FileName(1, 0))))
			check.Must(t, fsys.Rename(filepath.Join(testDir, chunkfile.FileName(2, 0)), filepath.Join(testDir, chunkfile.FileName(0, 0))))
		}, true, "the file holds chunk 2"},
		"damaged replacement": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			rewrite(t, fsys, chunkfile.FileName(0, 1), []string{chunkfile.FileName(0, 0), chunkfile.FileName(1, 0)}, keepAll)
			edit(t, fsys, chunkfile.FileName(0, 1), func(b []byte) []byte { return b[:len(b)-1] })
		}, true, chunkfile.FileName(0, 1)},
		"cut beyond what is allowed": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			setCheckpoint(t, fsys, datadir.TruncateCheckpoint, chunkfile.ChunkSize)
		}, false, "MaxTruncation"},
		"copy cut beyond what is allowed": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) {
			setCheckpoint(t, fsys, datadir.TruncateCheckpoint, 100)
			setCheckpoint(t, fsys, datadir.ChaserCheckpoint, 100)
			o.MaxTruncate = 1000
		}, false, "MaxTruncation"},
		"no folder given":           {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) { o.Dir = "" }, false, "no folder"},
		"index in the log's folder": {func(t *testing.T, fsys *vfs.Mem, m *model, o *Options) { o.IndexDir = testDir + "/" }, false, "index must not"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys, m := madeLog(t, func(m *model) { m.someFrames(13, true) })
			o := testOptions(fsys)
			c.change(t, fsys, m, &o)
			refuses(t, o, c.corruption, c.says)
			if name == "damaged replacement" {
				if files := chunkFiles(t, fsys); len(files) != 4 {
					t.Fatalf("files %v", files)
				}
			}
		})
	}
}

// TestBeforeCut: what knows of the longer log is put away before anything is cut. If that fails,
// nothing is cut.
func TestBeforeCut(t *testing.T) {
	fsys, m := madeLog(t, func(m *model) { m.someFrames(4, false) })
	at := m.frames[1].tail.End
	setCheckpoint(t, fsys, datadir.TruncateCheckpoint, at)
	o := testOptions(fsys)
	var told []int64
	failure := errors.New("folder in the way")
	o.BeforeCut = func(at int64) error {
		told = append(told, at)
		if len(told) == 1 {
			return failure
		}
		return nil
	}
	files := func() (all []byte) {
		for _, name := range []string{chunkfile.FileName(0, 0), datadir.WriterCheckpoint, datadir.ChaserCheckpoint, datadir.EpochCheckpoint, datadir.TruncateCheckpoint} {
			data := check.Value(vfs.ReadFile(fsys, filepath.Join(testDir, name))).Must(t)
			all = append(all, data...)
		}
		return all
	}
	before := files()
	check.MustBe(t, check.Err(Open(o)), failure, "error")
	if !bytes.Equal(before, files()) || !slices.Equal(told, []int64{at}) {
		t.Errorf("told %v, and files were changed", told)
	}
	l := mustOpen(t, o)
	verify(t, l, m.frames[:2], nil)
	closeLog(t, l)
	closeLog(t, mustOpen(t, o)) // Nothing is cut at the next start.
	check.Slice(t, told, []int64{at, at}, "told")
}

// closeHeader makes the checksum of a changed header right.
func closeHeader(b []byte) []byte {
	h := append(b[:124:124], checksumOf(b[:124])...)
	return append(h, b[chunkfile.HeaderSize:]...)
}

func TestSecondProcess(t *testing.T) {
	o := testOptions(vfs.NewMem())
	l := mustOpen(t, o)
	check.MustBe(t, check.Err(Open(o)), vfs.ErrLocked)
	closeLog(t, l)
	closeLog(t, mustOpen(t, o))
}

func TestStaleFilesRemoved(t *testing.T) {
	fsys, m := madeLog(t, func(m *model) { m.someFrames(17, true) })
	rewrite(t, fsys, chunkfile.FileName(0, 1), []string{chunkfile.FileName(0, 0)}, keepAll)
	rewrite(t, fsys, chunkfile.FileName(1, 4), []string{chunkfile.FileName(1, 0), chunkfile.FileName(2, 0)}, keepAll)
	check.Must(t, vfs.WriteFileAtomic(fsys, testDir+"/abc.tmp", []byte("x")))
	check.Must(t, vfs.WriteFileAtomic(fsys, testDir+"/notes", []byte("x")))
	l := mustOpen(t, testOptions(fsys))
	verify(t, l, m.frames, nil)
	want := []string{chunkfile.FileName(0, 1), chunkfile.FileName(1, 4), chunkfile.FileName(3, 0)}
	check.MustSlice(t, chunkFiles(t, fsys), want, "files")
	check.MustBe(t, check.Err(fsys.Stat(testDir+"/abc.tmp")), fs.ErrNotExist)
	check.Must(t, check.Err(fsys.Stat(testDir+"/notes")))
}

func TestEpochFound(t *testing.T) {
	for name, chk := range map[string]int64{"lost": -1, "older": 0, "no frame": 77} {
		t.Run(name, func(t *testing.T) {
			fsys, m := madeLog(t, func(m *model) { m.someFrames(7, true); m.term = 5; m.someFrames(8, true) })
			setCheckpoint(t, fsys, datadir.EpochCheckpoint, chk)
			l := mustOpen(t, testOptions(fsys))
			verify(t, l, m.frames, nil)
		})
	}
}

func TestTruncateCheckpoint(t *testing.T) {
	// Chunks 0 and 1 complete, 2 active.
	frames := func(m *model) { m.someFrames(7, true); m.term = 2; m.someFrames(8, true) }
	scavenge := func(t *testing.T, fsys *vfs.Mem) {
		rewrite(t, fsys, chunkfile.FileName(1, 1), []string{chunkfile.FileName(1, 0)}, keepAll)
		check.Must(t, fsys.Remove(filepath.Join(testDir, chunkfile.FileName(1, 0))))
	}
	cases := map[string]struct {
		at       func(m *model) int64
		prepare  func(t *testing.T, fsys *vfs.Mem)
		frames   int
		noLimits bool
		limit    int64 // 0: two chunks
		chaser   bool  // it says the same
		writer   func(m *model) int64
	}{
		"at a frame's end in the active chunk": {at: func(m *model) int64 { return m.frames[12].tail.End }, frames: 13},
		"inside a frame":                       {at: func(m *model) int64 { return m.frames[13].First + 70 }, frames: 13},
		"at the start of a chunk":              {at: func(m *model) int64 { return 2 * chunkfile.ChunkSize }, frames: 12},
		"in the void after a complete chunk":   {at: func(m *model) int64 { return 2*chunkfile.ChunkSize - 1 }, frames: 12},
		"inside a complete chunk":              {at: func(m *model) int64 { return m.frames[7].tail.End }, frames: 8},
		"inside the first frame of a chunk":    {at: func(m *model) int64 { return chunkfile.ChunkSize + 3 }, frames: 5},
		"inside the frame that began the term": {at: func(m *model) int64 { return m.frames[7].First + 5 }, frames: 7},
		"everything":                           {at: func(m *model) int64 { return 0 }, frames: 0, noLimits: true},
		"at the end":                           {at: func(m *model) int64 { return m.tail.End }, frames: 15},
		"beyond the end":                       {at: func(m *model) int64 { return m.tail.End + 5*chunkfile.ChunkSize }, frames: 15},
		"of a copy, across the end of a chunk": {at: func(m *model) int64 { return m.frames[7].tail.End }, frames: 8, limit: 2500, chaser: true},
		"of a copy, the writer's made before the epoch's": {at: func(m *model) int64 { return m.frames[12].tail.End }, frames: 13, chaser: true,
			writer: func(m *model) int64 { return m.frames[3].tail.End }},
		"of a copy, the epoch's made last": {at: func(m *model) int64 { return m.frames[5].tail.End }, frames: 6, chaser: true,
			writer: func(m *model) int64 { return m.frames[3].tail.End }},
		"inside a scavenged chunk":                {at: func(m *model) int64 { return m.frames[8].tail.End }, prepare: scavenge, frames: 5},
		"at the end of a scavenged chunk":         {at: func(m *model) int64 { return 2 * chunkfile.ChunkSize }, prepare: scavenge, frames: 12},
		"after a scavenged chunk":                 {at: func(m *model) int64 { return m.frames[12].tail.End }, prepare: scavenge, frames: 13},
		"inside a scavenged chunk, no limit":      {at: func(m *model) int64 { return m.frames[5].tail.End }, prepare: scavenge, frames: 5, noLimits: true},
		"at the start of the log's second chunk ": {at: func(m *model) int64 { return chunkfile.ChunkSize }, frames: 5, noLimits: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys, m := madeLog(t, frames)
			if c.prepare != nil {
				c.prepare(t, fsys)
			}
			setCheckpoint(t, fsys, datadir.TruncateCheckpoint, c.at(m))
			o := testOptions(fsys)
			o.MaxTruncate = cmp.Or(c.limit, 2*chunkfile.ChunkSize)
			if c.chaser {
				setCheckpoint(t, fsys, datadir.ChaserCheckpoint, c.at(m))
			}
			if c.writer != nil {
				setCheckpoint(t, fsys, datadir.WriterCheckpoint, c.writer(m))
			}
			if c.noLimits {
				o.MaxTruncate = -1
			}
			// The machine stops at any operation of the start, and the next start finds the way.
			step, from := testkit.Sample(t, everyCut)
			for stop, done := from, false; !done; stop += step {
				cut := cloneMem(t, fsys)
				var left atomic.Int64
				left.Store(int64(stop))
				o.FS = vfs.NewFaulty(cut, func(op vfs.Op) error {
					if !op.Kind.Mutates() {
						return nil
					}
					if left.Add(-1) < 0 {
						return errors.New("power cut")
					}
					return nil
				})
				l, err := Open(o)
				if err == nil { // What it does next to serving belongs to the start.
					allPosted(t, l)
					if err = l.Failed(); err != nil {
						check.Is(t, l.Close(), err)
					}
				}
				if done = err == nil; done {
					left.Store(1 << 40)
					verify(t, l, m.frames[:c.frames], nil)
					check.Must(t, l.Close())
				}
				survivor := cut.CrashClone(vfs.CrashOptions{})
				again := o
				again.FS = survivor
				l, err = Open(again)
				check.Must(t, err, "stopped at operation", stop)
				check.Must(t, holds(l, m.frames[:c.frames], nil), "stopped at operation", stop)
				write(t, l, m.frames[c.frames:]...)
				verify(t, l, m.frames, nil)
				closeLog(t, l)
				if value, err := vfs.ReadFile(survivor, filepath.Join(testDir, datadir.TruncateCheckpoint)); err != nil || int64(chunkfile.Order.Uint64(value)) != -1 {
					t.Fatalf("truncate.chk is %x, %v", value, err)
				}
			}
		})
	}
}

// TestChaserCheckpoint: it covers all that can be read, without any sync, so that a copy by hand
// that is cut there lacks nothing that was acknowledged before. Where it says more than a power cut
// left, the start takes it down.
func TestChaserCheckpoint(t *testing.T) {
	fsys := vfs.NewCrashMem()
	chaser := func(fsys vfs.FS) int64 {
		b, err := vfs.ReadFile(fsys, filepath.Join(testDir, datadir.ChaserCheckpoint))
		check.Must(t, err)
		return int64(chunkfile.Order.Uint64(b))
	}
	m := newModel()
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.frame(false, ev("s", "synced")))
	check.Must(t, l.syncer.Sync())
	for range 5 {
		write(t, l, m.frame(false, ev("s", "not synced")))
		check.MustEqual(t, chaser(fsys), m.tail.End, "chaser.chk stands at ..., the log ends at")
	}
	ahead := fsys.CrashClone(vfs.CrashOptions{})
	setCheckpoint(t, ahead, datadir.ChaserCheckpoint, m.tail.End)
	l = mustOpen(t, testOptions(ahead))
	verify(t, l, m.frames[:1], nil)
	if got := chaser(ahead); got != l.Tail().End {
		t.Errorf("chaser.chk stands at %d after the start, the log ends at %d", got, l.Tail().End)
	}
	write(t, l, m.frames[1:]...)
	verify(t, l, m.frames, nil)
	closeLog(t, l)
}

// cloneMem copies a file system into one that knows what is durable: all of it.
func cloneMem(t *testing.T, from *vfs.Mem) *vfs.Mem {
	t.Helper()
	to := vfs.NewCrashMem()
	var walk func(dir string)
	walk = func(dir string) {
		names := check.Value(from.List(dir)).Must(t)
		check.Must(t, vfs.MkdirAllSync(to, dir))
		for _, name := range names {
			path := filepath.Join(dir, name)
			info := check.Value(from.Stat(path)).Must(t)
			if info.IsDir() {
				walk(path)
				continue
			}
			b := check.Value(vfs.ReadFile(from, path)).Must(t)
			check.Must(t, vfs.WriteFileAtomic(to, path, b))
		}
	}
	walk(testDir)
	return to
}
