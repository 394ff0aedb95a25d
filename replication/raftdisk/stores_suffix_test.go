package raftdisk

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestSuffixCutSurvivesReopen: entries of a leader that lost are cut off the end of
// the Raft log; what is left must be readable after a restart, however many there
// are and whatever follows before it.
func TestSuffixCutSurvivesReopen(t *testing.T) {
	for _, kind := range []*logKind{boltKind, segmentKind} {
		for _, c := range []struct{ entries, cut, more uint64 }{
			{1, 1, 0}, {10, 1, 0}, {10, 9, 0}, {10, 1, 1}, {10, 1, 5}, {700, 1, 1}, {700, 550, 200},
		} {
			t.Run(fmt.Sprintf("%s/%d-%d+%d", kind.name, c.entries, c.cut, c.more), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), kind.name)
				check.Must(t, kind.create(vfs.OS, path))
				open := func() *RaftLog {
					inner := check.Value(kind.open(vfs.OS, path, hclog.NewNullLogger())).Must(t)
					s := newRaftLog(kind, vfs.OS, path, inner, &FailStop{OnFatal: func(err error) { t.Error(err) }}, newEntrySizes(16))
					s.open = func(p string) (Backing, error) { return kind.open(vfs.OS, p, hclog.NewNullLogger()) }
					return s
				}
				s := open()
				check.Must(t, s.inner.Set(keyCreation, []byte("who")))
				store := func(from, to, term uint64) {
					for i := from; i <= to; i++ {
						check.Must(t, s.StoreLogs([]*raft.Log{{Index: i, Term: term, Data: make([]byte, 300)}}))
					}
				}
				store(1, c.entries, 1)
				check.Must(t, s.DeleteRange(c.entries-c.cut+1, c.entries))
				store(c.entries-c.cut+1, c.entries-c.cut+c.more, 2)
				last := c.entries - c.cut + c.more
				for range 2 {
					if got, err := s.LastIndex(); err != nil || got != last {
						t.Fatalf("last index %d, %v; want %d", got, err, last)
					}
					for i := uint64(1); i <= last; i++ {
						var entry raft.Log
						check.Must(t, s.inner.GetLog(i, &entry), "entry", i, "of", last)
						want := uint64(1)
						if i > c.entries-c.cut {
							want = 2
						}
						check.MustEqual(t, entry.Term, want, "entry", i, "has term")
					}
					check.Must(t, s.Close())
					s = open()
				}
				if id, err := s.inner.Get(keyCreation); err != nil || string(id) != "who" {
					t.Errorf("creation id %q, %v", id, err)
				}
				check.Must(t, s.Close())
			})
		}
	}
}
