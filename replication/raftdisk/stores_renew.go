package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/raft-wal/types"
)

// After a sync that failed the kernel holds what was written for clean: it can be read, it is
// not on disk, and no later sync writes it. A process that is started again would
// believe in entries that a power cut takes away. So what the last sync of the process
// before may have missed is written once more, with the same bytes, before anything reads it:
// of the WAL the last segment and the page that names the segments. All before that
// was synced, or the process would have ended. A bbolt Raft log or stable store does so by itself:
// opening it commits a transaction of no content, and only the page that says which one is the
// last can be missing.

// renewHead, past the file system like bbolt itself, writes the two pages again of which one says what is valid in a bbolt file, however large its pages are.
func renewHead(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := renew(head{f}); err != nil {
		return fmt.Errorf("write %s again: %w", path, err)
	}
	return nil
}

// head is the beginning of a file.
type head struct{ *os.File }

func (h head) ReadAt(b []byte, at int64) (int, error) {
	return io.NewSectionReader(h.File, 0, 2<<16).ReadAt(b, at)
}

// renew writes all of a file again, but for long runs of zeros, of which the WAL preallocates many.
func renew(f types.WritableFile) error {
	block, zeros := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); ; at += int64(len(block)) {
		n, err := f.ReadAt(block, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := f.WriteAt(block[:n], at); err != nil {
				return err
			}
		}
		if err != nil {
			return f.Sync()
		}
	}
}
