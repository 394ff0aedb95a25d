package eventlog

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// TestIndexOfAnotherLog: an index is believed only where a frame of the log ends at its checkpoint
// with the chain that it names, however plausible that checkpoint is.
func TestIndexOfAnotherLog(t *testing.T) {
	// build makes a log with an index that covers the first frames.
	build := func(o Options, m *model, covered int, then func(m *model)) {
		l := mustOpen(t, o)
		write(t, l, m.frames[:covered]...)
		check.Must(t, l.index.Flush())
		then(m)
		write(t, l, m.frames[covered:]...)
		closeLog(t, l)
	}
	more := func(m *model) { m.someFrames(12, false) }
	ours := func() *model { m := newModel(); m.someFrames(8, true); return m }
	indexMap := filepath.Join("/other/index", "indexmap")
	for name, c := range map[string]struct {
		change   func(t *testing.T, fsys vfs.FS, m *model) // what stands in the folder /other/index
		believed bool
	}{
		"its own": {func(*testing.T, vfs.FS, *model) {}, true},
		"of another cluster": {func(t *testing.T, fsys vfs.FS, m *model) {
			check.Must(t, fsys.RemoveAll("/other"))
			o := testOptions(fsys)
			o.Dir, o.IndexDir, o.ClusterID[0] = "/foreign", "/other/index", 0xff
			foreign := newModel()
			foreign.tail.Chain = chunkfile.GenesisChain(o.ClusterID)
			for foreign.tail.End < m.frames[3].tail.End {
				foreign.frame(false, ev("foreign", "x"))
			}
			build(o, foreign, len(foreign.frames), func(*model) {})
		}, false},
		"of another history of this cluster": {func(t *testing.T, fsys vfs.FS, m *model) {
			check.Must(t, fsys.RemoveAll("/other"))
			o := testOptions(fsys)
			o.Dir, o.IndexDir = "/foreign", "/other/index"
			other := newModel()
			for _, f := range m.frames[:5] { // The same frames with other events in them.
				for i := range f.events {
					f.events[i].data, f.events[i].stream = string(bytes.Repeat([]byte{'y'}, len(f.events[i].data))), string(bytes.Repeat([]byte{'z'}, len(f.events[i].stream)))
				}
				other.frame(f.Completes, f.events...)
			}
			build(o, other, 5, func(*model) {})
		}, false},
		"of a version before": {func(t *testing.T, fsys vfs.FS, m *model) {
			b := check.Value(vfs.ReadFile(fsys, indexMap)).Must(t)
			_, body, _ := bytes.Cut(b, []byte{'\n'})
			body = regexp.MustCompile(`^2\n(\d+/\d+)/[^\n]*`).ReplaceAll(body, []byte("1\n$1"))
			sum := md5.Sum(body)
			check.Must(t, vfs.WriteFileAtomic(fsys, indexMap, fmt.Appendf(nil, "%s\n%s", hex.EncodeToString(sum[:]), body)))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, m := vfs.NewMem(), ours()
			o := testOptions(fsys)
			o.IndexDir = "/other/index"
			build(o, m, 8, more)
			c.change(t, fsys, ours())
			before := check.Value(vfs.ReadFile(fsys, indexMap)).Must(t)
			l := mustOpen(t, o)
			check.Equal(t, l.index.Checkpoint() != 0, c.believed, "believed", before)
			verify(t, l, m.frames, nil)
			check.Must(t, l.index.Flush())
			closeLog(t, l)
			l = mustOpen(t, o)
			check.Equal(t, l.index.Checkpoint(), m.tail.End, "rebuilt, the index reaches up to ..., the log to")
			verify(t, l, m.frames, nil)
			closeLog(t, l)
		})
	}
}

// TestIndexWhereTheLogIsDamaged: if the frame at the checkpoint of the index cannot be read, the
// index could not be rebuilt. So it is kept, and the rest stays readable.
func TestIndexWhereTheLogIsDamaged(t *testing.T) {
	mem, m := vfs.NewCrashMem(), newModel()
	o := testOptions(mem)
	l := mustOpen(t, o)
	write(t, l, m.frame(false, ev("a", "1")), m.frame(false, ev("a", "2")))
	check.Must(t, l.index.Flush())
	at := chunkfile.HeaderSize + m.tail.End - 20
	write(t, l, m.frame(true, ev("a", "3")), m.frame(false, ev("a", "4")))
	check.Must(t, l.syncer.Sync())
	fsys := mem.CrashClone(vfs.CrashOptions{}) // Closed in order, the index would reach the end.
	o.FS = fsys
	edit(t, fsys, chunkfile.FileName(0, 0), func(b []byte) []byte { b[at]++; return b })
	l = mustOpen(t, o)
	if got := l.index.Checkpoint(); got < m.frames[1].tail.End {
		t.Errorf("the index reaches up to %d, want %d at least", got, m.frames[1].tail.End)
	}
	check.Must(t, l.Close())
}
