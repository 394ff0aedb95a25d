package backup_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/session"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/inspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/db"

// database is a log with sessions over it.
type database struct {
	*eventlog.Log
	t        testing.TB
	fs       vfs.FS
	sessions *session.Service
}

func logOptions(fsys vfs.FS, dir string) eventlog.Options {
	return eventlog.Options{Dir: dir, FS: fsys, ClusterID: event.ID{1}, SkipVerify: true, RecentIDs: 100, Index: index.Options{ExistenceFilterMax: 4096, MaxMemTable: 10}}
}

func open(t testing.TB, fsys vfs.FS) *database {
	t.Helper()
	d := &database{t: t, fs: fsys}
	var err error
	d.Log, err = eventlog.Open(logOptions(fsys, dir))
	check.Must(t, err)
	d.sessions = session.New(session.Options{Pin: d.Pin, NodeID: func() string { return "n1" }})
	t.Cleanup(func() {
		d.sessions.Close()
		check.Must(t, d.Log.Close())
	})
	return d
}

// write appends frames of two events; the last one may complete its chunk. Each is a second later
// than the one before.
func (d *database) write(frames int, completes bool) {
	d.t.Helper()
	for n := range frames {
		tail := d.Appended()
		index := tail.Index + 1
		e := event.Proposed{Type: "t", Data: fmt.Appendf(nil, "data %d", index)}
		size := 2 * chunkfile.RecordSize("s", &e)
		f := eventlog.Frame{First: chunkfile.Place(tail.End, size), Index: index, Term: 1, Completes: completes && n == frames-1}
		for i := range 2 {
			binary.LittleEndian.PutUint64(e.ID[:], index)
			e.ID[15] = byte(i)
			f.Records = chunkfile.AppendRecord(f.Records, f.First+int64(len(f.Records)), "s", int64(index-1)*2+int64(i), at(index).UnixNano(), 0, &e)
		}
		check.Must(d.t, errors.Join(d.Append(f), d.Commit()))
	}
}

// at is the time of the frame with an index.
func at(index uint64) time.Time { return time.Unix(1700000000+int64(index), 0).UTC() }

func (d *database) create(target backup.Target, o backup.CreateOptions) backup.Manifest {
	d.t.Helper()
	m := check.Value(backup.Create(d.t.Context(), d.sessions, target, o)).Must(d.t)
	return m
}

// content is what a log holds, and its end.
func content(t testing.TB, fsys vfs.FS, dir string) (text string, tail event.Tail) {
	t.Helper()
	var b strings.Builder
	_, err := inspect.Run(t.Context(), inspect.Options{FS: fsys, Dir: dir}, func(f inspect.Finding) {
		if f.Severity == inspect.Problem {
			t.Errorf("%s: %+v", dir, f)
		}
	})
	check.Must(t, err)
	l, err := eventlog.Open(logOptions(fsys, dir))
	check.Must(t, err)
	check.Must(t, l.Chunks.Scan(t.Context(), 0, l.Tail().End, func(s *eventlog.Stored) error {
		fmt.Fprintf(&b, "%d %d %s\n", s.Position, s.Number, s.Data)
		return nil
	}))
	tail = l.Tail()
	check.Must(t, l.Close())
	return b.String(), tail
}

// clock gives every backup an id of its own second.
func clock() func() time.Time {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return func() time.Time {
		now = now.Add(time.Second)
		return now
	}
}

func TestCreateAndRestore(t *testing.T) {
	fsys := vfs.NewMem()
	d := open(t, fsys)
	target := backup.NewFolder(fsys, "/backups")
	now := clock()
	d.write(5, true)
	d.write(3, false)
	full := d.create(target, backup.CreateOptions{Now: now, Verify: true})
	if full.Kind != backup.KindFull || full.BytesCopied != full.Bytes() || !full.Verified || full.Position != d.Tail().End || !full.Time.Equal(at(8)) {
		t.Errorf("%+v", full)
	}
	d.write(30, true)
	d.write(2, false)
	var last backup.Progress
	second := d.create(target, backup.CreateOptions{Now: now, Progress: func(p backup.Progress) { last = p }})
	if second.Kind != backup.KindIncremental || second.BytesCopied >= second.Bytes() || last.Done != second.Bytes() || last.Total != last.Done {
		t.Errorf("%+v, progress %+v", second, last)
	}
	if again := d.create(target, backup.CreateOptions{Now: now, Full: true}); again.Kind != backup.KindFull || again.BytesCopied != again.Bytes() {
		t.Errorf("%+v", again)
	}
	all := check.Value(target.List(t.Context())).Must(t)
	if len(all) != 3 || all[0].ID != full.ID || all[1].ID != second.ID {
		t.Fatalf("%+v", all)
	}
	for i := range all {
		problems, err := backup.Verify(t.Context(), target, &all[i], backup.VerifyOptions{FS: fsys, Report: func(f inspect.Finding) { t.Errorf("%+v", f) }})
		if check.Must(t, err); problems > 0 {
			t.Errorf("%d problems", problems)
		}
	}
	restore := func(to string, o backup.RestoreOptions) (backup.Restored, string) {
		t.Helper()
		o.FS, o.Dir = fsys, to
		r := check.Value(backup.Restore(t.Context(), target, o)).Must(t)
		text, tail := content(t, fsys, to)
		check.Equal(t, tail.End, r.Position, to, "ends at ..., is said to at")
		return r, text
	}
	want, wantTail := restoreWhole(t, d)
	r, text := restore("/whole", backup.RestoreOptions{})
	if text != want || r.Position != wantTail.End || r.LeftOut != 0 || !r.Time.Equal(at(40)) {
		t.Errorf("%+v", r)
	}
	if r, text = restore("/first", backup.RestoreOptions{ID: full.ID}); r.Position != full.Position || !strings.HasPrefix(want, text) {
		t.Errorf("%+v", r)
	}
	// To the frame: one that is not later, by time and by position.
	for index := uint64(1); index <= 40; index += 3 {
		r, text := restore(fmt.Sprintf("/at-%d", index), backup.RestoreOptions{At: at(index)})
		if lines := strings.Count(text, "\n"); lines != int(index)*2 || !strings.HasPrefix(want, text) || !r.Time.Equal(at(index)) || index < 40 && r.LeftOut <= 0 && index != 8 {
			t.Errorf("at %d: %+v with %d events", index, r, lines)
		}
		r2, text2 := restore(fmt.Sprintf("/to-%d", index), backup.RestoreOptions{ToPosition: &r.Position})
		if r2.Position != r.Position || text2 != text {
			t.Errorf("to %d: %+v", r.Position, r2)
		}
		if inside := r.Position - 1; index > 1 && r.Position%chunkfile.ChunkSize != 0 {
			if r3, text3 := restore(fmt.Sprintf("/in-%d", index), backup.RestoreOptions{ToPosition: &inside}); r3.Position >= inside || strings.Count(text3, "\n") != int(index-1)*2 {
				t.Errorf("to %d: %+v", inside, r3)
			}
		}
	}
	for name, o := range map[string]backup.RestoreOptions{
		"too late":              {At: at(41)},
		"too far":               {ToPosition: pointer(d.Tail().End + 1)},
		"a backup that is less": {ID: full.ID, At: at(20)},
	} {
		o.FS, o.Dir = fsys, "/none"
		check.Is(t, check.Err(backup.Restore(t.Context(), target, o)), backup.ErrTooLate, name)
	}
	check.Is(t, check.Err(backup.Restore(t.Context(), target, backup.RestoreOptions{FS: fsys, Dir: "/none", ID: "20260101T000000.000Z-00000000"})), backup.ErrNoBackup)
	check.Is(t, check.Err(backup.Restore(t.Context(), target, backup.RestoreOptions{FS: fsys, Dir: "/whole"})), backup.ErrNotEmpty)
	if names, err := fsys.List("/"); err != nil || strings.Contains(strings.Join(names, " "), "none") || strings.Contains(strings.Join(names, " "), "restoring") {
		t.Errorf("left: %v, %v", names, err)
	}
}

func pointer(p int64) *int64 { return &p }

// restoreWhole is what the database holds.
func restoreWhole(t testing.TB, d *database) (string, event.Tail) {
	t.Helper()
	var b strings.Builder
	check.Must(t, d.Chunks.Scan(t.Context(), 0, d.Tail().End, func(s *eventlog.Stored) error {
		fmt.Fprintf(&b, "%d %d %s\n", s.Position, s.Number, s.Data)
		return nil
	}))
	return b.String(), d.Tail()
}

// TestRestoreInsideRewritten: a scavenged chunk cannot be continued in its middle.
func TestRestoreInsideRewritten(t *testing.T) {
	fsys := vfs.NewMem()
	d := open(t, fsys)
	d.write(5, true)
	d.write(5, false)
	_, err := d.Chunks.Rewrite(t.Context(), eventlog.Rewrite{Keep: func(s *eventlog.Stored) bool { return s.Number != 3 }})
	check.Must(t, err)
	target := backup.NewFolder(fsys, "/backups")
	d.create(target, backup.CreateOptions{})
	var inside *backup.CutInside
	if _, err := backup.Restore(t.Context(), target, backup.RestoreOptions{FS: fsys, Dir: "/r", At: at(3)}); !errors.As(err, &inside) || inside.Start != 0 || inside.End <= 0 {
		t.Fatal(err)
	}
	check.Fails(t, check.Err(fsys.List("/r")), "something is there")
	for to, end := range map[string]time.Time{"/a": at(5), "/b": at(7)} {
		if r, err := backup.Restore(t.Context(), target, backup.RestoreOptions{FS: fsys, Dir: to, At: end}); err != nil || !r.Time.Equal(end) {
			t.Errorf("%+v, %v", r, err)
		}
		content(t, fsys, to)
	}
}

func TestPrune(t *testing.T) {
	fsys := vfs.NewMem()
	d := open(t, fsys)
	target := backup.NewFolder(fsys, "/backups")
	now := clock()
	var all []backup.Manifest
	for range 4 {
		d.write(12, true)
		all = append(all, d.create(target, backup.CreateOptions{Now: now}))
	}
	check.Must(t, fsys.MkdirAll("/backups/.20250101T000000.000Z-aaaaaaaa.partial"))
	check.Must(t, fsys.MkdirAll("/backups/.20260101T000000.000Z-bbbbbbbb.partial"))
	check.Must(t, fsys.MkdirAll("/backups/mine"))
	dry, err := backup.Prune(t.Context(), target, 2, 0, now(), true)
	check.Must(t, err)
	got, err := backup.Prune(t.Context(), target, 2, 0, now(), false)
	check.Must(t, err)
	if len(got.Removed) != 2 || got.Removed[0] != all[0].ID || got.BytesFreed <= 0 || got.BytesFreed != dry.BytesFreed || len(dry.Removed) != 2 {
		t.Errorf("%+v, dry %+v", got, dry)
	}
	names, err := fsys.List("/backups")
	check.Must(t, err)
	if want := ".20260101T000000.000Z-bbbbbbbb.partial " + all[2].ID + " " + all[3].ID + " mine"; strings.Join(names, " ") != want {
		t.Errorf("%v, want %s", names, want)
	}
	for i := range 2 {
		if problems, err := backup.Verify(t.Context(), target, &all[2+i], backup.VerifyOptions{FS: fsys}); err != nil || problems > 0 {
			t.Errorf("%d, %v", problems, err)
		}
	}
	if got, err = backup.Prune(t.Context(), target, 0, time.Nanosecond, now(), false); err != nil || len(got.Removed) != 1 {
		t.Errorf("the newest stays: %+v, %v", got, err)
	}
}

// TestCreateFails: whatever goes wrong, nothing is listed and nothing is left.
func TestCreateFails(t *testing.T) {
	mem := vfs.NewMem()
	d := open(t, mem)
	d.write(20, true)
	d.write(3, false)
	for n := 0; ; n++ {
		operations, failed := 0, false
		var mu sync.Mutex
		fsys := vfs.NewFaulty(mem, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if !op.Kind.Mutates() || failed {
				return nil
			}
			if operations++; operations > n {
				failed = true
				return errors.New("broken")
			}
			return nil
		})
		target := backup.NewFolder(fsys, fmt.Sprintf("/backups-%d", n))
		m, err := backup.Create(t.Context(), d.sessions, target, backup.CreateOptions{Verify: true})
		all, listErr := backup.NewFolder(mem, fmt.Sprintf("/backups-%d", n)).List(t.Context())
		check.Must(t, listErr)
		if err == nil {
			if len(all) != 1 || all[0].ID != m.ID {
				t.Fatalf("operation %d: %+v", n, all)
			}
			break
		}
		names, listErr := mem.List(fmt.Sprintf("/backups-%d", n))
		if len(all) > 0 || listErr == nil && len(names) > 0 {
			t.Fatalf("operation %d failed with %v and left %v", n, err, names)
		}
		if open := d.sessions.Sessions(); len(open) > 0 {
			t.Fatalf("operation %d left the session open", n)
		}
	}
}

// breaking is a source whose files are damaged, or end early, or whose session goes.
type breaking struct {
	backup.Source
	how func(io.Reader) io.Reader
}

func (b breaking) Open(ctx context.Context, id, name string, offset int64) (io.ReadCloser, error) {
	r, err := b.Source.Open(ctx, id, name, offset)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{b.how(r), r}, nil
}

func TestSourceBreaks(t *testing.T) {
	fsys := vfs.NewMem()
	d := open(t, fsys)
	d.write(20, true)
	target := backup.NewFolder(fsys, "/backups")
	for name, how := range map[string]func(io.Reader) io.Reader{
		"ends early": func(r io.Reader) io.Reader { return io.LimitReader(r, 100) },
		"too long":   func(r io.Reader) io.Reader { return io.MultiReader(r, strings.NewReader("x")) },
		"damaged": func(r io.Reader) io.Reader {
			b, err := io.ReadAll(r)
			if err != nil {
				return iotest.ErrReader(err) // of another file, which was damaged first
			}
			if len(b) > 0 {
				b[rand.IntN(len(b))] ^= 1
			}
			return bytes.NewReader(b)
		},
		"a damaged checkpoint": func(r io.Reader) io.Reader { // It has no checksum of its own.
			b, err := io.ReadAll(r)
			if err != nil {
				return iotest.ErrReader(err)
			}
			if len(b) == 8 {
				b[rand.IntN(len(b))] ^= 1
			}
			return bytes.NewReader(b)
		},
		"gone": func(io.Reader) io.Reader { return failing{&backup.Ended{Reason: backup.EndedByRedaction}} },
	} {
		_, err := backup.Create(t.Context(), breaking{d.sessions, how}, target, backup.CreateOptions{})
		if err == nil || name == "gone" && !errors.Is(err, backup.ErrSessionGone) {
			t.Errorf("%s: %v", name, err)
		}
		if names, err := fsys.List("/backups"); err != nil || len(names) > 0 {
			t.Errorf("%s: left %v, %v", name, names, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.Is(t, check.Err(backup.Create(ctx, d.sessions, target, backup.CreateOptions{})), context.Canceled)
	if open := d.sessions.Sessions(); len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestPowerCuts cuts the power before every file operation of a backup and of a restore.
func TestPowerCuts(t *testing.T) {
	d := open(t, vfs.NewMem())
	d.write(15, true)
	d.write(2, false)
	want, _ := restoreWhole(t, d)
	disk := powercut.New(powercut.Options[int]{More: 1, MoreEvery: 2})
	check.Must(t, disk.Mem.MkdirAll("/"))
	m := d.create(backup.NewFolder(disk, "/backups"), backup.CreateOptions{})
	disk.Off()
	disk.Cut("at the end")
	left := disk.Cuts()
	for i, c := range left {
		fsys := c.FS
		target := backup.NewFolder(fsys, "/backups")
		all := check.Value(target.List(t.Context())).Must(t, "cut", i)
		if len(all) == 0 && i == len(left)-1 {
			t.Fatal("a backup that was made is gone")
		}
		for j := range all {
			if problems, err := backup.Verify(t.Context(), target, &all[j], backup.VerifyOptions{FS: fsys}); err != nil || problems > 0 {
				t.Fatalf("cut %d: a listed backup has %d problems, %v", i, problems, err)
			}
		}
		if m2, err := backup.Create(t.Context(), d.sessions, target, backup.CreateOptions{}); err != nil {
			t.Fatalf("cut %d: the next one: %v", i, err)
		} else if problems, err := backup.Verify(t.Context(), target, &m2, backup.VerifyOptions{FS: fsys}); err != nil || problems > 0 {
			t.Fatalf("cut %d: the next one has %d problems, %v", i, problems, err)
		}
	}
	disk.On()
	target := backup.NewFolder(disk.Mem, "/backups")
	position := m.Position - 1 // With a cut.
	for i, o := range []backup.RestoreOptions{{Dir: "/r0"}, {Dir: "/r1", ToPosition: &position}} {
		o.FS = disk
		_, err := backup.Restore(t.Context(), target, o)
		check.Must(t, err)
		disk.Off()
		disk.Cut("at the end")
		left := disk.Cuts()
		for j, c := range left {
			fsys := c.FS
			_, err := fsys.Stat(o.Dir)
			if err != nil && j == len(left)-1 {
				t.Fatal("what was restored is gone")
			}
			if err != nil {
				o.FS = fsys
				if _, err := backup.Restore(t.Context(), backup.NewFolder(fsys, "/backups"), o); err != nil {
					t.Fatalf("restore %d, cut %d: the next one: %v", i, j, err)
				}
			}
			if text, _ := content(t, fsys, o.Dir); i == 0 && text != want || i == 1 && strings.Count(text, "\n") != 32 {
				t.Fatalf("restore %d, cut %d: %d events", i, j, strings.Count(text, "\n"))
			}
		}
		// The first start, and writes after it.
		restored, _ := content(t, left[len(left)-1].FS, o.Dir)
		disk.On()
		l, err := eventlog.Open(logOptions(disk, o.Dir))
		check.Must(t, err)
		(&database{Log: l, t: t}).write(2, false)
		check.Must(t, errors.Join(l.Sync(), l.Close()))
		disk.Off()
		for j, c := range disk.Cuts() {
			if text, _ := content(t, c.FS, o.Dir); !strings.HasPrefix(text, restored) {
				t.Fatalf("restore %d, cut %d of the first start: %d events of %d", i, j, strings.Count(text, "\n"), strings.Count(restored, "\n"))
			}
		}
		disk.On()
	}
}

func TestManifestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"chunk-000000.000000": true, "index/x": true, "index/a/b": true,
		"": false, "..": false, "../x": false, "/x": false, "a/../b": false, "a//b": false, `a\b`: false, "manifest.json": false, "./a": false, "index/": false,
	} {
		m := backup.Manifest{Format: 1, ID: "20260101T000000.000Z-0123abcd", Session: backup.Session{Files: []backup.File{{Name: name}}}}
		if err := m.Check(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
	check.Says(t, (&backup.Manifest{Format: 2, ID: "20260101T000000.000Z-0123abcd"}).Check(), "newer")
	for _, id := range []string{"", "x", "../20260101T000000.000Z-0123abcd", "20260101T000000.000Z-0123abcdz", "20261301T000000.000Z-0123abcd"} {
		if backup.ValidID(id) {
			t.Errorf("%q is an id", id)
		}
	}
	if id := backup.NewID(time.Now()); !backup.ValidID(id) || filepath.Base(id) != id {
		t.Error(id)
	}
}
