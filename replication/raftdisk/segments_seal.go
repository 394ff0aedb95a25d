package raftdisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// The WAL seals a full segment with the append that fills it, and names the next segment in its metadata
// after that. A process that ends in between leaves a last segment that is
// sealed. The WAL (v0.4.1) opens it as the one to append to, and refuses every append
// from then on. So what was begun is finished before the WAL sees it.

// walMeta is the WAL's metadata, whose last segment can be appended to.
type walMeta struct {
	metadb.BoltMetaDB
	filer *walFiler
}

// walFiler gives the WAL the last segment that walMeta has opened.
type walFiler struct {
	*segment.Filer
	segments *segmentFiles
	tail     types.SegmentWriter
}

func (f *walFiler) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	if w := f.tail; w != nil {
		f.tail = nil
		return w, nil
	}
	return f.Filer.RecoverTail(info)
}

func (m *walMeta) Load(dir string) (types.PersistentState, error) {
	state, err := m.BoltMetaDB.Load(dir)
	n := len(state.Segments)
	if err != nil || n == 0 || !state.Segments[n-1].SealTime.IsZero() {
		return state, err
	}
	last := &state.Segments[n-1]
	w, err := m.filer.Filer.RecoverTail(*last)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil // The WAL makes it.
	}
	if err != nil {
		return state, err
	}
	sealed, index, err := w.Sealed()
	if err == nil && !sealed {
		m.filer.tail = w
		return state, nil
	}
	end := w.LastIndex()
	if err == nil {
		sealed, err = m.filer.segments.sealed(segment.FileName(*last), w, *last, int64(index))
	}
	if err = errors.Join(err, w.Close()); err != nil || !sealed {
		return state, err
	}
	now := time.Now()
	last.SealTime, last.MaxIndex, last.IndexStart = now, end, index
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: end + 1, MinIndex: end + 1, SizeLimit: uint32(m.filer.segments.size), Codec: last.Codec, CreateTime: now,
	})
	state.NextSegmentID++
	return state, m.CommitState(state)
}

// sealed reports whether a segment's index, at a place in the file, is whole. What is left
// of one that is not is overwritten: the append that was to write it was never acknowledged.
func (s *segmentFiles) sealed(name string, w types.SegmentWriter, info types.SegmentInfo, at int64) (whole bool, err error) {
	f, err := s.files.OpenReadWrite(filepath.Join(s.dir, name))
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	offsets := w.(interface {
		OffsetForFrame(index uint64) (uint32, error)
	})
	whole = w.LastIndex() >= info.BaseIndex
	entry := make([]byte, 4)
	for i := info.BaseIndex; whole && i <= w.LastIndex(); i++ {
		if i < info.MinIndex {
			continue // The segment does not say where it is any more, nor will anyone ask.
		}
		want, err := offsets.OffsetForFrame(i)
		if err != nil {
			return false, err
		}
		if _, err := f.ReadAt(entry, at+4*int64(i-info.BaseIndex)); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		whole = binary.LittleEndian.Uint32(entry) == want
	}
	if whole {
		return true, nil
	}
	size, err := f.Size()
	if err != nil {
		return false, err
	}
	const frameHeader = 8
	if _, err := f.WriteAt(make([]byte, size-at+frameHeader), at-frameHeader); err != nil {
		return false, fmt.Errorf("remove an unfinished index from %s: %w", name, err)
	}
	return false, f.Sync()
}
