package raftdisk

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// RotError says that stored entries of the Raft log are damaged or missing. A node that started
// without them would have forgotten what it acknowledged.
type RotError struct {
	event.Corruption
	First, Last uint64 // lost entries; later ones may be lost as well
}

func (e *RotError) Error() string {
	return fmt.Sprintf("%s: entry %d of the Raft log is not what was written, at offset %d, and entries up to %d had been stored", e.File, e.First, e.Offset, e.Last)
}

func (e *RotError) Unwrap() []error { return []error{ErrStateLost, &e.Corruption} }

func newRot(f vfs.File, at int64, first, last uint64) *RotError {
	return &RotError{event.Corruption{File: f.Name(), Offset: at, Detail: fmt.Sprintf("entry %d of the Raft log is not what was written", first)}, first, max(first, last)}
}

// checkEnd decides whether the log ends where nothing more fits, or whether stored entries are
// damaged there. Neither what the mark has nor what was stored by a later write may be missing.
func (s *segmentLog) checkEnd(g *segmentFile) error {
	last := uint64(0)
	if s.mark.index > g.last {
		last = s.mark.index
	}
	if !s.mark.cutting { // What is behind the end is void then.
		stored, err := storedBehind(g.file, g.head, g.found)
		if err != nil {
			return err
		}
		last = max(last, stored)
	}
	if last == 0 || last < s.head.first {
		return nil
	}
	return newRot(g.file, g.found.end, g.last+1, last)
}

// writeBound is how many entries earlier versions, whose entries do not say it, stored at most in
// one write.
const writeBound = 64

// storedBehind looks for entries behind the end of a segment that a later write stored than the one
// that is missing: each write is synced before the next. It returns the index of the last one, 0:
// none.
//
// Of the entry that is missing, either the checksum, or the length and all else that the checksum
// is made of may still be there, and lead to the next one. Where more is missing, two entries of
// which one follows the other count, if they have the mark of this use of the file.
func storedBehind(f vfs.File, h segmentHead, s found) (last uint64, err error) {
	size, err := f.Size()
	if err != nil || size-s.end < 2*entryHead {
		return 0, err
	}
	b := make([]byte, size-s.end)
	if _, err := f.ReadAt(b, s.end); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	f.Uncache()
	missing := h.first + uint64(len(s.offsets))
	seeds := [2]uint64{le.Uint64(b)}
	if entry := entryAt(b, 0); entry != nil {
		seeds[1] = entrySum(entry, s.sum)
	}
	for at := entryAlign; at+entryHead <= len(b); at += entryAlign {
		index := le.Uint64(b[at+16:])
		if index <= missing || index-missing > uint64(at/entryHead) {
			continue
		}
		entry := entryAt(b, at)
		if entry == nil || le.Uint64(entry) == 0 {
			continue
		}
		sure := index == missing+1 && (le.Uint64(entry) == entrySum(entry, seeds[0]) || le.Uint64(entry) == entrySum(entry, seeds[1]))
		if !sure && !h.marked(entry) {
			continue
		}
		for {
			if sure && writtenLater(entry, missing) {
				last = max(last, index)
			}
			next := at + padded(len(entry))
			follows := entryAt(b, next)
			if follows == nil || le.Uint64(follows[16:]) != index+1 || le.Uint64(follows) != entrySum(follows, le.Uint64(entry)) {
				break
			}
			entry, at, index, sure = follows, next, index+1, true
		}
	}
	return last, nil
}

// entryAt returns what may be an entry, nil if there is no room for it.
func entryAt(b []byte, at int) []byte {
	if len(b)-at < entryHead {
		return nil
	}
	n := entryHead + entryBytes(b[at:])
	if n > int64(len(b)-at) {
		return nil
	}
	return b[at : at+int(n)]
}

// writtenLater reports whether an entry was stored by a later write than one before it.
func writtenLater(entry []byte, before uint64) bool {
	index := le.Uint64(entry[16:])
	if place := le.Uint32(entry[44:]); place > 0 {
		return index-uint64(place-1) > before
	}
	return index-before >= writeBound
}

// damagedHead returns the index of the first entry of a file whose header is damaged: one that
// follows it, by its checksum. It is 0 if there is none, or the file was never begun under its
// number.
func damagedHead(f vfs.File) (first uint64, err error) {
	var b [segmentHeader + entryHead]byte
	if n, err := f.ReadAt(b[:], 0); n < len(b) {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return 0, err
	}
	stored, computed := le.Uint64(b[40:]), xxh3.Hash(b[:40])
	size, err := f.Size()
	n := entryHead + entryBytes(b[segmentHeader:])
	if err != nil || stored == computed && string(b[:8]) == segmentMagic || n > size-segmentHeader {
		return 0, err // It is that of an earlier use.
	}
	entry := make([]byte, n)
	if _, err := f.ReadAt(entry, segmentHeader); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if sum := le.Uint64(entry); sum != 0 && (sum == entrySum(entry, stored) || sum == entrySum(entry, computed)) {
		return le.Uint64(entry[16:]), nil
	}
	return 0, nil
}

// Loss says what an event log lacks of the entries that the Raft log has lost.
func (e *RotError) Loss(tail event.Tail) string {
	switch first := max(e.First, tail.Index+1); {
	case first > e.Last:
		return fmt.Sprintf("the event log holds all of them, up to entry %d: nothing is lost", tail.Index)
	default:
		return fmt.Sprintf("the event log ends with entry %d: the content of entries %d to %d is nowhere else on this node, and may have been acknowledged", tail.Index, first, e.Last)
	}
}

// AcceptLoss lets the only node of a cluster start although its Raft log is damaged. It returns a
// line that says what was done. Nothing is removed: the damaged part is kept in a folder of its
// own.
func AcceptLoss(files vfs.FS, dataDir string, tail event.Tail, logger hclog.Logger) (string, error) {
	path := filepath.Join(dataDir, Dir, segmentKind.name)
	if there, err := exists(files, path); err != nil || !there {
		return "", errors.Join(err, fmt.Errorf("%s is not there: only a Raft log in segments can be mended", path))
	}
	rot, err := findRot(files, path, logger)
	if err != nil {
		return "", err
	}
	if rot == nil {
		return "", fmt.Errorf("the Raft log in %s is not damaged: there is nothing to accept", path)
	}
	loss := rot.Loss(tail)
	if tail.Index+1 >= rot.First { // The event log has all that is before the damage.
		aside, err := SetAside(files, dataDir, AsideLost)
		return fmt.Sprintf("%s; the folder %s was set aside as %s, and the node starts from its event log", loss, Dir, aside), err
	}
	aside := filepath.Join(dataDir, Dir+"."+AsideLost+"-"+time.Now().UTC().Format("20060102T150405.000Z"))
	if err := copySegments(files, path, filepath.Join(aside, segmentKind.name)); err != nil {
		return "", err
	}
	s, err := openSegmentsAs(files, path, segmentSize, logger, true)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s; the Raft log ends with entry %d now, and was copied to %s before", loss, rot.First-1, aside), s.Close()
}

// findRot reads a whole Raft log, and returns the damage, nil if there is none.
func findRot(files vfs.FS, path string, logger hclog.Logger) (rot *RotError, err error) {
	s, err := openSegments(files, path, segmentSize, logger)
	if err == nil {
		first, last, _ := s.ends()
		for index := first; index <= last && last > 0 && err == nil; index++ {
			err = s.GetLog(index, new(raft.Log))
		}
		if errors.As(err, &rot) {
			rot.Last = last
		}
		err = errors.Join(err, s.Close())
	}
	if errors.As(err, &rot) {
		return rot, nil
	}
	return nil, err
}

// copySegments copies a Raft log, durably.
func copySegments(files vfs.FS, from, to string) error {
	if err := vfs.MkdirAllSync(files, to); err != nil {
		return err
	}
	names, err := files.List(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := vfs.ReadFile(files, filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := vfs.WriteFileAtomic(files, filepath.Join(to, name), data); err != nil {
			return err
		}
	}
	return nil
}

// cutAtDamage ends the log before the first damaged entry.
func (s *segmentLog) cutAtDamage() error {
	for i, g := range s.segments[:max(len(s.segments)-1, 0)] {
		next := s.segments[i+1].head
		found, err := scanSegment(g.file, g.head, next.first-g.head.first)
		if err != nil {
			return err
		}
		if g.head.first+uint64(len(found.offsets)) != next.first || found.sum != next.before {
			return s.dropBehind(func(one *segmentFile) bool { return one.head.number <= g.head.number })
		}
	}
	return nil
}
