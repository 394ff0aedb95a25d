package raftdisk

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
)

// acknowledged is what was so at a power cut.
type acknowledged struct{ last, covers, term uint64 } // the last entry, the newest snapshot

// Whenever the power fails, the acknowledged entries, votes and snapshots are there at the next
// start, and fit together.
func TestPowerCutBeforeAnyOperation(t *testing.T) {
	for _, kind := range []LogStore{Wal, BoltDB} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			cutBeforeAnyOperation(t, kind)
		})
	}
}

func cutBeforeAnyOperation(t *testing.T, kind LogStore) {
	o := testOptions("/data", event.Tail{})
	o.LogStore = kind
	var now acknowledged
	disk := powercut.New(powercut.Options[acknowledged]{More: 1, Note: func() acknowledged { return now }})
	check.Must(t, vfs.MkdirAllSync(disk, o.Dir))
	o.Files = disk
	s := check.Value(openTestState(t, o)).Must(t)
	now.last = 1 // that names this node as the only voter
	for index := uint64(2); index <= 13; index++ {
		check.Must(t, s.Logs.StoreLog(&raft.Log{Index: index, Term: 1, Data: fmt.Appendf(nil, "entry %d", index)}))
		now.last = index
		if index%4 == 0 {
			check.Must(t, s.Snapshots.publish(snapshotOf(t, s.ID, index, 1, event.Tail{})))
			now.covers = index
			check.Must(t, s.Logs.DeleteRange(1, index-2))
			check.Must(t, s.Stable.SetUint64(keyCurrentTerm, index))
			now.term = index
		}
	}
	check.Must(t, s.Mark(PulledFile))
	check.Must(t, s.Unmark(PulledFile))
	check.Must(t, s.Close())

	cuts := disk.Cuts()
	for _, cut := range cuts {
		o.Files = cut.FS
		s := check.Value(openTestState(t, o)).Must(t, cut.What)
		check.NoError(t, check.Err(s.CheckStart(o.Log)), cut.What)
		newest, _ := s.Snapshots.Newest()
		if newest < cut.Note.covers {
			t.Errorf("%s: the newest snapshot ends at %d, one that ends at %d was acknowledged", cut.What, newest, cut.Note.covers)
		}
		if term, err := s.Stable.GetUint64(keyCurrentTerm); err != nil || term < cut.Note.term {
			t.Errorf("%s: the term is %d, %v, and %d was acknowledged", cut.What, term, err, cut.Note.term)
		}
		for index := max(newest+1, 2); index <= cut.Note.last; index++ {
			var entry raft.Log
			if err := s.Logs.GetLog(index, &entry); err != nil || string(entry.Data) != fmt.Sprintf("entry %d", index) {
				t.Errorf("%s: entry %d was acknowledged and is %q, %v", cut.What, index, entry.Data, err)
			}
		}
		check.Must(t, s.Close())
	}
	if len(cuts) < 80 {
		t.Errorf("the power was cut %d times only", len(cuts)/2)
	}
}
