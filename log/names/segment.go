package names

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// Parts of the format: do not change.
const (
	magic       = "ANNALSNM"
	lengthSize  = 2
	offsetSize  = 8
	footSize    = 16
	mapName     = "segments"
	tempSuffix  = vfs.TempSuffix
	writeBuffer = 64 << 10
)

var le = binary.LittleEndian

// part is some names in both orders.
type part struct {
	entries []byte // by creation
	sorted  []byte // offsets of entries, by name
}

func (p part) count() int { return len(p.sorted) / offsetSize }

// offset is where the entry of the name lies that is the i-th of all.
func (p part) offset(i int) uint64 { return le.Uint64(p.sorted[i*offsetSize:]) }

func (p part) name(i int) []byte { return p.at(p.offset(i)) }

func (p part) at(offset uint64) []byte {
	b := p.entries[offset:]
	return b[lengthSize:][:le.Uint16(b)]
}

// search returns the first place whose name is not below the one given.
func (p part) search(name string) int {
	return sort.Search(p.count(), func(i int) bool { return string(p.name(i)) >= name })
}

// find returns the offset of the entry of a name.
func (p part) find(name string) (offset uint64, ok bool) {
	i := p.search(name)
	if i == p.count() || string(p.name(i)) != name {
		return 0, false
	}
	return p.offset(i), true
}

// before yields the names of the entries before an offset, the newest first.
func (p part) before(offset uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for offset > 0 {
			length := uint64(le.Uint16(p.entries[offset-lengthSize:]))
			offset -= length + 2*lengthSize
			if !yield(p.at(offset)) {
				return
			}
		}
	}
}

// merged yields part and offset of all names from one on, by name.
func merged(parts []part, from string) iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		next := make([]int, len(parts))
		for i, p := range parts {
			next[i] = p.search(from)
		}
		for {
			least, name := -1, []byte(nil)
			for i, p := range parts { // There are few.
				if next[i] == p.count() {
					continue
				}
				if n := p.name(next[i]); least < 0 || string(n) < string(name) {
					least, name = i, n
				}
			}
			if least < 0 || !yield(least, parts[least].offset(next[least])) {
				return
			}
			next[least]++
		}
	}
}

// segment is a file of names.
type segment struct {
	part
	file  string
	level int
	data  []byte       // all of the file
	close func() error // lets go of the bytes
}

func (s *segment) check(path string) error {
	if end := len(s.data) - offsetSize; xxh3.Hash(s.data[:end]) != le.Uint64(s.data[end:]) {
		return corrupt(path, "its checksum does not match")
	}
	return nil
}

// writeSegment makes a segment of neighbouring parts, the oldest first.
func writeSegment(fsys vfs.FS, dir string, level int, parts []part) (_ *segment, err error) {
	name := uuid.NewString()
	path := filepath.Join(dir, name)
	if err := writeParts(fsys, path+tempSuffix, parts); err != nil {
		return nil, errors.Join(err, fsys.RemoveAll(path+tempSuffix))
	}
	if err := fsys.Rename(path+tempSuffix, path); err != nil {
		return nil, err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return nil, err
	}
	return openSegment(fsys, dir, name, level)
}

func writeParts(fsys vfs.FS, path string, parts []part) (err error) {
	f, err := fsys.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := xxh3.New()
	w := bufio.NewWriterSize(io.MultiWriter(io.NewOffsetWriter(f, 0), sum), writeBuffer)
	write := func(b []byte) {
		if err == nil {
			_, err = w.Write(b)
		}
	}
	write([]byte(magic))
	begins, size := make([]uint64, len(parts)), uint64(0)
	for i, p := range parts {
		begins[i] = size
		size += uint64(len(p.entries))
		write(p.entries)
	}
	var b [offsetSize]byte
	for i, offset := range merged(parts, "") {
		le.PutUint64(b[:], begins[i]+offset)
		write(b[:])
	}
	le.PutUint64(b[:], size)
	write(b[:])
	if err == nil {
		err = w.Flush()
	}
	le.PutUint64(b[:], sum.Sum64())
	write(b[:])
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return err
}

// openSegment opens a segment and checks all of it.
func openSegment(fsys vfs.FS, dir, name string, level int) (_ *segment, err error) {
	path := filepath.Join(dir, name)
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
	s := &segment{file: name, level: level, data: data, close: release}
	foot := data[size-footSize:]
	body, entries := data[len(magic):size-footSize], le.Uint64(foot)
	switch {
	case string(data[:len(magic)]) != magic:
		err = corrupt(path, "it is not a file of names")
	case entries > uint64(len(body)) || (uint64(len(body))-entries)%offsetSize != 0:
		err = corrupt(path, "its parts do not fit")
	}
	if err = errors.Join(s.check(path), err); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.entries, s.sorted = body[:entries], body[entries:]
	return s, nil
}

func corrupt(path, detail string) error {
	return &event.Corruption{File: path, Offset: -1, Detail: detail}
}

// fresh are the names that no segment has yet.
type fresh struct {
	entries []byte
	offsets []uint64
	known   map[string]struct{}
}

func (f *fresh) add(name string) error {
	if len(name) == 0 || len(name) > 1<<16-1 {
		return fmt.Errorf("the name of a stream has %d bytes", len(name))
	}
	f.offsets = append(f.offsets, uint64(len(f.entries)))
	f.entries = le.AppendUint16(f.entries, uint16(len(name)))
	f.entries = append(f.entries, name...)
	f.entries = le.AppendUint16(f.entries, uint16(len(name)))
	if f.known == nil {
		f.known = map[string]struct{}{}
	}
	f.known[name] = struct{}{}
	return nil
}

// part is what is there now. What is added later does not change it.
func (f *fresh) part() part {
	p := part{entries: f.entries[:len(f.entries):len(f.entries)], sorted: make([]byte, 0, len(f.offsets)*offsetSize)}
	order := slices.Clone(f.offsets)
	slices.SortFunc(order, func(a, b uint64) int { return strings.Compare(string(p.at(a)), string(p.at(b))) })
	for _, offset := range order {
		p.sorted = le.AppendUint64(p.sorted, offset)
	}
	return p
}
