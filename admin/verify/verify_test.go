package verify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/admin/verify"
	"github.com/annalsdb/annals/admin/verify/verifytest"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/inspect"
)

// write makes a data folder with so many events in one stream, each a frame of its own.
func write(t *testing.T, fsys vfs.FS, dir string, events int) {
	t.Helper()
	l := check.Value(eventlog.Open(eventlog.Options{Dir: dir, FS: fsys, SkipVerify: true})).Must(t)
	e := event.Proposed{Type: "type", Data: []byte("data")}
	for i := range int64(events) {
		first := chunkfile.Place(l.Appended().End, chunkfile.RecordSize("s", &e))
		f := eventlog.Frame{First: first, Records: chunkfile.AppendRecord(nil, first, "s", i, i, 0, &e), Index: uint64(i + 1), Term: 1}
		check.Must(t, errors.Join(l.Append(f), l.Commit()))
	}
	check.Must(t, errors.Join(l.Index().Flush(), l.Close()))
}

// damage turns over a bit in every record of the first chunk.
func damage(t *testing.T, fsys vfs.FS, dir string) {
	t.Helper()
	f := check.Value(fsys.OpenReadWrite(filepath.Join(dir, "chunk-000000.000000"))).Must(t)
	size := check.Value(f.Size()).Must(t)
	const frame = 73 + 68 // a record and its trailer
	for at := int64(128 + 60); at < size; at += frame {
		check.Must(t, check.Err(f.WriteAt([]byte{0xff}, at)))
	}
	check.Must(t, f.Close())
}

func TestRun(t *testing.T) {
	fsys := vfs.NewMem()
	write(t, fsys, "/db", 100)
	verifytest.Check(t, fsys, "/db", "")
	r, err := verify.Run(context.Background(), verify.Options{Options: inspect.Options{FS: fsys, Dir: "/db"}})
	if err != nil || !r.Clean() || r.Summary.Records != 100 || r.Summary.Streams != 1 || r.Summary.IndexEntries != 100 {
		t.Fatal(r, err)
	}
	for _, part := range []string{"1 chunks", "100 frames", "100 records", "1 streams", "100 entries in 1 tables", "\nno errors\n"} {
		check.Contains(t, r.Text(), part, "lacks")
	}
}

// A scavenged folder is clean, and what is left of removed events is counted. A scavenge that took
// the newest event of a stream is found out.
func TestScavengedFolder(t *testing.T) {
	for _, c := range []struct {
		name     string
		from     int64 // events from here on stay
		problems int64
	}{{"clean", 90, 0}, {"too much", 200, 1}} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			write(t, fsys, "/db", 100)
			l, err := eventlog.Open(eventlog.Options{Dir: "/db", FS: fsys, SkipVerify: true})
			check.Must(t, err)
			e := event.Proposed{Type: "type"}
			first := l.Appended().End
			last := eventlog.Frame{First: first, Records: chunkfile.AppendRecord(nil, first, "t", 0, 100, 0, &e), Completes: true, Index: 101, Term: 1}
			check.Must(t, errors.Join(l.Append(last), l.Commit(), l.Sync()))
			_, err = l.Chunks.Rewrite(t.Context(), eventlog.Rewrite{Keep: func(s *eventlog.Stored) bool { return s.Number >= c.from || string(s.Stream) == "t" }})
			check.Must(t, errors.Join(err, l.Index().Flush(), l.Close()))
			r, err := verify.Run(t.Context(), verify.Options{Options: inspect.Options{FS: fsys, Dir: "/db"}})
			removed := min(c.from, 100)
			if err != nil || r.Problems != c.problems || r.Summary.Stubs != removed || r.Summary.Records != 101-removed {
				t.Fatalf("%+v, %v", r, err)
			}
			if part := fmt.Sprintf("%d records (0 redacted), %d stubs", 101-removed, removed); !strings.Contains(r.Text(), part) {
				t.Errorf("%q lacks %q", r.Text(), part)
			}
			doc, err := json.Marshal(r)
			if part := fmt.Sprintf(`"stubs":%d`, removed); err != nil || !strings.Contains(string(doc), part) {
				t.Errorf("%s lacks %s: %v", doc, part, err)
			}
		})
	}
}

// Findings are bounded in number, and all are counted.
func TestFindingsAreCapped(t *testing.T) {
	fsys := vfs.NewMem()
	write(t, fsys, "/db", 100)
	damage(t, fsys, "/db")
	told := 0
	r, err := verify.Run(context.Background(), verify.Options{Options: inspect.Options{FS: fsys, Dir: "/db"}, MaxFindings: 7, OnFinding: func(verify.Finding) { told++ }})
	if err != nil || r.Clean() || len(r.Findings) != 7 || r.Problems != 100 || r.Omitted != 93 || told != 100 {
		t.Fatalf("%d findings, %d problems, %d omitted, %d told, %v", len(r.Findings), r.Problems, r.Omitted, told, err)
	}
	first := r.Findings[0]
	want := "error item /db/chunk-000000.000000 offset 128 position 0: "
	if line := verify.Line(first); !strings.HasPrefix(line, want) || strings.Contains(line, "\n") {
		t.Errorf("%q does not begin with %q", line, want)
	}
	if !strings.HasSuffix(r.Text(), "\n100 errors\n") {
		t.Errorf("%q", r.Text())
	}
	doc := check.Value(json.Marshal(r)).Must(t)
	for _, part := range []string{`"errors":100`, `"omitted":93`, `"severity":"error"`, `"kind":"item"`, `"position":0`, `"records":0`} {
		check.Contains(t, string(doc), part, "lacks")
	}
}

func TestCancelled(t *testing.T) {
	fsys := vfs.NewMem()
	write(t, fsys, "/db", 10)
	ctx, cancel := context.WithCancel(t.Context())
	check.MustBe(t, check.Err(verify.Run(ctx, verify.Options{Options: inspect.Options{FS: fsys, Dir: "/db", Progress: func(verify.Progress) { cancel() }}})), context.Canceled)
}

func TestOptions(t *testing.T) {
	for name, o := range map[string]inspect.Options{
		"no folder":         {},
		"index in the same": {Dir: "/db", IndexDir: "/db/"},
		"no such folder":    {FS: vfs.NewMem(), Dir: "/db"},
	} {
		if _, err := verify.Run(context.Background(), verify.Options{Options: o}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestHold(t *testing.T) {
	dir := t.TempDir()
	hold := check.Value(verify.Hold(dir)).Must(t)
	check.Must(t, hold.Close())
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Fatal(names, err)
	}
	lock := check.Value(vfs.OS.Lock(filepath.Join(dir, datadir.LockFile))).Must(t)
	check.MustBe(t, check.Err(verify.Hold(dir)), verify.ErrLocked)
	check.Must(t, lock.Close())
	one := check.Value(verify.Hold(dir)).Must(t)
	two := check.Value(verify.Hold(dir)).Must(t)
	check.MustBe(t, check.Err(vfs.OS.Lock(filepath.Join(dir, datadir.LockFile))), vfs.ErrLocked)
	check.Must(t, errors.Join(one.Close(), two.Close()))
}

// recorder is a testing.TB that only remembers.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestCheck(t *testing.T) {
	fsys := vfs.NewMem()
	write(t, fsys, "/db", 10)
	damage(t, fsys, "/db")
	r := &recorder{TB: t}
	verifytest.Check(r, fsys, "/db", "")
	check.Equal(t, len(r.errors), 10, r.errors)
}
