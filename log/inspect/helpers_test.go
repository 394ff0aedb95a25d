package inspect

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

// inspectFolder builds a data folder in memory and damages it.
type inspectFolder struct {
	t     *testing.T
	fs    vfs.FS
	log   *eventlog.Log
	raft  uint64
	term  uint64
	time  int64
	flags event.Flags
}

const inspectDir = "/db"

func newInspectFolder(t *testing.T, fsys vfs.FS) *inspectFolder {
	t.Helper()
	f := &inspectFolder{t: t, fs: fsys, term: 1, time: 1000}
	f.open()
	return f
}

func (f *inspectFolder) must(err error) {
	f.t.Helper()
	check.Must(f.t, err)
}

// inspectCluster has written the folder.
var inspectCluster = event.ID{7}

func (f *inspectFolder) open() {
	f.t.Helper()
	l, err := eventlog.Open(eventlog.Options{Dir: inspectDir, FS: f.fs, ClusterID: inspectCluster, SkipVerify: true})
	f.must(err)
	f.log = l
}

func (f *inspectFolder) close() {
	f.t.Helper()
	f.must(f.log.Close())
}

// inspectRecord is one record to write.
type inspectRecord struct {
	stream string
	number int64
}

// frame appends one frame.
func (f *inspectFolder) frame(completes bool, records ...inspectRecord) {
	f.t.Helper()
	f.raft++
	size := 0
	proposed := make([]event.Proposed, len(records))
	for i, r := range records {
		proposed[i] = event.Proposed{ID: event.ID{byte(f.raft), byte(i)}, Type: "type", Data: []byte(`{"some":"data"}`)}
		size += chunkfile.RecordSize(r.stream, &proposed[i])
	}
	first := chunkfile.Place(f.log.Appended().End, size)
	var b []byte
	for i, r := range records {
		f.time++
		flags := f.flags
		if r.number == event.TombstoneNumber {
			flags |= event.FlagDeleted
		}
		b = chunkfile.AppendRecord(b, first+int64(len(b)), r.stream, r.number, f.time, flags, &proposed[i])
	}
	f.must(f.log.Append(eventlog.Frame{First: first, Records: b, Completes: completes, Index: f.raft, Term: f.term}))
	f.must(f.log.Commit())
}

// build writes the usual folder: two complete chunks and one that grows, three tables of the index.
func (f *inspectFolder) build() *inspectFolder {
	f.t.Helper()
	for i := range int64(20) {
		f.frame(false, inspectRecord{"a", i}, inspectRecord{"b", 2 * i}, inspectRecord{"b", 2*i + 1})
	}
	f.frame(true, inspectRecord{"$$a", 0}, inspectRecord{"gone", 0})
	f.must(f.log.Index().Flush())
	f.term = 2
	for i := range int64(10) {
		f.frame(false, inspectRecord{"a", 20 + i}, inspectRecord{fmt.Sprint("c", i), 0})
	}
	f.frame(true, inspectRecord{"gone", event.TombstoneNumber})
	f.must(f.log.Index().Flush())
	for i := range int64(5) {
		f.frame(false, inspectRecord{"a", 30 + i})
	}
	f.must(f.log.Index().Flush())
	f.frame(false, inspectRecord{"a", 35}, inspectRecord{"b", 40})
	f.close()
	return f
}

func (f *inspectFolder) path(name string) string { return filepath.Join(inspectDir, name) }

func (f *inspectFolder) read(name string) []byte {
	f.t.Helper()
	b, err := vfs.ReadFile(f.fs, f.path(name))
	f.must(err)
	return b
}

func (f *inspectFolder) write(name string, b []byte) {
	f.t.Helper()
	file, err := f.fs.Create(f.path(name))
	f.must(err)
	_, err = file.WriteAt(b, 0)
	f.must(errors.Join(err, file.Close()))
}

func (f *inspectFolder) change(name string, change func(b []byte) []byte) {
	f.t.Helper()
	f.write(name, change(slices.Clone(f.read(name))))
}

// flip turns one bit over; a negative offset counts from the end.
func (f *inspectFolder) flip(name string, offset int) {
	f.t.Helper()
	f.change(name, func(b []byte) []byte {
		if offset < 0 {
			offset += len(b)
		}
		b[offset] ^= 4
		return b
	})
}

func (f *inspectFolder) remove(name string) {
	f.t.Helper()
	f.must(f.fs.Remove(f.path(name)))
}

func (f *inspectFolder) checkpoint(name string, v int64) {
	f.t.Helper()
	f.write(name, chunkfile.Order.AppendUint64(nil, uint64(v)))
}

// itemOffsets returns the offsets of the items of a chunk file.
func itemOffsets(b []byte) (offsets []int) {
	for at := chunkfile.HeaderSize; at+chunkfile.RecordFixed <= len(b); {
		it, err := chunkfile.ParseItem(b[at:])
		if err != nil {
			break
		}
		offsets = append(offsets, at)
		at += len(it)
	}
	return offsets
}

// editItem changes the i-th item of a chunk file and makes its checksum right again.
func (f *inspectFolder) editItem(name string, i int, edit func(it []byte)) {
	f.t.Helper()
	f.change(name, func(b []byte) []byte {
		at := itemOffsets(b)[i]
		it, err := chunkfile.ParseItem(b[at:])
		f.must(err)
		edit(it)
		inspectSeal(it)
		return b
	})
	f.refoot(name, func(*chunkfile.Footer) {})
}

// inspectSeal makes the checksum of an item right.
func inspectSeal(it []byte) {
	sealed := chunkfile.CloseItem(slices.Clone(it[:len(it)-chunkfile.ItemFoot]), 0, len(it))
	copy(it, sealed)
}

// refoot changes the footer of a complete chunk and makes its checksums right; a chunk without one
// stays as it is.
func (f *inspectFolder) refoot(name string, edit func(*chunkfile.Footer)) {
	f.t.Helper()
	f.change(name, func(b []byte) []byte {
		h, err := chunkfile.ParseHeader(b)
		f.must(err)
		foot, err := chunkfile.ParseFooter(b[len(b)-chunkfile.FooterSize:], h, int64(len(b)))
		if err != nil {
			return b
		}
		edit(&foot)
		body := b[:len(b)-chunkfile.FooterSize]
		return append(body, foot.Bytes(func(part []byte) [16]byte {
			return xxh3.Hash128(append(slices.Clone(body), part...)).Bytes()
		})...)
	})
}

// scavenge rewrites complete chunks as one with a position map, without the records that drop
// names.
func (f *inspectFolder) scavenge(drop func(it chunkfile.Item) bool, names ...string) string {
	f.t.Helper()
	var data, positions []byte
	var h chunkfile.Header
	var foot chunkfile.Footer
	records := 0
	version := 0
	for i, name := range names {
		b := f.read(name)
		hh, err := chunkfile.ParseHeader(b)
		f.must(err)
		foot2, err := chunkfile.ParseFooter(b[len(b)-chunkfile.FooterSize:], hh, int64(len(b)))
		f.must(err)
		if i == 0 {
			h, foot.FirstIndex = hh, foot2.FirstIndex
			_, version, _ = chunkfile.ParseFileName(name)
		}
		first := foot.FirstIndex
		foot = foot2
		foot.FirstIndex = first
		h.Last = hh.Last
		for _, at := range itemOffsets(b) {
			it, err := chunkfile.ParseItem(b[at:])
			f.must(err)
			if it.IsRecord() {
				if drop(it) {
					continue
				}
				records++
			}
			positions = chunkfile.Order.AppendUint64(positions, uint64(it.Position()))
			positions = chunkfile.Order.AppendUint32(positions, uint32(chunkfile.HeaderSize+len(data)))
			data = append(data, it...)
		}
	}
	h.Mapped, foot.Mapped = true, true
	foot.Records, foot.DataSize, foot.MapSize = records, int64(len(data)), int64(len(positions))
	body := slices.Concat(h.Bytes(), data, positions)
	name := chunkfile.FileName(h.First, version+1)
	f.write(name, append(body, foot.Bytes(func(part []byte) [16]byte {
		return xxh3.Hash128(append(slices.Clone(body), part...)).Bytes()
	})...))
	for _, old := range names {
		f.remove(old)
	}
	return name
}

// inspect runs Inspect over a file system that refuses every change.
func (f *inspectFolder) inspect(quick bool) ([]Finding, Summary, error) {
	f.t.Helper()
	guarded := vfs.NewFaulty(f.fs, func(op vfs.Op) error {
		if op.Kind.Mutates() || op.Kind == vfs.OpOpenReadWrite {
			f.t.Errorf("inspection does %s on %s", op.Kind, op.Name)
			return errors.New("forbidden")
		}
		return nil
	})
	var findings []Finding
	sum, err := Run(context.Background(), Options{FS: guarded, Dir: inspectDir, Quick: quick}, func(x Finding) {
		findings = append(findings, x)
	})
	return findings, sum, err
}

// inspectLine writes a finding as the tables of this file do.
func inspectLine(x Finding) string {
	return fmt.Sprintf("%s %s %s @%d: %s", x.Severity, x.Kind, strings.TrimPrefix(x.File, inspectDir+"/"), x.Offset, x.Detail)
}
