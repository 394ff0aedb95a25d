package eventlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// TestDamagedIndex: nothing that needs a damaged block of the index is answered as if events were
// not there, the log is appended to and says what is wrong, and a start before the index was built
// again does that.
func TestDamagedIndex(t *testing.T) { synctest.Test(t, testDamagedIndex) }

func testDamagedIndex(t *testing.T) {
	fsys, m := vfs.NewMem(), newModel()
	o := testOptions(fsys)
	o.RecentIDs = 1
	l := mustOpen(t, o)
	write(t, l, m.someFrames(12, false)...)
	check.Must(t, l.index.Flush())
	table := l.index.Tables()[0].File
	closeLog(t, l)
	rot(t, fsys, path.Join("index", table), 200)

	l = mustOpen(t, o)
	check.Must(t, l.Health.Unhealthy(), "found before it is read")
	first := m.frames[0].events[0]
	stream := first.stream
	for name, read := range map[string]func() error{
		"info":      func() error { _, err := l.Reads.StreamInfo(stream); return err },
		"forward":   func() error { _, err := l.Reads.ReadStream(event.StreamRead{Stream: stream, Count: 9}); return err },
		"event":     func() error { _, err := l.Reads.ReadEvent(stream, 0, nil); return err },
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
	check.Must(t, l.Health.Unhealthy())
	verify(t, l, m.frames, nil)
	closeLog(t, l)
}

// TestDamagedIndexIsBuiltAgain: while the log is read and appended to. What cannot be read of the
// log keeps it from that until it is mended.
func TestDamagedIndexIsBuiltAgain(t *testing.T) {
	for _, chunk := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			fsys, m := vfs.NewMem(), newModel()
			o := testOptions(fsys)
			l := mustOpen(t, o)
			write(t, l, m.someFrames(16, true)...)
			check.Must(t, l.index.Flush())
			table, chunkFile := l.index.Tables()[0].File, filepath.Base(l.files[0].Name)
			closeLog(t, l)
			rot(t, fsys, path.Join("index", table), 200)
			o.SkipVerify = true
			l = mustOpen(t, o)
			scavenging := filepath.Join(l.opts.IndexDir, scavengeFolder)
			check.Must(t, fsys.MkdirAll(scavenging))
			synctest.Wait() // The memory of event ids is loaded.
			if chunk {
				rot(t, fsys, chunkFile, 300)
			}
			stream := m.frames[0].events[0].stream
			if _, err := l.Reads.StreamInfo(stream); !event.IsCorruption(err) {
				t.Fatal(err)
			}
			write(t, l, m.frame(false, ev("while damaged", "")))
			after(2 * time.Second)
			write(t, l, m.frame(false, ev("while damaged", "")))
			if chunk {
				if err := l.index.Damage(); !event.IsCorruption(err) || len(l.Health.Damaged()) != 1 {
					t.Fatalf("a chunk is damaged, the index %v", err)
				}
				rot(t, fsys, chunkFile, 300)
				after(time.Minute)
			}
			check.Must(t, l.index.Damage())
			verify(t, l, m.frames, nil)
			if _, err := fsys.Stat(scavenging); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what is known of scavenging: %v", err)
			}

			// Later damage waits no longer than the first.
			after(2 * time.Minute)
			rot(t, fsys, path.Join("index", l.index.Tables()[0].File), 200)
			_ = index.Check(l.index, func(int64) error { return nil })
			if err := l.index.Damage(); !event.IsCorruption(err) {
				t.Fatal(err)
			}
			after(2 * time.Second)
			check.Must(t, l.index.Damage())
			verify(t, l, m.frames, nil)
			closeLog(t, l)
			l = mustOpen(t, o)
			check.Must(t, l.Health.Unhealthy())
			verify(t, l, m.frames, nil)
			closeLog(t, l)
		})
	}
}

// TestIndexLeadsAstray: entries that were right when they were read first name other places now.
// The reads that follow them fail, and have the index examined.
func TestIndexLeadsAstray(t *testing.T) {
	for _, c := range []struct {
		name   string
		wrong  func(right, other int64) int64
		states string
	}{
		{"the same number of another stream", func(_, other int64) int64 { return other }, "where there is another"},
		{"inside of a record", func(right, _ int64) int64 { return right + 3 }, ""},
		{"after the log", func(right, _ int64) int64 { return right + 1<<50 }, "outside of the table"},
		{"before the log", func(int64, int64) int64 { return -1 << 63 }, "outside of the table"},
	} {
		synctest.Test(t, func(t *testing.T) {
			fsys, m := vfs.OS, newModel() // Where nothing is mapped every read is compared.
			o := checkOptions(fsys)
			o.Dir = t.TempDir()
			o.IndexDir = filepath.Join(o.Dir, "index")
			l := mustOpen(t, o)
			defer func() { closeLog(t, l) }()
			write(t, l, m.frame(false, ev("a", "")), m.frame(false, ev("b", "")))
			write(t, l, m.someFrames(16, true)...) // The first chunk is complete.
			check.Must(t, l.index.Flush())
			a, err := l.Reads.ReadEvent("a", 0, nil)
			check.Must(t, err)
			b, err := l.Reads.ReadEvent("b", 0, nil)
			check.Must(t, err)
			var entry []byte
			for _, field := range []uint64{chunkfile.HashStream("a"), 0, uint64(a.Record.Position)} {
				entry = binary.LittleEndian.AppendUint64(entry, field)
			}
			name, at := "", -1
			for _, table := range l.index.Tables() {
				if at < 0 {
					name = path.Join(o.IndexDir, table.File)
					data := check.Value(vfs.ReadFile(fsys, name)).Must(t)
					at = bytes.Index(data, entry)
				}
			}
			f, err := fsys.OpenReadWrite(name)
			check.Must(t, err)
			_, err = f.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(c.wrong(a.Record.Position, b.Record.Position))), int64(at)+16)
			check.Must(t, errors.Join(err, f.Close()))

			check.Must(t, l.Health.Unhealthy())
			if got, err := l.Reads.ReadEvent("a", 0, nil); !event.IsCorruption(err) || !strings.Contains(err.Error(), c.states) {
				t.Errorf("%s: %v, %v", c.name, got, err)
			}
			synctest.Wait()
			if err := l.Health.Unhealthy(); !event.IsCorruption(err) || l.index.Damage() == nil || len(l.Health.Damaged()) > 0 {
				t.Errorf("%s: unhealthy: %v", c.name, err)
			}
			if _, err := l.Reads.ReadEvent("a", 0, nil); !event.IsCorruption(err) || !strings.Contains(err.Error(), path.Base(name)) {
				t.Errorf("%s, then: %v", c.name, err)
			}
		})
	}
}

// TestIndexIsChecked: damage in a block of the index that no read needs is found after a start, and
// once a week.
func TestIndexIsChecked(t *testing.T) {
	for _, behindStart := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			fsys, m := vfs.NewMem(), newModel()
			o := checkOptions(fsys)
			l := mustOpen(t, o)
			write(t, l, m.someFrames(12, false)...)
			check.Must(t, l.index.Flush())
			table := l.index.Tables()[0].File
			closeLog(t, l)
			rot(t, fsys, path.Join("index", table), 200)
			o.SkipVerify = !behindStart
			l = mustOpen(t, o)
			if !behindStart {
				after(week - 1)
				check.Must(t, l.Health.Unhealthy())
			}
			after(2)
			if err := l.Health.Unhealthy(); !event.IsCorruption(err) || !strings.Contains(err.Error(), table) {
				t.Errorf("after a start %v: %v", behindStart, err)
			}
			closeLog(t, l)
			l = mustOpen(t, o)
			after(2)
			check.Must(t, l.Health.Unhealthy())
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
	check.Must(t, l.index.Flush())
	table := l.index.Tables()[0].File
	closeLog(t, l)
	l = mustOpen(t, o)
	check.Must(t, os.Truncate(filepath.Join(o.Dir, "index", table), 0))
	_, err := l.Reads.StreamInfo(m.frames[0].events[0].stream)
	if unhealthy := l.Health.Unhealthy(); !event.IsCorruption(err) || !strings.Contains(err.Error(), table) || !event.IsCorruption(unhealthy) {
		t.Errorf("read: %v, unhealthy: %v", err, unhealthy)
	}
	closeLog(t, l)
}
