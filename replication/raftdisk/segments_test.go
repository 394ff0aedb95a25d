package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/annalsdb/annals/internal/vfs"
)

// smallSegment holds some ten entries of segmentEntry.
const smallSegment = 4 << 10

func segmentEntry(index uint64) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Data: bytes.Repeat(fmt.Appendf(nil, "%d ", index), 150)[:300]}
}

// fillSegments stores entries and cuts the head off, so that each segment but the first few was used before.
func fillSegments(s *walStore, to uint64, stored func(uint64)) error {
	for i := uint64(1); i <= to; i++ {
		if err := s.StoreLogs([]*raft.Log{segmentEntry(i)}); err != nil {
			return err
		}
		stored(i)
		if i > 30 && i%5 == 0 {
			if err := s.DeleteRange(1, i-20); err != nil {
				return err
			}
		}
		s.segments.wg.Wait()
	}
	return nil
}

func openSmallWal(files vfs.FS, path string) (*walStore, error) {
	s, err := openWal(files, path, smallSegment, hclog.NewNullLogger())
	if err != nil {
		return nil, err
	}
	return s.(*walStore), nil
}

// Deleted segments become the next ones, and a new file is made where there is none. At the end
// there are as many files as live entries need, the spare, and those that wait.
func TestSegmentsAreUsedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), walKind.name)
	mustNot(t, walKind.create(vfs.OS, path))
	var mu sync.Mutex // The spare is made beside.
	made := map[string]int{}
	s, err := openSmallWal(vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		made[fmt.Sprint(op.Kind)]++
		return nil
	}), path)
	mustNot(t, err)
	mustNot(t, fillSegments(s, 400, func(uint64) {}))
	mustNot(t, s.Close())
	if made["create"] > 6 || made["remove"] > 2 {
		t.Errorf("%d files were made, %d removed", made["create"], made["remove"])
	}
	names, err := vfs.OS.List(path)
	mustNot(t, err)
	if len(names) > 10 || !slices.Contains(names, spareFile) {
		t.Errorf("the folder holds %q", names)
	}
	for range 2 { // The second start finds what the first left.
		s, err = openSmallWal(vfs.OS, path)
		mustNot(t, err)
		checkSegments(t, "", s, 400)
		mustNot(t, s.Close())
	}
}

// A full segment takes no memory when the next spare is made; the one that is written does.
func TestFullSegmentsTakeNoMemory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), walKind.name)
	mustNot(t, walKind.create(vfs.OS, path))
	var mu sync.Mutex // The spare is made beside.
	var written string
	uncached := map[string]bool{}
	s, err := openSmallWal(vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, segmentSuffix):
			written = op.Name
		case op.Kind == vfs.OpRename && strings.HasSuffix(op.NewName, segmentSuffix):
			written = op.NewName
		case op.Kind == vfs.OpUncache:
			if op.Name == written || uncached[op.Name] {
				t.Errorf("%s was let go of while %s was written, before that: %t", op.Name, written, uncached[op.Name])
			}
			uncached[op.Name] = true
		}
		return nil
	}), path)
	mustNot(t, err)
	mustNot(t, fillSegments(s, 400, func(uint64) {}))
	mustNot(t, s.Close())
	if len(uncached) < 20 {
		t.Errorf("%d segments were let go of", len(uncached))
	}
}

// checkSegments compares all entries with what was stored, the last of which is at least the one acknowledged.
func checkSegments(t *testing.T, when string, s Backing, acknowledged uint64) {
	t.Helper()
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if mustNot(t, errors.Join(err1, err2)); last != acknowledged && last != acknowledged+1 {
		t.Errorf("%s: the entries end at %d, %d was acknowledged", when, last, acknowledged)
	}
	for i := first; i <= last && last > 0; i++ {
		var entry raft.Log
		if err := s.GetLog(i, &entry); err != nil || !bytes.Equal(entry.Data, segmentEntry(i).Data) {
			t.Errorf("%s: entry %d is %.10q, %v", when, i, entry.Data, err)
		}
	}
}

// Whenever the power fails, what was in a file before it became a segment is not taken for entries,
// and no entry is missing.
func TestPowerCutWhileSegmentsAreUsedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), walKind.name)
	mustNot(t, walKind.create(vfs.OS, path))
	mem := vfs.NewCrashMem()
	mustNot(t, vfs.MkdirAllSync(mem, path))

	var mu sync.Mutex // The spare is made beside.
	var cuts []powerCut
	var last uint64
	s, err := openSmallWal(vfs.NewFaulty(mem, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind.Mutates() && last > 35 {
			some := rand.New(rand.NewPCG(uint64(len(cuts)), 7))
			cut := powerCut{
				op:    fmt.Sprintf("%d: %s %s", len(cuts), op.Kind, filepath.Base(op.Name)),
				files: []*vfs.Mem{mem.CrashClone(vfs.CrashOptions{}), mem.CrashClone(vfs.CrashOptions{Rand: some})}, last: last,
			}
			for again := boltFiles(t, path); fmt.Sprint(again) != fmt.Sprint(cut.bolt); again = boltFiles(t, path) {
				cut.bolt = again // The page that names the segments may be being written.
			}
			cuts = append(cuts, cut)
		}
		return nil
	}), path)
	mustNot(t, err)
	mustNot(t, fillSegments(s, 75, func(index uint64) {
		mu.Lock()
		last = index
		mu.Unlock()
	}))
	mustNot(t, s.Close())

	for _, cut := range cuts {
		for _, files := range cut.files {
			for path, data := range cut.bolt {
				mustNot(t, os.WriteFile(path, data, 0o600))
			}
			s, err := openSmallWal(files, path)
			if err != nil {
				t.Fatalf("before %s: %v", cut.op, err)
			}
			checkSegments(t, "before "+cut.op, s, cut.last)
			next, err := s.LastIndex()
			mustNot(t, err)
			mustNot(t, s.StoreLogs([]*raft.Log{segmentEntry(next + 1)}))
			mustNot(t, s.Close())
			s, err = openSmallWal(files, path)
			mustNot(t, err)
			checkSegments(t, "after "+cut.op, s, next+1)
			mustNot(t, s.Close())
		}
	}
	if len(cuts) < 60 {
		t.Errorf("the power was cut %d times only", len(cuts))
	}
}

// A spare that cannot be made is done without.
func TestNoSpare(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), walKind.name)
	mustNot(t, walKind.create(vfs.OS, path))
	var mu sync.Mutex
	failed := 0
	s, err := openSmallWal(vfs.NewFaulty(vfs.OS, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == vfs.OpSync && filepath.Ext(op.Name) == vfs.TempSuffix {
			failed++
			return syscall.EIO
		}
		return nil
	}), path)
	mustNot(t, err)
	mustNot(t, fillSegments(s, 200, func(uint64) {}))
	checkSegments(t, "", s, 200)
	mustNot(t, s.Close())
	if names, err := vfs.OS.List(path); err != nil || slices.Contains(names, spareFile) || failed == 0 {
		t.Errorf("the folder holds %q, %v; %d syncs failed", names, err, failed)
	}
}

// A process ends after a segment was sealed and before the next one was named, or in the middle of sealing it.
func TestEndWhileSegmentIsSealed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost   uint64                       // entries of the append that sealed
		damage func(file []byte, index int) // where the index begins
	}{
		"sealed":                  {0, func([]byte, int) {}},
		"without the commit":      {1, func(file []byte, _ int) { clear(file[len(bytes.TrimRight(file, "\x00"))-8:]) }},
		"without half the index":  {1, func(file []byte, index int) { clear(file[index+8:]) }},
		"with other bytes there":  {1, func(file []byte, index int) { copy(file[index:], bytes.Repeat([]byte{7}, len(file)-index)) }},
		"without all of the last": {1, func(file []byte, index int) { clear(file[index-300:]) }},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), walKind.name)
			mustNot(t, walKind.create(vfs.OS, path))
			s, err := openSmallWal(vfs.OS, path)
			mustNot(t, err)
			meta, first := filepath.Join(path, metadb.FileName), filepath.Join(path, "00000000000000000001-0000000000000000"+segmentSuffix)
			var before []byte
			last := uint64(0)
			for rotated := false; !rotated; {
				before, err = os.ReadFile(meta)
				mustNot(t, err)
				last++
				mustNot(t, s.StoreLogs([]*raft.Log{segmentEntry(last)}))
				mustNot(t, s.DeleteRange(0, 0)) // waits for the next segment
				now, err := os.ReadFile(meta)
				mustNot(t, err)
				rotated = !bytes.Equal(before, now)
			}
			mustNot(t, s.Close())
			mustNot(t, os.WriteFile(meta, before, 0o600))
			file, err := os.ReadFile(first)
			mustNot(t, err)
			c.damage(file, len(bytes.TrimRight(file, "\x00"))-8-int(last+1)/2*8)
			mustNot(t, os.WriteFile(first, file, 0o600))
			for next := last - c.lost; next < last+3; next++ {
				s, err := openSmallWal(vfs.OS, path)
				mustNot(t, err)
				if end, err := s.LastIndex(); err != nil || end != next {
					t.Fatalf("the entries end at %d, %v, not at %d", end, err, next)
				}
				checkSegments(t, "", s, next)
				mustNot(t, s.StoreLogs([]*raft.Log{segmentEntry(next + 1)}))
				mustNot(t, s.Close())
			}
		})
	}
}
