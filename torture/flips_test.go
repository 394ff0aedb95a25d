package torture

import (
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func TestKindsOfFiles(t *testing.T) {
	for rel, want := range map[string]string{
		"chunk-000001.000000": "chunk as written",
		"chunk-000001.000002": "rewritten chunk",
		"writer.chk":          "checkpoint",
		"index/6b1f8a3e-3d0f-4c5e-9a39-9f5f4a3c1a01":             "index table",
		"index/6b1f8a3e-3d0f-4c5e-9a39-9f5f4a3c1a01.bloomfilter": "bloom filter",
		"index/indexmap": "indexmap",
		"index/postings/6b1f8a3e-3d0f-4c5e-9a39-9f5f4a3c1a01": "postings",
		"index/stream-existence/streamExistenceFilter.chk":    "existence filter",
		"raft/segments/head":            "Raft log",
		"raft/stable.db":                "stable store",
		"raft/snapshots/1-2-3.manifest": "Raft snapshot",
		"raft/identity":                 "other file of raft",
		"annals.format":                 "other file",
	} {
		check.Equal(t, kindOfFile(rel), want, rel)
	}
}

// TestTablesOfPostings: index-rot strikes nothing that lies next to tables.
func TestTablesOfPostings(t *testing.T) {
	for name, want := range map[string]bool{
		"6b1f8a3e-3d0f-4c5e-9a39-9f5f4a3c1a01": true, "6b1f8a3e-3d0f-4c5e-9a39-9f5f4a3c1a01.bloomfilter": false,
		"6b1f8a3e-3d0f-4c5e-9a39-9f5f4a3c1a01.tmp": false, "indexmap": false, "names": false, "stream-existence": false,
	} {
		check.Equal(t, check.Value(path.Match(postingsTables, "index/postings/"+name)).Must(t), want, name)
	}
}

func TestFlipBit(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	check.Must(t, os.WriteFile(name, []byte{0, 0x40, 0}, 0o600))
	for range 3 {
		check.Must(t, check.Err(flipBit(vfs.OS, name, 14)))
	}
	if b, err := os.ReadFile(name); err != nil || b[0] != 0 || b[1] != 0 || b[2] != 0 {
		t.Errorf("%x, %v", b, err)
	}
}

func TestNumberGivenTwice(t *testing.T) {
	s := newScene(t)
	stream := s.stream("s")
	a, b := s.wrote(s.client(), "s", noStream, 0, 1, 2), s.wrote(s.client(), "s", noStream, 0, 1, 2)
	s.book.acknowledge(stream, 1, a, 1)
	s.book.acknowledge(stream, 1, a, 1)
	check.Equal(t, s.find.total(), 0, "an event acknowledged again is no violation")
	s.book.acknowledge(stream, 1, b, 1)
	check.Equal(t, s.find.total(), 1, "a number given twice was not found")
	s.book.acknowledge(stream, 1<<40, b, 1)
	check.Equal(t, len(s.book.acknowledged(stream)), 1, "a wild number is kept")
}
