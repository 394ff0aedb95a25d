package eventlog

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestDamagedIndex: nothing that needs a damaged block of the index is answered as if events were not there, the log
// goes on, says what is wrong, and the next start builds the index again.
func TestDamagedIndex(t *testing.T) {
	fsys, m := vfs.NewMem(), newModel()
	o := testOptions(fsys)
	o.RecentIDs = 1
	l := mustOpen(t, o)
	write(t, l, m.someFrames(12, false)...)
	must(t, l.index.Flush())
	table := l.index.Tables()[0].File
	closeLog(t, l)
	rot(t, fsys, path.Join("index", table), 200)

	l = mustOpen(t, o)
	if err := l.Health.Unhealthy(); err != nil {
		t.Fatalf("found before it is read: %v", err)
	}
	first := m.frames[0].events[0]
	stream := first.stream
	for name, read := range map[string]func() error{
		"info":      func() error { _, err := l.Reads.StreamInfo(stream); return err },
		"forward":   func() error { _, err := l.Reads.ReadStream(event.StreamRead{Stream: stream, Count: 9}); return err },
		"event":     func() error { _, err := l.Reads.ReadEvent(stream, 0, false); return err },
		"last":      func() error { _, err := l.Reads.LastRecord(stream); return err },
		"below":     func() error { _, err := l.Reads.LastBelow(stream, 1<<40); return err },
		"id":        func() error { _, err := l.Reads.HasID(stream, 0, first.id); return err },
		"positions": func() error { _, err := l.Chunks.EventPositions(stream, 0); return err },
	} {
		if err := read(); !event.IsCorruption(err) || !strings.Contains(err.Error(), table) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, pinErr := l.Pin()
	if err := l.Health.Unhealthy(); !event.IsCorruption(err) || !event.IsCorruption(pinErr) {
		t.Errorf("unhealthy: %v, pin: %v", err, pinErr)
	}
	page, err := l.Reads.ReadAll(event.AllRead{Count: 9})
	if err != nil || len(page.Events) != 9 {
		t.Errorf("all: %d events, %v", len(page.Events), err)
	}
	write(t, l, m.frame(false, ev("new", "")))
	if info, err := l.Reads.StreamInfo("new"); err != nil || info.Last != 0 {
		t.Errorf("a new stream: %+v, %v", info, err)
	}
	closeLog(t, l)

	l = mustOpen(t, testOptions(fsys))
	must(t, l.Health.Unhealthy())
	verify(t, l, m.frames, nil)
	closeLog(t, l)
}

// TestIndexIsChecked: a block of the index that no read needs is found to be damaged behind a start, and once a week.
func TestIndexIsChecked(t *testing.T) {
	for _, behindStart := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			fsys, m := vfs.NewMem(), newModel()
			o := checkOptions(fsys)
			l := mustOpen(t, o)
			write(t, l, m.someFrames(12, false)...)
			must(t, l.index.Flush())
			table := l.index.Tables()[0].File
			closeLog(t, l)
			rot(t, fsys, path.Join("index", table), 200)
			o.SkipVerify = !behindStart
			l = mustOpen(t, o)
			if !behindStart {
				after(week - 1)
				must(t, l.Health.Unhealthy())
			}
			after(2)
			if err := l.Health.Unhealthy(); !event.IsCorruption(err) || !strings.Contains(err.Error(), table) {
				t.Errorf("behind a start %v: %v", behindStart, err)
			}
			closeLog(t, l)
			l = mustOpen(t, o)
			after(2)
			must(t, l.Health.Unhealthy())
			closeLog(t, l)
		})
	}
}

// TestIndexCannotBeRead: what the system does not deliver of a mapped table is damage of it.
func TestIndexCannotBeRead(t *testing.T) {
	o := testOptions(vfs.OS)
	o.Dir = t.TempDir()
	l := mustOpen(t, o)
	m := newModel()
	write(t, l, m.someFrames(12, false)...)
	must(t, l.index.Flush())
	table := l.index.Tables()[0].File
	closeLog(t, l)
	l = mustOpen(t, o)
	must(t, os.Truncate(filepath.Join(o.Dir, "index", table), 0))
	_, err := l.Reads.StreamInfo(m.frames[0].events[0].stream)
	if unhealthy := l.Health.Unhealthy(); !event.IsCorruption(err) || !strings.Contains(err.Error(), table) || !event.IsCorruption(unhealthy) {
		t.Errorf("read: %v, unhealthy: %v", err, unhealthy)
	}
	closeLog(t, l)
}
