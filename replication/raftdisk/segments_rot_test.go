package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// rotten is a Raft log of forty entries, all but the first in one segment: the first ten stored one
// by one, then ten in one write, then one by one again, and the last five in one write.
type rotten struct {
	t     *testing.T
	files *vfs.Mem
	path  string
	name  string // of the segment
	// where entry i+1 begins, from the second on; the last value is where the last entry ends
	at []int64
}

func newRotten(t *testing.T) *rotten {
	t.Helper()
	r := &rotten{t: t, files: vfs.NewMem()}
	r.path = createSegments(t, r.files)
	s := check.Value(openSegments(r.files, r.path, 64<<10, hclog.NewNullLogger())).Must(t)
	for i := uint64(1); i <= 40; i++ {
		to := i
		switch i {
		case 11:
			to = 20
		case 36:
			to = 40
		}
		check.Must(t, s.StoreLogs(storedEntries(i, to, 1)))
		i = to
		for !s.files.ready() && len(s.segments) == 1 { // the next segment, which is filled
			runtime.Gosched()
		}
	}
	g := s.segments[1]
	r.at = []int64{0}
	r.name = filepath.Join(r.path, filepath.Base(g.file.Name()))
	for _, o := range g.found.offsets {
		r.at = append(r.at, int64(o)*entryAlign)
	}
	r.at = append(r.at, g.found.end)
	check.Must(t, s.Close())
	return r
}

// change changes bytes of a file.
func (r *rotten) change(name string, at int64, with func(b []byte), size int) {
	r.t.Helper()
	f, err := r.files.OpenReadWrite(name)
	check.Must(r.t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, at)
	check.Must(r.t, err)
	with(b)
	_, err = f.WriteAt(b, at)
	check.Must(r.t, errors.Join(err, f.Close()))
}

func flipBit(b []byte) { b[0] ^= 1 }

func (r *rotten) forgetMark() { check.Must(r.t, r.files.Remove(filepath.Join(r.path, markFile))) }

// asBefore makes the segment one of an earlier version, whose entries say nothing of their write.
func (r *rotten) asBefore() {
	r.change(r.name, 0, func(b []byte) {
		sum := le.Uint64(b[40:])
		for i := 1; i < len(r.at)-1; i++ {
			entry := entryAt(b, int(r.at[i]))
			clear(entry[41:48])
			sum = entrySum(entry, sum)
			le.PutUint64(entry, sum)
		}
	}, int(r.at[len(r.at)-1]))
}

// Missing entries that had been stored are not a torn end: the log does not open without them.
func TestRotAtTheEndIsNoTornEnd(t *testing.T) {
	t.Parallel()
	const torn = 0
	for name, c := range map[string]struct {
		damage func(r *rotten)
		first  uint64 // entry that is missed; torn: none is, and the log ends at entry last
		last   uint64
	}{
		"checksum of an entry":      {func(r *rotten) { r.change(r.name, r.at[24], flipBit, 1) }, 25, 40},
		"length of data":            {func(r *rotten) { r.change(r.name, r.at[24]+8, flipBit, 1) }, 25, 40},
		"much longer":               {func(r *rotten) { r.change(r.name, r.at[24]+10, flipBit, 1) }, 25, 40},
		"length of extensions":      {func(r *rotten) { r.change(r.name, r.at[24]+12, flipBit, 1) }, 25, 40},
		"index":                     {func(r *rotten) { r.change(r.name, r.at[24]+16, flipBit, 1) }, 25, 40},
		"term":                      {func(r *rotten) { r.change(r.name, r.at[24]+24, flipBit, 1) }, 25, 40},
		"time":                      {func(r *rotten) { r.change(r.name, r.at[24]+32, flipBit, 1) }, 25, 40},
		"type":                      {func(r *rotten) { r.change(r.name, r.at[24]+40, flipBit, 1) }, 25, 40},
		"bits of the header":        {func(r *rotten) { r.change(r.name, r.at[24]+41, flipBit, 1) }, 25, 40},
		"place in its write":        {func(r *rotten) { r.change(r.name, r.at[24]+44, flipBit, 1) }, 25, 40},
		"data":                      {func(r *rotten) { r.change(r.name, r.at[25]+entryHead, flipBit, 1) }, 26, 40},
		"the first entry":           {func(r *rotten) { r.change(r.name, r.at[1]+entryHead, flipBit, 1) }, 2, 40},
		"one of several of a write": {func(r *rotten) { r.change(r.name, r.at[13]+entryHead, flipBit, 1) }, 14, 40},
		"three entries are zeros":   {func(r *rotten) { r.change(r.name, r.at[22], func(b []byte) { clear(b) }, int(r.at[25]-r.at[22])) }, 23, 40},
		"the last entry":            {func(r *rotten) { r.change(r.name, r.at[39]+40, flipBit, 1) }, 40, 40},
		"all of the last write":     {func(r *rotten) { r.change(r.name, r.at[35], func(b []byte) { clear(b) }, int(r.at[40]-r.at[35])) }, 36, 40},
		"header: magic":             {func(r *rotten) { r.change(r.name, 0, flipBit, 1) }, 2, 40},
		"header: number":            {func(r *rotten) { r.change(r.name, 16, flipBit, 1) }, 2, 40},
		"header: first":             {func(r *rotten) { r.change(r.name, 24, flipBit, 1) }, 2, 40},
		"header: checksum":          {func(r *rotten) { r.change(r.name, 40, flipBit, 1) }, 2, 40},
		"all is zeros":              {func(r *rotten) { r.change(r.name, 0, func(b []byte) { clear(b) }, int(r.at[40])) }, 2, 40},
		"the segment is gone":       {func(r *rotten) { check.Must(r.t, r.files.Remove(r.name)) }, 2, 40},
		"without a mark":            {func(r *rotten) { r.forgetMark(); r.change(r.name, r.at[24]+41, flipBit, 1) }, 25, 36},
		"zeros without a mark": {func(r *rotten) {
			r.forgetMark()
			r.change(r.name, r.at[22], func(b []byte) { clear(b) }, int(r.at[25]-r.at[22]))
		}, 23, 40},
		"header without a mark": {func(r *rotten) { r.forgetMark(); r.change(r.name, 16, flipBit, 1) }, 2, 2},
		"one place of the mark": {func(r *rotten) {
			r.change(filepath.Join(r.path, markFile), 24, flipBit, 1)
			r.change(r.name, r.at[33], flipBit, 1)
		}, 34, 36},
		"the end without a mark":     {func(r *rotten) { r.forgetMark(); r.change(r.name, r.at[39]+40, flipBit, 1) }, torn, 39},
		"a write without a mark":     {func(r *rotten) { r.forgetMark(); r.change(r.name, r.at[36], flipBit, 1) }, torn, 36},
		"the mark alone":             {func(r *rotten) { r.change(filepath.Join(r.path, markFile), 0, func(b []byte) { clear(b) }, 2*pageSize) }, torn, 40},
		"of an earlier version, few": {func(r *rotten) { r.forgetMark(); r.asBefore(); r.change(r.name, r.at[24], flipBit, 1) }, torn, 24},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRotten(t)
			c.damage(r)
			was := map[string][]byte{}
			names, err := r.files.List(r.path)
			check.Must(t, err)
			for _, name := range names {
				was[name], err = vfs.ReadFile(r.files, filepath.Join(r.path, name))
				check.Must(t, err)
			}
			s, err := openSegments(r.files, r.path, 64<<10, hclog.NewNullLogger())
			if c.first == torn {
				check.Must(t, err)
				if _, last, _ := s.ends(); last != c.last {
					t.Errorf("the log ends at %d, want %d", last, c.last)
				}
				check.Must(t, s.Close())
				return
			}
			var rot *RotError
			if !errors.As(err, &rot) || !errors.Is(err, ErrStateLost) || !event.IsCorruption(err) {
				t.Fatalf("it opens: %v", err)
			}
			if rot.First != c.first || rot.Last < c.last || rot.File == "" {
				t.Errorf("%v; want entries %d to %d", err, c.first, c.last)
			}
			for name, data := range was {
				if now, err := vfs.ReadFile(r.files, filepath.Join(r.path, name)); strings.HasSuffix(name, segmentSuffix) && (err != nil || !bytes.Equal(now, data)) {
					t.Errorf("%s was changed: %v", name, err)
				}
			}
		})
	}
}

// When an operator accepts a loss, the damaged entries are kept in a separate folder, and the log
// ends before them. None of them comes back.
func TestLossIsAccepted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		tail uint64 // last entry that the event log holds
		last uint64 // of the Raft log then; 0: it is set aside
		says string
	}{
		{"the event log is behind", 10, 24, "the content of entries 25 to 40 is nowhere else"},
		{"the event log has some of them", 30, 0, "the content of entries 31 to 40 is nowhere else"},
		{"the event log has all", 40, 0, "nothing is lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRotten(t)
			dir := t.TempDir()
			path := filepath.Join(dir, Dir, segmentKind.name)
			check.Must(t, vfs.MkdirAllSync(r.files, filepath.Dir(path)))
			r.change(r.name, r.at[24]+41, flipBit, 1)
			check.Must(t, copySegments(r.files, r.path, path))
			done, err := AcceptLoss(r.files, dir, event.Tail{Index: c.tail}, hclog.NewNullLogger())
			check.Must(t, err)
			check.MustContain(t, done, c.says)
			asides, err := Asides(&Options{Dir: dir, Files: r.files})
			if err != nil || len(asides) != 1 || !strings.Contains(done, asides[0]) {
				t.Errorf("%q, %v in %q", asides, err, done)
			}
			was, err1 := vfs.ReadFile(r.files, r.name)
			kept, err2 := vfs.ReadFile(r.files, filepath.Join(asides[0], segmentKind.name, filepath.Base(r.name)))
			if err := errors.Join(err1, err2); err != nil || !bytes.Equal(was, kept) {
				t.Errorf("what was damaged is not kept: %v", err)
			}
			if c.last == 0 {
				return
			}
			for range 2 {
				s, err := openSegments(r.files, path, segmentSize, hclog.NewNullLogger())
				check.Must(t, err)
				if _, last, _ := s.ends(); last != c.last {
					t.Errorf("the log ends at %d, want %d", last, c.last)
				}
				check.Must(t, s.Close())
			}
			if _, err := AcceptLoss(r.files, dir, event.Tail{}, hclog.NewNullLogger()); err == nil {
				t.Error("there is a loss to accept still")
			}
		})
	}
}

// The end is deleted, and others are stored or not: whatever is behind it is not taken for what was
// lost.
func TestDeletedEndIsNoRot(t *testing.T) {
	t.Parallel()
	for _, low := range []uint64{2, 15, 25, 40} {
		for more := range uint64(3) {
			t.Run(fmt.Sprintf("from %d, %d more", low, more), func(t *testing.T) {
				r := newRotten(t)
				s, err := openSegments(r.files, r.path, 64<<10, hclog.NewNullLogger())
				check.Must(t, err)
				check.Must(t, s.DeleteRange(low, 40))
				for i := range more {
					check.Must(t, s.StoreLogs([]*raft.Log{{Index: low + i, Term: 2, Data: []byte("x")}}))
				}
				check.Must(t, s.Close())
				s, err = openSegments(r.files, r.path, 64<<10, hclog.NewNullLogger())
				check.Must(t, err)
				if _, last, _ := s.ends(); last != low+more-1 {
					t.Errorf("it ends at %d", last)
				}
				check.Must(t, s.Close())
			})
		}
	}
	// All is deleted, and the log begins at a lower entry.
	r := newRotten(t)
	s, err := openSegments(r.files, r.path, 64<<10, hclog.NewNullLogger())
	check.Must(t, err)
	check.Must(t, s.DeleteRange(1, 40))
	mark := *s.mark
	check.Must(t, s.StoreLogs(storedEntries(5, 6, 2)))
	if mark.index != 40 || s.mark.index != 6 {
		t.Errorf("marked %d, then %d", mark.index, s.mark.index)
	}
	check.Must(t, s.Close())
	s, err = openSegments(r.files, r.path, 64<<10, hclog.NewNullLogger())
	check.Must(t, err)
	check.Must(t, s.Close())
}
