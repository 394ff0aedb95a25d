package state

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/ncruces/go-sqlite3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func mustOpen(t *testing.T, o Options) *DB {
	t.Helper()
	d := check.Value(Open(t.Context(), o)).Must(t)
	t.Cleanup(func() { check.NoError(t, d.Close()) })
	return d
}

func set(t *testing.T, d *DB, key, value string) {
	t.Helper()
	check.Must(t, d.Update(t.Context(), func(tx *Tx) error { return tx.SetValue(key, []byte(value)) }))
}

func wantValue(t *testing.T, d *DB, key, want string) {
	t.Helper()
	got, err := d.Value(key)
	if err != nil || string(got) != want || (got == nil) != (want == "") {
		t.Fatalf("value %q: %q, %v, want %q", key, got, err, want)
	}
}

// TestDamaged: a new file begins where one cannot be used, and the log says so.
func TestDamaged(t *testing.T) {
	overwrite := func(at int64, data string) func(vfs.File) error {
		return func(f vfs.File) error {
			_, err := f.WriteAt([]byte(data), at)
			return err
		}
	}
	cases := []struct {
		name string
		do   func(vfs.File) error
	}{
		{"no database", overwrite(0, "this is not a database")},
		{"short", func(f vfs.File) error { return errors.Join(f.Truncate(0), overwrite(0, "x")(f)) }},
		{"cut", func(f vfs.File) error { return f.Truncate(1024) }},
		{"a bit of the header", overwrite(70, "\x01")},
		{"a bit of the schema", overwrite(500, "\x01")},
		{"zeroes", overwrite(0, strings.Repeat("\x00", 1024))},
		{"newer schema", nil},
		{"older schema", nil},
		{"other application", nil},
		{"other tables", nil},
	}
	sql := map[string]string{
		"newer schema":      `PRAGMA user_version=3`,
		"older schema":      `PRAGMA user_version=1`,
		"other application": `PRAGMA application_id=7`,
		"other tables":      `DROP TABLE chunks; CREATE TABLE chunks (number INTEGER PRIMARY KEY)`,
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			d := mustOpen(t, small(fsys))
			set(t, d, "checkpoint", "old")
			if statement := sql[c.name]; statement != "" {
				check.Must(t, d.conn.Exec(statement))
			}
			check.Must(t, d.Close())
			if c.do != nil {
				f, err := fsys.OpenReadWrite(filepath.Join(small(fsys).Dir, fileName))
				check.Must(t, err)
				check.Must(t, errors.Join(c.do(f), f.Close()))
			}
			o := small(fsys)
			var logged strings.Builder
			o.Logger = hclog.New(&hclog.LoggerOptions{Output: &logged})
			d = mustOpen(t, o)
			wantValue(t, d, "checkpoint", "")
			set(t, d, "checkpoint", "new")
			wantValue(t, d, "checkpoint", "new")
			if strings.Count(logged.String(), "[WARN]") != 1 {
				t.Fatalf("logged: %q", logged.String())
			}
		})
	}
}

// TestDamageMetLater is about pages that opening does not read.
func TestDamageMetLater(t *testing.T) {
	fsys := vfs.NewMem()
	d := mustOpen(t, small(fsys))
	err := d.Update(t.Context(), func(tx *Tx) error {
		for i := range 1000 {
			s := Stream{Discard: int64(i)}
			if err := tx.PutStream(fmt.Appendf(nil, "stream-%d", i), &s); err != nil {
				return err
			}
		}
		return nil
	})
	check.Must(t, err)
	check.Must(t, d.Close())
	f, err := fsys.OpenReadWrite(filepath.Join(small(fsys).Dir, fileName))
	check.Must(t, err)
	// One byte of one page, within the data of a row.
	check.Must(t, check.Err(f.WriteAt([]byte{0x55}, 512*20+400)))
	check.Must(t, f.Close())
	d = mustOpen(t, small(fsys))
	if _, err := d.Decisions(t.Context()); !event.IsCorruption(err) {
		t.Fatalf("damage is not met: %v", err)
	}
	if err := d.Update(t.Context(), func(*Tx) error { return nil }); !event.IsCorruption(err) {
		t.Fatalf("a damaged state is changed: %v", err)
	}
	check.Must(t, d.Close())
	if names := list(t, fsys); len(names) > 0 {
		t.Fatalf("a damaged file stays: %q", names)
	}
	d = mustOpen(t, small(fsys))
	if active, err := d.Count(t.Context(), Active); err != nil || active != 0 {
		t.Fatal(active, err)
	}
}

func TestOpenKeepsFileOnErrors(t *testing.T) {
	disk := vfs.NewMem()
	d := mustOpen(t, small(disk))
	set(t, d, "checkpoint", "old")
	check.Must(t, d.Close())
	errInjected := errors.New("injected")
	for _, kind := range []vfs.Kind{vfs.OpRead, vfs.OpOpenReadWrite, vfs.OpStat, vfs.OpSize, vfs.OpList} {
		o := small(vfs.NewFaulty(disk, func(op vfs.Op) error {
			if op.Kind == kind {
				return errInjected
			}
			return nil
		}))
		check.MustBe(t, check.Err(Open(t.Context(), o)), errInjected, kind)
	}
	wantValue(t, mustOpen(t, small(disk)), "checkpoint", "old")
}

func TestFolder(t *testing.T) {
	fsys := vfs.NewCrashMem()
	folder(t, fsys)
	d := mustOpen(t, small(fsys))
	set(t, d, "checkpoint", "old")
	for _, name := range []string{"decisions.tmp", "sqlite-1.tmp"} {
		f := check.Value(fsys.Create(filepath.Join(small(fsys).Dir, name))).Must(t)
		check.Must(t, f.Close())
	}
	check.Must(t, errors.Join(d.Close(), d.Close()))
	d = mustOpen(t, small(fsys))
	check.Must(t, d.Close())
	check.MustSlice(t, list(t, fsys), []string{fileName})
	check.Must(t, errors.Join(Remove(fsys, small(fsys).Dir), Remove(fsys, small(fsys).Dir)))
	after := fsys.CrashClone(vfs.CrashOptions{})
	if names, err := after.List("index"); err != nil || len(names) > 0 {
		t.Fatalf("after Remove there are %q, %v", names, err)
	}
	wantValue(t, mustOpen(t, small(after)), "checkpoint", "")
}

func TestPageSize(t *testing.T) {
	fsys := vfs.NewMem()
	for _, size := range []int{4096, 65536} {
		o := small(fsys)
		o.PageSize = size
		d := mustOpen(t, o)
		if n, err := d.number(`PRAGMA page_size`); err != nil || n != 4096 {
			t.Fatalf("page size %d, %v", n, err)
		}
		set(t, d, "checkpoint", "x")
		check.Must(t, d.Close())
	}
}

func TestRollback(t *testing.T) {
	d := mustOpen(t, small(vfs.NewMem()))
	set(t, d, "checkpoint", "old")
	var kept *Tx
	t.Run("error", func(t *testing.T) {
		err := d.Update(t.Context(), func(tx *Tx) error {
			kept = tx
			return errors.Join(tx.SetValue("checkpoint", []byte("new")), errMine)
		})
		check.MustBe(t, err, errMine)
	})
	t.Run("kept", func(t *testing.T) {
		check.MustBe(t, kept.SetValue("checkpoint", []byte("new")), errTxOver)
		if _, _, err := kept.Stream([]byte("s")); !errors.Is(err, errTxOver) {
			t.Fatal(err)
		}
	})
	t.Run("panic", func(t *testing.T) {
		defer func() {
			if r := recover(); r != errMine {
				t.Fatal(r)
			}
		}()
		_ = d.Update(t.Context(), func(tx *Tx) error {
			if err := tx.SetValue("checkpoint", []byte("new")); err != nil {
				return err
			}
			panic(errMine)
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		for _, ignore := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			err := d.Update(ctx, func(tx *Tx) error {
				if err := tx.SetValue("checkpoint", []byte("new")); err != nil {
					return err
				}
				cancel()
				err := tx.SetValue("checkpoint", []byte("newer"))
				if ignore {
					return nil
				}
				return err
			})
			check.MustBe(t, err, context.Canceled)
		}
	})
	t.Run("cancelled last", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := d.Update(ctx, func(tx *Tx) error {
			err := tx.SetValue("checkpoint", []byte("new"))
			cancel()
			return err
		})
		check.MustBe(t, err, context.Canceled)
	})
	t.Run("interrupted", func(t *testing.T) {
		// A statement of many steps looks at the context itself.
		ctx, cancel := context.WithCancel(t.Context())
		err := d.Update(ctx, func(tx *Tx) error {
			cancel()
			return tx.failed("loop", d.conn.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n`))
		})
		check.MustBe(t, err, context.Canceled)
	})
	t.Run("broken statement", func(t *testing.T) {
		err := d.Update(t.Context(), func(tx *Tx) error {
			if err := tx.SetValue("checkpoint", []byte("new")); err != nil {
				return err
			}
			s := Stream{Status: 7}
			_ = tx.PutStream([]byte("s"), &s)
			return nil
		})
		check.MustFail(t, err, "a failed call is ignored")
	})
	t.Run("cancelled count", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		check.MustBe(t, check.Err(d.Count(ctx, Active)), context.Canceled)
	})
	wantValue(t, d, "checkpoint", "old")
	set(t, d, "checkpoint", "new")
	wantValue(t, d, "checkpoint", "new")
}

func TestClose(t *testing.T) {
	fsys := vfs.NewMem()
	d := mustOpen(t, small(fsys))
	set(t, d, "checkpoint", "old")
	check.Must(t, d.Close())
	check.MustBe(t, check.Err(d.Value("checkpoint")), event.ErrClosed)
	wantValue(t, mustOpen(t, small(fsys)), "checkpoint", "old")
}

// TestSyncs proves that a transaction is synced before Update returns, and that a failed sync is
// not repeated.
func TestSyncs(t *testing.T) {
	var syncs []string
	errInjected := errors.New("injected")
	failing := false
	disk := vfs.NewMem()
	fsys := vfs.NewFaulty(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncDir {
			syncs = append(syncs, string(op.Kind)+" "+filepath.Base(op.Name))
			if failing {
				return errInjected
			}
		}
		return nil
	})
	d, err := Open(t.Context(), small(fsys))
	check.Must(t, err)
	if !slices.Contains(syncs, "syncdir scavenging") || !slices.Contains(syncs, "syncdir index") {
		t.Fatal(syncs)
	}
	syncs = nil
	set(t, d, "checkpoint", "old")
	check.MustSlice(t, syncs, []string{"sync scavenging.db-wal"})
	syncs, failing = nil, true
	for range 2 {
		err = d.Update(t.Context(), func(tx *Tx) error { return tx.SetValue("checkpoint", []byte("new")) })
		check.MustBe(t, err, errInjected)
	}
	failing = false
	if err := d.Close(); err != nil && !errors.Is(err, errInjected) {
		t.Fatal(err)
	}
	check.MustEqual(t, len(syncs), 1, "a failed sync is repeated", syncs)
	d = mustOpen(t, small(disk))
	if got, err := d.Value("checkpoint"); err != nil || string(got) != "old" && string(got) != "new" {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestChecksums proves that pages carry them, as TestDamageMetLater could pass by luck.
func TestChecksums(t *testing.T) {
	fsys := vfs.NewMem()
	for range 2 {
		d := mustOpen(t, small(fsys))
		set(t, d, "checkpoint", "x")
		if r, err := d.conn.FileControl("main", sqlite3.FCNTL_RESERVE_BYTES); err != nil || r != 8 {
			t.Fatal(r, err)
		}
		check.Must(t, d.Close())
		d = mustOpen(t, small(fsys))
		if n, err := d.number(`PRAGMA checksum_verification`); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		check.Must(t, d.Close())
	}
}
