package index_test

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

const dir = "db/index"

func exists(t *testing.T, fsys vfs.FS, name string) bool {
	t.Helper()
	_, err := fsys.Stat(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

func flip(t *testing.T, fsys vfs.FS, name string, at int64) {
	t.Helper()
	data := check.Value(vfs.ReadFile(fsys, name)).Must(t)
	if at < 0 {
		at += int64(len(data))
	}
	data[at] ^= 0x10
	check.Must(t, vfs.WriteFileAtomic(fsys, name, data))
}

// build makes an index of two tables and closes it.
func build(t *testing.T, packed bool) (*vfs.Mem, *model, []index.TableInfo) {
	t.Helper()
	fsys, m := vfs.NewMem(), &model{packed: packed}
	x := open(t, index.Options{Packed: packed, FS: fsys})
	fill(t, x, m, 300, 11)
	check.Must(t, x.Flush())
	fill(t, x, m, 300, 11)
	check.Must(t, x.Flush())
	tables := x.Tables()
	check.Must(t, x.Close())
	return fsys, m, tables
}

func TestDamage(t *testing.T) { onShapes(t, testDamage) }

func testDamage(t *testing.T, packed bool) {
	const (
		whole  = iota // still opens with all it had
		empty         // must be built again
		later         // that is found when it is read
		closed        // OpenReadOnly alone notices at open
	)
	existence := filepath.Join("stream-existence", "streamExistenceFilter")
	cases := []struct {
		name   string
		file   func(table string) string
		at     int64
		want   int
		noOpen bool // OpenReadOnly succeeds, Entries finds it
	}{
		{name: "table header", file: func(s string) string { return s }, at: 3, want: empty},
		{name: "first entry", file: func(s string) string { return s }, at: 33, want: later, noOpen: true},
		{name: "entry in the middle", file: func(s string) string { return s }, at: map[bool]int64{false: 2000, true: 200}[packed], want: later, noOpen: true},
		{name: "directory", file: func(s string) string { return s }, at: -100, want: empty},
		{name: "checksum of a block", file: func(s string) string { return s }, at: -90, want: empty},
		{name: "checksum of checksums", file: func(s string) string { return s }, at: -81, want: empty},
		{name: "footer", file: func(s string) string { return s }, at: -20, want: empty},
		{name: "last byte of table", file: func(s string) string { return s }, at: -1, want: empty},
		{name: "bloom header", file: func(s string) string { return s + ".bloomfilter" }, at: 9, want: whole},
		{name: "bloom bits", file: func(s string) string { return s + ".bloomfilter" }, at: 40, want: whole},
		{name: "bloom checksum of a page", file: func(s string) string { return s + ".bloomfilter" }, at: -20, want: whole},
		{name: "bloom checksum of checksums", file: func(s string) string { return s + ".bloomfilter" }, at: -12, want: whole},
		{name: "bloom checksum", file: func(s string) string { return s + ".bloomfilter" }, at: -3, want: whole},
		{name: "indexmap checksum", file: func(string) string { return "indexmap" }, at: 0, want: empty},
		{name: "indexmap body", file: func(string) string { return "indexmap" }, at: -5, want: empty},
		{name: "existence bits", file: func(string) string { return existence + ".dat" }, at: 5000, want: whole},
		{name: "existence header", file: func(string) string { return existence + ".dat" }, at: 12, want: whole},
		{name: "existence checkpoint low", file: func(string) string { return existence + ".chk" }, at: 1, want: whole},
		{name: "existence checkpoint high", file: func(string) string { return existence + ".chk" }, at: 6, want: whole},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fsys, m, tables := build(t, packed)
			flip(t, fsys, filepath.Join(dir, c.file(tables[0].File)), c.at)
			offline(t, fsys, c.noOpen)

			if c.want == later {
				x := open(t, index.Options{Packed: packed, FS: fsys})
				if _, ok, err := x.Last(spread(1)); ok || !event.IsCorruption(err) || !event.IsCorruption(x.Damage()) {
					t.Fatalf("Last = %v, %v, damage %v", ok, err, x.Damage())
				}
				check.Must(t, x.Close())
			}
			var logged bytes.Buffer
			x := open(t, index.Options{Packed: packed, FS: fsys, Logger: hclog.New(&hclog.LoggerOptions{Output: &logged, Level: hclog.Warn})})
			if c.want != whole {
				if x.Checkpoint() != 0 || len(x.Tables()) != 0 || exists(t, fsys, tables[0].File) || exists(t, fsys, tables[1].File+".bloomfilter") {
					t.Fatalf("checkpoint %d, tables %v: want an empty index", x.Checkpoint(), x.Tables())
				}
				if !strings.Contains(logged.String(), "[WARN]") {
					t.Fatalf("no warning: %q", logged.String())
				}
			} else if x.Checkpoint() != m.end || !slices.Equal(x.Tables(), tables) {
				t.Fatalf("checkpoint %d, tables %v: want %d, %v", x.Checkpoint(), x.Tables(), m.end, tables)
			}
			m.replay(t, x)
			for h := range uint64(12) {
				m.check(t, x, spread(h))
			}
			check.Must(t, x.Flush())
			check.Must(t, x.Close())
			m.verifyFiles(t, fsys, dir)
		})
	}
}

// offline expects OpenReadOnly or Entries to name damage, and nothing to change.
func offline(t *testing.T, fsys vfs.FS, byEntries bool) {
	t.Helper()
	readOnly := vfs.NewFaulty(fsys, func(op vfs.Op) error {
		if op.Kind.Mutates() {
			return errors.New("changed")
		}
		return nil
	})
	x, err := index.OpenReadOnly(readOnly, dir)
	check.MustEqual(t, err == nil, byEntries, "OpenReadOnly", err)
	if err == nil {
		for _, e := range x.Entries() {
			err = e
		}
		check.Must(t, x.Close())
	}
	if !event.IsCorruption(err) {
		t.Fatalf("error %v is no corruption", err)
	}
}

func TestMissingFiles(t *testing.T) { onShapes(t, testMissingFiles) }

func testMissingFiles(t *testing.T, packed bool) {
	cases := []struct {
		name string
		file func(table string) string
		lost bool
	}{
		{"table", func(s string) string { return s }, true},
		{"indexmap", func(string) string { return "indexmap" }, true},
		{"bloom filter", func(s string) string { return s + ".bloomfilter" }, false},
		{"existence filter", func(string) string { return "stream-existence/streamExistenceFilter.dat" }, false},
		{"existence checkpoint", func(string) string { return "stream-existence/streamExistenceFilter.chk" }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fsys, m, tables := build(t, packed)
			check.Must(t, fsys.Remove(filepath.Join(dir, c.file(tables[1].File))))
			x := open(t, index.Options{Packed: packed, FS: fsys})
			if (x.Checkpoint() == 0) != c.lost {
				t.Fatalf("checkpoint %d", x.Checkpoint())
			}
			for h := range uint64(11) {
				if !c.lost {
					m.check(t, x, spread(h))
				}
			}
			if x.MayExist(spread(1)) == c.lost {
				t.Fatalf("MayExist = %v", !c.lost)
			}
			if !c.lost && !exists(t, fsys, tables[1].File+".bloomfilter") {
				t.Fatal("filter was not rebuilt")
			}
			check.Must(t, x.Close())
		})
	}
}

// TestUnknownVersions: the index is rebuilt where indexmap or a table is of a version that is not
// known, as those from before the first release.
func TestUnknownVersions(t *testing.T) { onShapes(t, testUnknownVersions) }

func testUnknownVersions(t *testing.T, packed bool) {
	for _, file := range []string{"indexmap", ""} {
		fsys, m, tables := build(t, packed)
		if file == "" {
			file = tables[0].File
		}
		name := filepath.Join(dir, file)
		data := check.Value(vfs.ReadFile(fsys, name)).Must(t)
		if _, body, isMap := bytes.Cut(data, []byte("\n2\n")); isMap {
			body = append([]byte("1\n"), body...)
			data = fmt.Appendf(nil, "%x\n%s", md5.Sum(body), body)
		} else {
			data[8] = 9
		}
		check.Must(t, vfs.WriteFileAtomic(fsys, name, data))
		rebuilt(t, fsys, dir, m)
	}
}

func TestStrangersAreLeftAlone(t *testing.T) {
	fsys, _, tables := build(t, false)
	check.Must(t, fsys.MkdirAll(dir+"/scavenging"))
	ours := []string{"indexmap.tmp", "0b0b0b0b-1111-4222-8333-444444444444", "0b0b0b0b-1111-4222-8333-444444444444.bloomfilter",
		"0b0b0b0b-1111-4222-8333-444444444444.tmp", tables[0].File + ".tmp", tables[0].File + ".bloomfilter.tmp"}
	others := []string{"scavenging/scavenging.db", "notes.txt", "0B0B0B0B-1111-4222-8333-444444444444"}
	for _, name := range slices.Concat(ours, others) {
		check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), []byte("x")))
	}
	x := open(t, index.Options{FS: fsys})
	defer func() { check.Must(t, x.Close()) }()
	for _, name := range ours {
		if exists(t, fsys, name) {
			t.Errorf("%s was not removed", name)
		}
	}
	for _, name := range slices.Concat(others, []string{"indexmap", tables[0].File, tables[0].File + ".bloomfilter"}) {
		if !exists(t, fsys, name) {
			t.Errorf("%s was removed", name)
		}
	}
}
