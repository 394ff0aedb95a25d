package raftdisk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// syncMark says how far the Raft log was synced, in the file synced next to the segments. The end
// of a log alone does not show whether an entry was damaged or never stored whole; entries before
// the mark were stored whole.
//
// It is written after each sync, without a sync of its own: the system writes it within some
// seconds, and a power cut leaves an older one, which promises less. Before the end of the log is
// deleted, it is lowered durably.
//
// Two places, a page apart, are written in turn, so that one is always whole:
//
//	"ANNALSRM" | count of marks u64 | number of the segment u64 | index of the last entry u64
//	32  1: the entries after that one are being deleted, else 0 u64 | xxh3 of all before u64
type syncMark struct {
	file    vfs.File
	count   uint64
	segment uint64
	index   uint64
	cutting bool

	buffer [markBytes]byte
}

const (
	markFile  = "synced"
	markMagic = "ANNALSRM"
	markBytes = 48
)

// openMark opens the mark of a Raft log. Earlier versions made none.
func openMark(files vfs.FS, dir string, logger hclog.Logger) (_ *syncMark, err error) {
	path := filepath.Join(dir, markFile)
	f, err := files.OpenReadWrite(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := vfs.WriteFileAtomic(files, path, make([]byte, 2*pageSize)); err != nil {
			return nil, err
		}
		f, err = files.OpenReadWrite(path)
	}
	if err != nil {
		return nil, err
	}
	m := &syncMark{file: f}
	for _, at := range []int64{0, pageSize} {
		if _, err := f.ReadAt(m.buffer[:], at); err != nil && !errors.Is(err, io.EOF) {
			return nil, errors.Join(err, f.Close())
		}
		b := m.buffer[:]
		switch {
		case m.buffer == [markBytes]byte{}:
		case string(b[:8]) != markMagic || le.Uint64(b[40:]) != xxh3.Hash(b[:40]):
			logger.Warn("a mark of how far the Raft log was synced is damaged: the other one counts", logkey.File, path)
		case le.Uint64(b[8:]) > m.count:
			m.count, m.segment, m.index, m.cutting = le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:]), le.Uint64(b[32:]) == 1
		}
	}
	return m, nil
}

// note says that all is synced up to an entry. A crash may leave an older mark.
func (m *syncMark) note(segment, index uint64) error {
	m.count++
	m.segment, m.index = segment, index
	b := append(m.buffer[:0], markMagic...)
	for _, v := range []uint64{m.count, segment, index} {
		b = le.AppendUint64(b, v)
	}
	cutting := uint64(0)
	if m.cutting {
		cutting = 1
	}
	b = le.AppendUint64(b, cutting)
	b = le.AppendUint64(b, xxh3.Hash(b))
	_, err := m.file.WriteAt(b, int64(m.count%2)*pageSize)
	return err
}

// set says that the log ends at an entry, in both places and durably.
func (m *syncMark) set(segment, index uint64, cutting bool) error {
	m.cutting = cutting
	if err := errors.Join(m.note(segment, index), m.note(segment, index), m.file.Sync()); err != nil {
		return fmt.Errorf("mark the end of the Raft log: %w", err)
	}
	return nil
}

// close is idempotent.
func (m *syncMark) close() error {
	if m.file == nil {
		return nil
	}
	err := errors.Join(m.file.Sync(), m.file.Close())
	m.file = nil
	return err
}
