package chunkfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/vfs"
)

// Whole returns the first size bytes of a file, mapped if that can be.
func Whole(f vfs.File, size int64) (data []byte, release func() error, err error) {
	m, err := f.Map(size)
	if err == nil {
		return m.Bytes(), m.Close, nil
	}
	if !errors.Is(err, vfs.ErrNotMappable) {
		return nil, nil, err
	}
	data = make([]byte, size)
	if err := ReadFull(f, data, 0); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return data, func() error { return nil }, nil
}

// Hash hashes the first size bytes of a file that is read in pieces.
func Hash(sum *xxh3.Hasher, size int64, read func(b []byte, at int64) error) error {
	buf := make([]byte, min(1<<20, size))
	for at := int64(0); at < size; {
		n := min(int64(len(buf)), size-at)
		if err := read(buf[:n], at); err != nil {
			return err
		}
		if _, err := sum.Write(buf[:n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

func Sync(fsys vfs.FS, path string) (err error) {
	file, err := fsys.OpenReadWrite(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Sync()
}

func ReadFull(f io.ReaderAt, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
