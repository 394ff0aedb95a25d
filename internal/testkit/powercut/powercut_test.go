package powercut

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestCuts writes a file in five operations that change the disk.
func TestCuts(t *testing.T) {
	write := func(fsys vfs.FS) {
		f := check.Value(fsys.Create("f")).Must(t)
		check.Must(t, check.Err(f.WriteAt([]byte("a"), 0)))
		check.Must(t, f.Sync())
		check.Must(t, f.Close())
		check.Must(t, fsys.SyncDir("."))
		check.Must(t, fsys.Rename("f", "g"))
	}
	promised := 0
	var seen []vfs.Kind
	for name, c := range map[string]struct {
		o    Options[int]
		want int
	}{
		"each":         {Options[int]{}, 5},
		"off":          {Options[int]{Off: true}, 0},
		"every other":  {Options[int]{Every: 2, First: 1}, 3},
		"with more":    {Options[int]{More: 2}, 15},
		"at some more": {Options[int]{More: 2, MoreEvery: 2}, 11},
		"seen":         {Options[int]{See: func(op vfs.Op) { seen = append(seen, op.Kind) }}, 5},
		"noted":        {Options[int]{Note: func() int { return promised }}, 5},
	} {
		d := New(c.o)
		promised = 1
		write(d)
		d.Off()
		write(d)
		promised = 2
		cuts := d.Cuts()
		check.MustEqual(t, len(cuts), c.want, name)
		for _, cut := range cuts {
			// Its name was synced before the rename, and not earlier.
			if synced := strings.Contains(cut.What, "before rename"); synced || !strings.Contains(cut.What, "more") {
				check.Equal(t, check.Err(cut.FS.Stat("f")) == nil, synced, name, cut.What)
			}
			check.Equal(t, cut.Note, map[bool]int{true: 1}[name == "noted"], name)
		}
		d.Cut("now")
		check.Equal(t, d.Cuts()[0].Note, 2*map[bool]int{true: 1}[name == "noted"], name)
	}
	check.Slice(t, seen, []vfs.Kind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir, vfs.OpRename})
}
