package backup_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/session"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/inspect"
)

// TestDamagedManifest: one damaged manifest hides no other backup, is named, and is never taken for
// missing.
func TestDamagedManifest(t *testing.T) {
	fsys := vfs.NewMem()
	d := open(t, fsys)
	d.write(5, true)
	target := backup.NewFolder(fsys, "/backups")
	now := clock()
	first := d.create(target, backup.CreateOptions{Now: now})
	second := d.create(target, backup.CreateOptions{Now: now})
	check.Must(t, vfs.WriteFileAtomic(fsys, "/backups/"+second.ID+"/manifest.json", []byte("{")))
	all, err := target.List(t.Context())
	if _, ok := errors.AsType[*backup.Damaged](err); !ok || !strings.Contains(err.Error(), second.ID) || len(all) != 1 || all[0].ID != first.ID {
		t.Errorf("listed %v, %v", all, err)
	}
	for _, c := range []struct {
		name, id string
		found    bool
	}{
		{"the newest", "", false},
		{"the damaged one", second.ID, false},
		{"the whole one", first.ID, true},
	} {
		if m, err := backup.Find(t.Context(), target, c.id); (err == nil) != c.found || errors.Is(err, backup.ErrNoBackup) {
			t.Errorf("%s: %s, %v", c.name, m.ID, err)
		}
	}
	if _, err := backup.Prune(t.Context(), target, 1, 0, now(), false); err == nil {
		t.Error("pruned next to a damaged backup, whose files are not known")
	}
	d.create(target, backup.CreateOptions{Now: now})
}

// TestReuseVanishes: a file that is removed between the look for it and its link is copied from the
// source.
func TestReuseVanishes(t *testing.T) {
	mem := vfs.NewMem()
	d := open(t, mem)
	d.write(5, true)
	target := backup.NewFolder(mem, "/backups")
	now := clock()
	first := d.create(target, backup.CreateOptions{Now: now})
	var file *backup.File
	for i := range first.Files {
		if first.Files[i].Complete && strings.HasPrefix(first.Files[i].Name, "chunk") {
			file = &first.Files[i]
		}
	}
	gone := vfs.NewFaulty(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpOpen && strings.HasSuffix(op.Name, file.Name) {
			return &fs.PathError{Op: "open", Path: op.Name, Err: fs.ErrNotExist}
		}
		return nil
	})
	w, err := backup.NewFolder(gone, "/backups").Begin(context.Background(), backup.NewID(now()))
	check.Must(t, err)
	if reused, err := w.Reuse(t.Context(), &first, file); reused || err != nil {
		t.Errorf("reused %v, %v", reused, err)
	}
	check.Must(t, w.Abort(t.Context()))
}

// TestDamagedFilter: the filter of a table has a damaged page. That is harmless, and a backup that
// is made then is whole.
func TestDamagedFilter(t *testing.T) {
	fsys := vfs.OS
	home := t.TempDir()
	o := logOptions(fsys, filepath.Join(home, "db"))
	o.Index.MaxMemTable = 10
	o.Index.MaxAutoMergeLevel = -1
	check.Must(t, fsys.MkdirAll(o.Dir))
	l, err := eventlog.Open(o)
	check.Must(t, err)
	d := &database{t: t, fs: fsys, Log: l}
	d.write(30, false)
	check.Must(t, l.Index().Flush())
	tables := l.Index().Tables()
	if len(tables) < 2 {
		t.Fatal(tables)
	}
	check.Must(t, l.Close())
	filter := filepath.Join(o.Dir, "index", tables[0].File+".bloomfilter")
	bits, err := vfs.ReadFile(fsys, filter)
	check.Must(t, err)
	bits[40] ^= 1
	check.Must(t, vfs.WriteFileAtomic(fsys, filter, bits))

	l, err = eventlog.Open(o)
	check.Must(t, err)
	check.Must(t, check.Err(l.Reads.StreamInfo("s")))
	check.MustFail(t, check.Err(fsys.Stat(filter)), "the filter is there")
	check.Must(t, l.Health.Unhealthy())
	s := session.New(session.Options{Pin: l.Pin, NodeID: func() string { return "n1" }})
	target := backup.NewFolder(fsys, filepath.Join(home, "backups"))
	m, err := backup.Create(t.Context(), s, target, backup.CreateOptions{Now: clock()})
	check.Must(t, err)
	problems, err := backup.Verify(t.Context(), target, &m, backup.VerifyOptions{FS: fsys, Report: func(f backup.Finding) {
		if f.Severity == inspect.Problem {
			t.Errorf("verify of the backup: %s %s: %s", f.Kind, filepath.Base(f.File), strings.TrimSpace(f.Detail))
		}
	}})
	check.Must(t, err)
	if problems > 0 {
		t.Errorf("%d problems", problems)
	}
	s.Close()
	check.Must(t, l.Close())
}
