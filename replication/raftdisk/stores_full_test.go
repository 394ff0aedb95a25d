package raftdisk

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// A full disk takes no entries with data. raft deletes the end to store others in its place, and
// does not notice when only the first of both was done. So both are done, or none.
func TestFullDiskAndTheEnd(t *testing.T) {
	command := func(index, term uint64) []*raft.Log {
		return []*raft.Log{{Index: index, Term: term, Type: raft.LogCommand, Data: []byte("x")}}
	}
	for _, kind := range []*logKind{boltKind, segmentKind} {
		for _, c := range []struct {
			name      string
			low, high uint64 // that are deleted
			covered   uint64 // by the newest snapshot
			end       bool   // so that others are stored in their place
		}{
			{"the end", 7, 10, 0, true},
			{"the last one", 10, 10, 0, true},
			{"the end, and more", 7, 12, 0, true},
			{"all", 3, 10, 2, true},
			{"all, for a snapshot", 3, 10, 11, false},
			{"all, for a snapshot that ends there", 3, 10, 10, false},
			{"the front", 3, 6, 8, false},
			{"nothing", 11, 12, 0, false},
		} {
			t.Run(kind.name+"/"+c.name, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), kind.name)
				check.Must(t, kind.create(vfs.OS, path))
				inner, err := kind.open(vfs.OS, path, hclog.NewNullLogger())
				check.Must(t, err)
				s := newRaftLog(kind, vfs.OS, path, inner, &FailStop{OnFatal: func(err error) { t.Error(err) }}, newEntrySizes(16))
				defer func() { check.Must(t, s.Close()) }()
				s.Covered = func() (index, term uint64) { return c.covered, 1 }
				for i := uint64(3); i <= 10; i++ {
					check.Must(t, s.StoreLogs(command(i, 1)))
				}

				s.Full.Store(true)
				check.Is(t, s.StoreLogs(command(11, 1)), errFull, "stored on a full disk")
				err = s.DeleteRange(c.low, c.high)
				first, last, _ := ends(s)
				if c.end {
					if !errors.Is(err, errFull) || first != 3 || last != 10 {
						t.Errorf("%v, and the log has %d to %d", err, first, last)
					}
				} else if err != nil {
					t.Error(err)
				}
				if !c.end {
					return
				}

				s.Full.Store(false)
				check.Must(t, s.DeleteRange(c.low, c.high))
				s.Full.Store(true) // between the two
				check.Must(t, s.StoreLogs(command(c.low, 2)))
				check.Is(t, s.StoreLogs(command(c.low+1, 2)), errFull, "stored on a full disk")
			})
		}
	}
}
