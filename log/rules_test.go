package eventlog

import (
	"slices"
	"testing"

	"github.com/annalsdb/annals/internal/vfs"
)

// A frame at the log's end is valid if checksum, place, chain and a rising index all hold.
// Whole frames behind the checkpoint are kept, since they were committed; an old frame behind
// a cut is not taken, although its checksum is right: it is of a history that never was.
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

	// The second frame is replaced by one of equal length; the third is still whole, and stands where it stood.
	second := m.frames[1]
	changed := newModel()
	changed.frame(false, ev("s", "1"))
	other := changed.frame(false, ev("s", "x"))
	if len(other.Records) != len(second.Records) {
		t.Fatal("frames of one length are needed")
	}
	raw, err := vfs.ReadFile(fsys, testDir+"/"+chunkFileName(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	third := slices.Clone(raw[headerSize+second.tail.End:])
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
	edit(t, cut, chunkFileName(0, 0), func(b []byte) []byte { return append(active(b, int(second.tail.End)), third...) })
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
	if m.tail.End != ChunkSize {
		t.Fatalf("the log ends at %d", m.tail.End)
	}
	edit(t, fsys, chunkFileName(0, 0), func(b []byte) []byte { return b[:len(b)-footerSize] })
	forget(t, fsys, m, 1)
	l := mustOpen(t, testOptions(fsys))
	verify(t, l, m.frames, nil)
	if l.Tail().End != ChunkSize {
		t.Errorf("the log ends at %d", l.Tail().End)
	}
	closeLog(t, l)
}
