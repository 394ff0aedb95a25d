package raftdisk

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

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
				mustNot(t, kind.create(vfs.OS, path))
				inner, err := kind.open(vfs.OS, path, hclog.NewNullLogger())
				mustNot(t, err)
				s := newRaftLog(kind, vfs.OS, path, inner, &FailStop{OnFatal: func(err error) { t.Error(err) }}, newEntrySizes(16))
				defer func() { mustNot(t, s.Close()) }()
				s.Covered = func() (index, term uint64) { return c.covered, 1 }
				for i := uint64(3); i <= 10; i++ {
					mustNot(t, s.StoreLogs(command(i, 1)))
				}

				s.Full.Store(true)
				if err := s.StoreLogs(command(11, 1)); !errors.Is(err, errFull) {
					t.Errorf("stored on a full disk: %v", err)
				}
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
				mustNot(t, s.DeleteRange(c.low, c.high))
				s.Full.Store(true) // between the two
				mustNot(t, s.StoreLogs(command(c.low, 2)))
				if err := s.StoreLogs(command(c.low+1, 2)); !errors.Is(err, errFull) {
					t.Errorf("stored on a full disk: %v", err)
				}
			})
		}
	}
}
