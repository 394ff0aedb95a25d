package index

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// OpenReadOnly opens an index to look at it. No process may have the index open. It changes nothing
// and reports a missing or damaged file as an error. The contents of tables are checked by Entries.
// For an index that was never written errors.Is(err, fs.ErrNotExist) holds.
func OpenReadOnly(fsys vfs.FS, dir string) (*Index, error) {
	opt := Options{FS: fsys, Dir: dir}
	opt.EnsureDefaults()
	x := newIndex(opt)
	x.readOnly, x.fsys = true, nil
	m, tables, err := x.opening().openSet()
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	x.checkpoint.Store(m.checkpoint)
	x.current.Store(newState([]*memTable{newMemTable()}, tables))
	releaseAll(tables)
	f, covered, err := loadExistence(fsys, filepath.Join(dir, existenceFolder), 1<<62)
	switch {
	case errors.Is(err, fs.ErrNotExist): // Made without one.
	case err != nil:
		return nil, errors.Join(fmt.Errorf("open index: %w", err), x.Close())
	case covered == m.checkpoint: // An older one would be brought up to date first.
		x.existence.filter.Store(f)
	}
	return x, nil
}

// Entries iterates over the entries of all tables, sorted by hash, number and
// position across tables. It checks the order, the checksum of every table and
// that no filter denies an entry. The first error ends it.
func (x *Index) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		s := x.acquire()
		if s == nil {
			yield(Entry{}, event.ErrClosed)
			return
		}
		defer s.release()
		in := newMergeReader(s.tables)
		for in.next() {
			if err := x.checkFilters(in.from.t, le.Uint64(in.rows)); err != nil {
				yield(Entry{}, err)
				return
			}
			for row := range slices.Chunk(in.rows, entrySize) {
				if !yield(getEntry(row), nil) {
					return
				}
			}
		}
		if in.err != nil {
			yield(Entry{}, in.err)
		}
	}
}

func (x *Index) checkFilters(t *table, hash uint64) error {
	if t.filter != nil && !t.filter.mayContain(hash) {
		return corrupt(t.path+bloomSuffix, -1, "filter denies hash %016x of its table", hash)
	}
	if !x.MayExist(hash) {
		return corrupt(filepath.Join(x.opt.Dir, existenceFolder, existenceName), -1, "filter denies hash %016x of table %s", hash, t.file)
	}
	return nil
}

// Between returns all entries with positions from one up to another, in any order. It reads all
// tables that may have some.
func Between(x *Index, from, to int64) ([]Entry, error) {
	s := x.acquire()
	if s == nil {
		return nil, event.ErrClosed
	}
	defer s.release()
	var found []Entry
	add := func(e Entry) {
		if from <= e.Position && e.Position < to {
			found = append(found, e)
		}
	}
	for _, m := range s.mems {
		for e := range m.entries() {
			add(e)
		}
	}
	for _, t := range s.tables {
		if t.maxPos < from || t.minPos >= to {
			continue
		}
		in := newScanner(t)
		for in.next() {
			add(in.entry)
		}
		if in.err != nil {
			if event.IsCorruption(in.err) {
				x.ofTable(in.err)
			}
			return nil, in.err
		}
	}
	return found, nil
}
