package postings

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// Parts of the format: do not change.
const (
	magic       = "ANNALSDN"
	entryHead   = 10
	offsetSize  = 8
	footSize    = 48
	fileName    = "names"
	recountName = "recount"
	writeBuffer = 64 << 10
)

var le = binary.LittleEndian

// mark is how far the log was looked at: the end of a frame, and the chain there.
type mark struct {
	position int64
	chain    event.Chain
}

// names are some names with counts, by name.
type names interface {
	len() int
	at(i int) (name string, count int64)
}

// changes are those of a map.
type changes []nameCount

type nameCount struct {
	name  string
	count int64
}

func (c changes) len() int                 { return len(c) }
func (c changes) at(i int) (string, int64) { return c[i].name, c[i].count }

// changesOf are the names of maps that begin with a prefix, in no order. A name may be there twice.
func changesOf(prefix string, maps ...counts) changes {
	var c changes
	for _, m := range maps {
		for name, count := range m {
			if strings.HasPrefix(name, prefix) {
				c = append(c, nameCount{name, *count})
			}
		}
	}
	return c
}

func (c changes) sort() {
	slices.SortFunc(c, func(a, b nameCount) int { return strings.Compare(a.name, b.name) })
}

// filed are those of one kind in a file. The memory of a name is that of the file.
type filed struct {
	entries []byte
	offsets []byte
}

func (f filed) len() int { return len(f.offsets) / offsetSize }

func (f filed) at(i int) (string, int64) {
	b := f.entries[le.Uint64(f.offsets[i*offsetSize:]):]
	return chunkfile.String(b[entryHead:][:le.Uint16(b[8:])]), int64(le.Uint64(b))
}

// merged yields the names of which events are left, from one on.
func merged(from string, parts ...names) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		next := make([]int, len(parts))
		for i, p := range parts {
			next[i] = sort.Search(p.len(), func(n int) bool { name, _ := p.at(n); return name >= from })
		}
		for {
			least, found := "", false
			for i, p := range parts {
				if next[i] < p.len() {
					if name, _ := p.at(next[i]); !found || name < least {
						least, found = name, true
					}
				}
			}
			if !found {
				return
			}
			sum := int64(0)
			for i, p := range parts {
				for next[i] < p.len() {
					name, count := p.at(next[i])
					if name != least {
						break
					}
					sum += count
					next[i]++
				}
			}
			if sum > 0 && !yield(least, sum) {
				return
			}
		}
	}
}

// namesFile is the file, open. The zero value has no names.
type namesFile struct {
	mark  mark
	of    [kinds]filed
	close func() error // lets go of the bytes; nil: there is nothing to let go of
}

// writeNames replaces the file by names.
func writeNames(fsys vfs.FS, dir string, m mark, of [kinds][]names) error {
	path := filepath.Join(dir, fileName)
	if err := writeNamesTo(fsys, path+vfs.TempSuffix, m, of); err != nil {
		return errors.Join(err, vfs.RemoveIfThere(fsys, path+vfs.TempSuffix))
	}
	if err := fsys.Rename(path+vfs.TempSuffix, path); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

func writeNamesTo(fsys vfs.FS, path string, m mark, of [kinds][]names) (err error) {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := xxh3.New()
	w := bufio.NewWriterSize(io.MultiWriter(io.NewOffsetWriter(f, 0), sum), writeBuffer)
	// The writer keeps its first error, and Flush returns it.
	var b []byte
	write := func(add []byte) { _, _ = w.Write(add) }
	write([]byte(magic))
	for _, parts := range of {
		for name, count := range merged("", parts...) {
			b = le.AppendUint16(le.AppendUint64(b[:0], uint64(count)), uint16(len(name)))
			write(append(b, name...))
		}
	}
	var found [kinds]uint64
	offset := uint64(0)
	for k, parts := range of {
		for name := range merged("", parts...) {
			write(le.AppendUint64(b[:0], offset))
			offset += uint64(entryHead + len(name))
			found[k]++
		}
	}
	b = append(le.AppendUint64(b[:0], uint64(m.position)), m.chain[:]...)
	write(le.AppendUint64(le.AppendUint64(b, found[0]), found[1]))
	if err := w.Flush(); err != nil {
		return err
	}
	write(le.AppendUint64(b[:0], sum.Sum64()))
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Sync()
}

// openNames opens the file and checks all of it.
func openNames(fsys vfs.FS, dir string) (_ *namesFile, err error) {
	path := filepath.Join(dir, fileName)
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size < int64(len(magic)+footSize) {
		return nil, corrupt(path, "it is too short")
	}
	data, release, err := chunkfile.Whole(f, size)
	if err != nil {
		return nil, err
	}
	n := &namesFile{close: release}
	if err := n.read(path, data); err != nil {
		return nil, errors.Join(err, release())
	}
	return n, nil
}

func (n *namesFile) read(path string, data []byte) (err error) {
	defer chunkfile.GuardFaults(&err)()
	body, foot := data[len(magic):len(data)-footSize], data[len(data)-footSize:]
	first, second := le.Uint64(foot[24:]), le.Uint64(foot[32:])
	most := uint64(len(body)) / (entryHead + offsetSize)
	switch {
	case string(data[:len(magic)]) != magic:
		return corrupt(path, "it is not a file of names")
	case xxh3.Hash(data[:len(data)-offsetSize]) != le.Uint64(foot[40:]):
		return corrupt(path, "its checksum does not match")
	case first > most || second > most-first:
		return corrupt(path, "its parts do not fit")
	}
	n.mark = mark{int64(le.Uint64(foot)), event.Chain(foot[8:24])}
	split := len(body) - int(first+second)*offsetSize
	n.of = [kinds]filed{{body[:split], body[split:][:first*offsetSize]}, {body[:split], body[split:][first*offsetSize:]}}
	return nil
}

func corrupt(path, detail string) error {
	return &event.Corruption{File: path, Offset: -1, Detail: detail}
}
