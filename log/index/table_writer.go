package index

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/vfs"
)

// checkEvery entries the writer looks whether it was cancelled.
const checkEvery = 1 << 14

// fewHashes are remembered, so that a filter of the right size costs no second pass.
const fewHashes = 1 << 16

// tableWriter writes a sorted sequence of entries as a table with its filter.
// Until publish both lie under temporary names.
type tableWriter struct {
	fsys   vfs.FS
	dir    string
	file   string
	out    *fileWriter
	filter *bloom   // nil: none wanted
	room   int64    // distinct hashes that filter was made for
	few    []uint64 // all distinct hashes, unless they are more than fewHashes
	tally

	packed bool   // the shape of the table
	block  []byte // entries that wait for being as many as a block has
	data   []byte // what a packed block becomes
	starts []byte // of each block its first hash; of a packed one all that the directory says
	sums   []byte // of the blocks; of packed ones they are among starts
}

// newTableWriter begins a table of at most so many entries and distinct hashes.
func newTableWriter(o *Options, entries, hashes int64) (*tableWriter, error) {
	w := &tableWriter{
		fsys: o.FS, dir: o.Dir, file: newTableName(), room: hashes,
		packed: o.Packed, block: make([]byte, 0, blockEntries*entrySize),
	}
	buffer := int(min(ioBuffer, tableHeaderSize+entries*entrySize+directorySize(entries, w.packed)+tableFooterSize))
	var err error
	if w.out, err = createFile(w.fsys, filepath.Join(w.dir, w.file)+tempSuffix, buffer); err != nil {
		return nil, err
	}
	if err := w.out.write(tableHeader(w.packed)); err != nil {
		return nil, w.out.abandon(w.fsys, err)
	}
	if !o.NoBloom {
		w.filter = newBloom(hashes)
	}
	return w, nil
}

// add takes entries of one hash, as a plain table has them.
func (w *tableWriter) add(rows []byte) error {
	if w.packed {
		for row := range slices.Chunk(rows, entrySize) {
			if e := getEntry(row); e.Number != e.Position {
				return fmt.Errorf("packed index entry %+v has a number that is not its position", e)
			}
		}
	}
	before := w.hashes
	if taken := w.take(rows) * entrySize; taken < int64(len(rows)) {
		return fmt.Errorf("index entry %+v given after %+v", getEntry(rows[taken:]), w.last)
	}
	if w.hashes > before {
		if w.filter != nil {
			w.filter.add(w.last.Hash)
		}
		if w.hashes <= fewHashes {
			w.few = append(w.few, w.last.Hash)
		}
	}
	for len(rows) > 0 {
		if len(w.block) == cap(w.block) {
			if err := w.endBlock(); err != nil {
				return err
			}
		}
		if len(w.block) == 0 {
			w.starts = le.AppendUint64(w.starts, w.last.Hash)
		}
		n := min(len(rows), cap(w.block)-len(w.block))
		w.block = append(w.block, rows[:n]...)
		rows = rows[n:]
	}
	return nil
}

// endBlock writes the block.
func (w *tableWriter) endBlock() error {
	data := w.block
	if w.packed {
		w.data = pack(w.data[:0], w.block)
		data = w.data
		w.starts = append(w.starts, w.block[16:entrySize]...) // The position of the first one.
		w.starts = le.AppendUint64(w.starts, uint64(w.out.offset()))
		w.starts = le.AppendUint64(w.starts, xxh3.Hash(data))
	} else {
		w.sums = le.AppendUint64(w.sums, xxh3.Hash(data))
	}
	err := w.out.write(data)
	w.block = w.block[:0]
	return err
}

// end writes the last block and what follows the entries.
func (w *tableWriter) end() (err error) {
	if err := w.endBlock(); err != nil {
		return err
	}
	directory := append(w.starts, w.sums...)
	if w.packed {
		directory = w.shares.append(directory)
	}
	if err := w.out.write(le.AppendUint64(directory, xxh3.Hash(directory))); err != nil {
		return err
	}
	w.maxHash = w.last.Hash
	if w.sum, err = w.out.sum(); err != nil {
		return err
	}
	return w.out.write(w.encode())
}

// publish makes the table and its filter durable under their names and opens it
// with one reference. Nothing names it yet: a crash from here on leaves files
// that the next Open removes. After an error none are left, unless removing fails too.
func (w *tableWriter) publish(ctx context.Context, level int) (*table, error) {
	if err := w.end(); err != nil {
		return nil, w.out.abandon(w.fsys, err)
	}
	path := filepath.Join(w.dir, w.file)
	if err := w.out.finish(); err != nil {
		return nil, errors.Join(err, w.fsys.Remove(path+tempSuffix))
	}
	if err := w.fsys.Rename(path+tempSuffix, path); err != nil {
		return nil, errors.Join(err, vfs.RemoveIfThere(w.fsys, path+tempSuffix), vfs.RemoveIfThere(w.fsys, path))
	}
	// Opened before indexmap names it, so that a table which cannot be read is never listed.
	t, err := openTable(w.fsys, w.dir, w.file, level)
	if err != nil {
		return nil, errors.Join(err, w.fsys.Remove(path))
	}
	if w.filter != nil {
		err = w.publishFilter(ctx, t)
	}
	if err == nil {
		err = w.fsys.SyncDir(w.dir)
	}
	if err != nil {
		t.onClose = func(cerr error) { err = errors.Join(err, cerr) }
		t.discard()
		return nil, err
	}
	return t, nil
}

func (w *tableWriter) publishFilter(ctx context.Context, t *table) error {
	t.filter = w.filter
	switch {
	case w.hashes >= w.room/2:
	// The tables merged had many hashes in common, or many hashes went.
	case w.hashes <= fewHashes:
		t.filter = newBloom(w.hashes)
		for _, hash := range w.few {
			t.filter.add(hash)
		}
	default:
		// A second pass over the file just written costs less than a filter of twice the size or
		// more for ever.
		var err error
		if t.filter, err = buildBloom(ctx, t); err != nil {
			return err
		}
	}
	return writeBloom(t, t.filter)
}

// writeTable writes all entries of a sequence. It returns no table when there are none.
func writeTable(ctx context.Context, w *tableWriter, level int, each func(emit func(rows []byte) error) error) (*table, error) {
	n := 0
	err := each(func(rows []byte) error {
		if n += len(rows); n >= checkEvery*entrySize {
			if n = 0; ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		return w.add(rows)
	})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, w.out.abandon(w.fsys, err)
	}
	if w.count == 0 {
		return nil, w.out.abandon(w.fsys, nil)
	}
	return w.publish(ctx, level)
}
