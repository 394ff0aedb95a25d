package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/google/uuid"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// Names of files. They are part of the format: do not change.
const (
	mapName         = "indexmap"
	bloomSuffix     = ".bloomfilter"
	tempSuffix      = vfs.TempSuffix
	existenceFolder = "stream-existence"
	existenceName   = "streamExistenceFilter.dat"
	existenceChk    = "streamExistenceFilter.chk"
)

const (
	sumSize  = 8       // bytes of a checksum
	ioBuffer = 1 << 20 // bytes written or read at a time by flushes, merges and checks

	// syncEvery bounds the dirty data of a file that is being written, so that its
	// final sync does not delay those of the log.
	syncEvery = 8 << 20
)

var le = binary.LittleEndian

func newTableName() string { return uuid.New().String() }

// isTableName reports whether a name is a GUID as tables are named: lower case, with dashes.
func isTableName(name string) bool {
	id, err := uuid.Parse(name)
	return err == nil && id.String() == name
}

// isOurs reports whether a name in the folder is one that this package gives to
// files. Whatever else lies there belongs to others and is left alone.
func isOurs(name string) bool {
	name = strings.TrimSuffix(name, tempSuffix)
	return name == mapName || isTableName(strings.TrimSuffix(name, bloomSuffix))
}

func corrupt(file string, offset int64, format string, args ...any) error {
	return &event.Corruption{File: file, Offset: offset, Detail: fmt.Sprintf(format, args...)}
}

// fileWriter writes a new file from front to back in large pieces and hashes what it writes.
type fileWriter struct {
	file   vfs.File
	buf    []byte
	at     int64 // where buf goes
	synced int64
	hash   *xxh3.Hasher
}

func createFile(fsys vfs.FS, name string, buffer int) (*fileWriter, error) {
	f, err := fsys.Create(name)
	if err != nil {
		return nil, err
	}
	return &fileWriter{file: f, buf: make([]byte, 0, buffer), hash: xxh3.New()}, nil
}

// offset is where in the file the next byte will lie.
func (w *fileWriter) offset() int64 { return w.at + int64(len(w.buf)) }

// room returns n bytes to fill in at the end of the file.
func (w *fileWriter) room(n int) ([]byte, error) {
	if len(w.buf)+n > cap(w.buf) {
		if err := w.drain(); err != nil {
			return nil, err
		}
	}
	w.buf = w.buf[:len(w.buf)+n]
	return w.buf[len(w.buf)-n:], nil
}

// write appends p.
func (w *fileWriter) write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), cap(w.buf))
		b, err := w.room(n)
		if err != nil {
			return err
		}
		copy(b, p)
		p = p[n:]
	}
	return nil
}

// drain hashes and writes what is buffered.
func (w *fileWriter) drain() error {
	if _, err := w.hash.Write(w.buf); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(w.buf, w.at); err != nil {
		return fmt.Errorf("write %s: %w", w.file.Name(), err)
	}
	w.at += int64(len(w.buf))
	w.buf = w.buf[:0]
	if w.at-w.synced >= syncEvery {
		return w.sync()
	}
	return nil
}

func (w *fileWriter) sync() error {
	if err := w.file.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", w.file.Name(), err)
	}
	w.synced = w.at
	return nil
}

// sum returns the checksum of everything written so far.
func (w *fileWriter) sum() (uint64, error) {
	if err := w.drain(); err != nil {
		return 0, err
	}
	return w.hash.Sum64(), nil
}

// finish makes the content durable and closes the file. The name is not durable yet.
func (w *fileWriter) finish() error {
	err := w.drain()
	if err == nil {
		err = w.sync()
	}
	if cerr := w.file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("close %s: %w", w.file.Name(), cerr)
	}
	return err
}

// seal appends the checksum of everything written so far.
func (w *fileWriter) seal() error {
	sum, err := w.sum()
	if err != nil {
		return err
	}
	return w.write(le.AppendUint64(nil, sum))
}

// writeNamed writes a file that gets its name when it is whole. The name is not durable yet.
func writeNamed(fsys vfs.FS, name string, buffer int, write func(*fileWriter) error) error {
	w, err := createFile(fsys, name+tempSuffix, buffer)
	if err != nil {
		return err
	}
	if err := write(w); err != nil {
		return w.abandon(fsys, err)
	}
	if err = w.finish(); err == nil {
		err = fsys.Rename(name+tempSuffix, name)
	}
	if err != nil {
		return errors.Join(err, vfs.RemoveIfThere(fsys, name+tempSuffix))
	}
	return nil
}

// abandon closes and removes an unfinished file after err and returns err with whatever else went
// wrong.
func (w *fileWriter) abandon(fsys vfs.FS, err error) error {
	return errors.Join(err, w.file.Close(), fsys.Remove(w.file.Name()))
}

// readFull reads len(p) bytes at an offset.
func readFull(f vfs.File, p []byte, off int64) error {
	if err := vfs.ReadFull(f, p, off); err != nil {
		return fmt.Errorf("read %s at %d: %w", f.Name(), off, err)
	}
	return nil
}

// content is a file opened for reading: mapped into memory where that is
// offered, else to be read through file.
type content struct {
	file    vfs.File
	mapping vfs.Mapping
	data    []byte // nil when not mapped
	size    int64
}

// place returns where in the file an address of its mapping lies.
func (c *content) place(address uintptr) (at int64, ok bool) {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(c.data)))
	return int64(address - base), address >= base && address-base < uintptr(len(c.data))
}

func openContent(fsys vfs.FS, name string) (c *content, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	c = &content{file: f}
	if c.size, err = f.Size(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if c.size == 0 {
		return c, nil
	}
	c.mapping, err = f.Map(c.size)
	switch {
	case err == nil:
		c.data = c.mapping.Bytes()[:c.size]
	case !errors.Is(err, vfs.ErrNotMappable):
		return nil, errors.Join(err, f.Close())
	}
	return c, nil
}

func (c *content) close() error {
	var err error
	if c.mapping != nil {
		err = c.mapping.Close()
	}
	return errors.Join(err, c.file.Close())
}
