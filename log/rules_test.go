package eventlog

import (
	"errors"
	"slices"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// A frame at the log's end is valid if checksum, place, chain and a rising index all hold. Whole
// frames after the checkpoint are kept, since they were committed. An old frame after a cut is not
// taken, although its checksum is right: it belongs to a history that does not count.
func TestRule08ValidFramesAreKeptAndStaleOnesCut(t *testing.T) {
	fsys, m := madeLog(t, func(m *model) {
		m.frame(false, ev("s", "1"))
		m.frame(false, ev("s", "2"))
		m.frame(false, ev("s", "3"))
	})
	forget(t, fsys, m, 1)
	l := mustOpen(t, testOptions(fsys))
	verify(t, l, m.frames, nil)
	closeLog(t, l)

	// The second frame is replaced by one of equal length; the third is still whole, and stands
	// where it stood.
	second := m.frames[1]
	changed := newModel()
	changed.frame(false, ev("s", "1"))
	other := changed.frame(false, ev("s", "x"))
	check.MustEqual(t, len(other.Records), len(second.Records), "frames of one length are needed")
	raw := check.Value(vfs.ReadFile(fsys, testDir+"/"+chunkfile.FileName(0, 0))).Must(t)
	third := slices.Clone(raw[chunkfile.HeaderSize+second.tail.End:])
	foreign := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, foreign, changed.frames...)
	if foreign.Tail().End != second.tail.End || foreign.Tail().Chain == second.tail.Chain {
		t.Fatalf("tail %+v, expected another chain at %d", foreign.Tail(), second.tail.End)
	}
	closeLog(t, foreign)
	cut := vfs.NewMem()
	l = mustOpen(t, testOptions(cut))
	write(t, l, changed.frames...)
	closeLog(t, l)
	edit(t, cut, chunkfile.FileName(0, 0), func(b []byte) []byte { return append(active(b, int(second.tail.End)), third...) })
	l = mustOpen(t, testOptions(cut))
	verify(t, l, changed.frames, nil)
	closeLog(t, l)
}

// A frame that completes its chunk says so itself: when the footer was lost with the power, the
// next start writes it, and the log ends at the next chunk's first position.
func TestRule08LostFooterIsWritten(t *testing.T) {
	fsys, m := madeLog(t, func(m *model) {
		m.frame(false, ev("s", "1"))
		m.frame(true, ev("s", "2"))
	})
	check.MustEqual(t, m.tail.End, chunkfile.ChunkSize, "the log ends at")
	edit(t, fsys, chunkfile.FileName(0, 0), func(b []byte) []byte { return b[:len(b)-chunkfile.FooterSize] })
	forget(t, fsys, m, 1)
	l := mustOpen(t, testOptions(fsys))
	verify(t, l, m.frames, nil)
	check.Equal(t, l.Tail().End, chunkfile.ChunkSize, "the log ends at")
	closeLog(t, l)
}

// The Raft index rises from frame to frame, and neither term nor time fall. A frame that is
// whole, stands where it belongs and has the right chain is of another history all the same.
func TestRule08FrameThatDoesNotFollowIsCut(t *testing.T) {
	for name, change := range map[string]func(tr *chunkfile.Trailer, before event.Tail){
		"index stays":    func(tr *chunkfile.Trailer, before event.Tail) { tr.Index = before.Index },
		"index falls":    func(tr *chunkfile.Trailer, before event.Tail) { tr.Index = before.Index - 1 },
		"term falls":     func(tr *chunkfile.Trailer, before event.Tail) { tr.Term = before.Term - 1 },
		"time falls":     func(tr *chunkfile.Trailer, before event.Tail) { tr.Time = before.Time - 1 },
		"another chain":  func(tr *chunkfile.Trailer, _ event.Tail) { tr.Chain[0]++ },
		"another length": func(tr *chunkfile.Trailer, _ event.Tail) { tr.Length--; tr.First++ },
	} {
		t.Run(name, func(t *testing.T) {
			fsys, m := madeLog(t, func(m *model) { m.term = 2; m.someFrames(3, false) })
			before, last := m.frames[1].tail, m.frames[2]
			edit(t, fsys, chunkfile.FileName(0, 0), func(b []byte) []byte {
				end := chunkfile.HeaderSize + int(last.tail.End)
				tr := chunkfile.Item(b[end-chunkfile.TrailerSize : end]).Trailer()
				change(&tr, before)
				return append(b[:end-chunkfile.TrailerSize], tr.Append(nil)...)
			})
			forget(t, fsys, m, 1)
			l := mustOpen(t, testOptions(fsys))
			verify(t, l, m.frames[:2], nil)
			check.Equal(t, l.Tail(), before, "the log ends at")
			closeLog(t, l)
		})
	}
}

func TestRule08FrameThatDoesNotFollowIsNotAppended(t *testing.T) {
	for name, change := range map[string]func(f *Frame){
		"index stays": func(f *Frame) { f.Index-- },
		"term falls":  func(f *Frame) { f.Term-- },
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			m.term = 2
			m.someFrames(3, false)
			l := mustOpen(t, testOptions(vfs.NewMem()))
			write(t, l, m.frames[:2]...)
			f := m.frames[2].Frame
			change(&f)
			if err := errors.Join(l.Append(f), l.Commit()); err == nil || l.Failed() == nil {
				t.Errorf("a frame of index %d and term %d was appended after %+v", f.Index, f.Term, l.Tail())
			}
		})
	}
}
