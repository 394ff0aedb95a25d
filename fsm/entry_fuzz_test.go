package fsm_test

import (
	"bytes"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

func FuzzEntry(f *testing.F) {
	l := newLeader(f, vfs.NewMem())
	l.write(appending("s", -2, 1, 2))
	l.seal()
	l.write(describing("s", -2, 3, `{}`))
	l.write(scavengePoint(4))
	l.seal()
	for _, e := range l.sealed {
		f.Add(e)
		f.Add(e[:fsm.EntryHead+30])
	}
	l.flush()
	l.close()
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		kept := bytes.Clone(b)
		e, err := fsm.ParseEntry(b)
		check.MustSlice(t, b, kept, "the bytes were changed")
		if err == nil {
			check.MustSlice(t, e.Bytes(), b, "read ... as", e)
			if e.End < 0 || e.First != chunkfile.Place(e.End, len(e.Records)) {
				t.Fatalf("accepted %+v", e)
			}
		}
		// Most inputs have a wrong checksum: test the checks after it too.
		made := fsm.Entry{End: int64(len(b)), Chain: event.Chain{1}, First: int64(len(b)), Records: b}.Bytes()
		if e, err := fsm.ParseEntry(made); err == nil && !bytes.Equal(e.Records, b) {
			t.Fatalf("records %x, want %x", e.Records, b)
		}
	})
}
