package bootstrap

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func TestFileStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bootstrap")
	store := FileStore(vfs.OS, path)
	check.MustBe(t, check.Err(store.Load()), fs.ErrNotExist, "an empty folder")
	node, err := Identify(store)
	if err != nil || node.IsZero() {
		t.Fatal(node, err)
	}
	for _, record := range []Record{
		{Node: node},
		{Node: node, Promise: &Proposal{Cluster: id(50), Proposer: node, Members: proposal(0, 1).Members}},
	} {
		if record.Promise != nil {
			record.Promise.Members[0], record.Formed = node, true
		}
		check.Must(t, store.Save(record))
		if got, err := FileStore(vfs.OS, path).Load(); err != nil || !reflect.DeepEqual(got, record) {
			t.Errorf("%+v, %v; want %+v", got, err, record)
		}
	}
	if again, err := Identify(FileStore(vfs.OS, path)); err != nil || again != node {
		t.Errorf("node %s became %s, %v", node, again, err)
	}
	names := check.Value(os.ReadDir(filepath.Dir(path))).Must(t)
	check.Equal(t, len(names), 1, names)
}

func TestFileStoreAfterCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bootstrap")
	record := Record{Node: id(1), Promise: proposal(50, 1, 2, 3)}
	check.Must(t, FileStore(vfs.OS, path).Save(record))
	check.Must(t, os.WriteFile(path+vfs.TempSuffix, []byte(`{"format":1,"no`), 0o600))
	if got, err := FileStore(vfs.OS, path).Load(); err != nil || !reflect.DeepEqual(got, record) {
		t.Errorf("%+v, %v", got, err)
	}
	record.Formed = true
	check.Must(t, FileStore(vfs.OS, path).Save(record))
	if got, err := FileStore(vfs.OS, path).Load(); err != nil || !reflect.DeepEqual(got, record) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFileStoreRefuses(t *testing.T) {
	const one = `"01000000-0000-0000-0000-000000000000"`
	for name, c := range map[string]struct{ data, want string }{
		"empty":                          {"", "JSON"},
		"torn":                           {`{"format":1,"node":` + one, "JSON"},
		"another format":                 {`{"format":2,"node":` + one + `}`, "format 2"},
		"no node":                        {`{"format":1}`, "node id"},
		"formed what":                    {`{"format":1,"node":` + one + `,"formed":true}`, "without a proposal"},
		"a proposal without a set":       {`{"format":1,"node":` + one + `,"promise":{"cluster":` + one + `,"proposer":` + one + `}}`, "0 members"},
		"another node's proposal":        {`{"format":1,"node":"02000000-0000-0000-0000-000000000000","promise":{"cluster":` + one + `,"proposer":` + one + `,"members":[` + one + `]}}`, "no part"},
		"a record too large to be saved": {strings.Repeat(" ", maxRecordBytes+1), "more than"},
		"an id that is none":             {`{"format":1,"node":"1"}`, "GUID"},
		"a member that is repeated":      {`{"format":1,"node":` + one + `,"promise":{"cluster":` + one + `,"proposer":` + one + `,"members":[` + one + `,` + one + `]}}`, "rising"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bootstrap")
			check.Must(t, os.WriteFile(path, []byte(c.data), 0o600))
			_, err := FileStore(vfs.OS, path).Load()
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := Identify(FileStore(vfs.OS, path)); err == nil {
				t.Error("a damaged record was taken for none")
			}
		})
	}
	if err := FileStore(vfs.OS, filepath.Join(t.TempDir(), "none", "bootstrap")).Save(Record{Node: id(1)}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its folder: %v", err)
	}
	if err := FileStore(vfs.OS, filepath.Join(t.TempDir(), "bootstrap")).Save(Record{}); err == nil {
		t.Error("a record without a node was saved")
	}
}

// A promise whose name was not synced, by a process that was killed, or because the sync failed, is
// one that the next process gives again: it must be durable then.
func TestPromiseThatIsNotSynced(t *testing.T) {
	mem := vfs.NewCrashMem()
	check.Must(t, vfs.MkdirAllSync(mem, "/data"))
	broken := errors.New("the folder was not synced")
	failing := FileStore(vfs.NewFaulty(mem, func(op vfs.Op) error {
		if op.Kind == vfs.OpSyncDir {
			return broken
		}
		return nil
	}), "/data/bootstrap")
	record := Record{Node: id(1)}
	check.MustBe(t, failing.Save(record), broken, "saved")
	got := check.Value(FileStore(mem, "/data/bootstrap").Load()).Must(t)
	if got.Node != record.Node {
		t.Fatalf("the node is %s, it was saved as %s", got.Node, record.Node)
	}
	cut := FileStore(mem.CrashClone(vfs.CrashOptions{}), "/data/bootstrap")
	if after, err := cut.Load(); err != nil || after.Node != got.Node {
		t.Errorf("after a power cut the record is of %s, %v, and it was read as that of %s", after.Node, err, got.Node)
	}
}
