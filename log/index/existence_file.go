package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync/atomic"

	"github.com/annalsdb/annals/internal/logkey"
)

// existence is the stream-existence filter of an index, with its file. The filter has the hash of
// each entry before readers see the entry. The file may lack some, but none of an entry below the
// checkpoint that was saved with it; that is never above the checkpoint of the index.
type existence struct {
	filter atomic.Pointer[existenceFilter] // nil: none
	saves  atomic.Int64                    // each replaces the file

	unsaved int64 // bytes of tables written since the file was; guarded by Index.commitMu
	isDue   bool  // the file could not be brought up to date; guarded by Index.commitMu
}

// announce returns what must be called with a hash before an entry of it is shown.
func (e *existence) announce() func(hash uint64) {
	if f := e.filter.Load(); f != nil {
		return f.add
	}
	return func(uint64) {}
}

// open loads the filter and brings an older one up to date from the tables that
// are not wholly below its checkpoint. A filter that is damaged or of another index is rebuilt from
// all tables, and saved.
func (e *existence) open(o *Options, checkpoint int64, tables []*table) error {
	if o.ExistenceFilterMax < 0 {
		return nil
	}
	folder := filepath.Join(o.Dir, existenceFolder)
	f, covered, err := loadExistence(o.FS, folder, o.ExistenceFilterMax)
	if err == nil {
		// The filter's name must not be in memory alone when a higher checkpoint gets its own.
		if err := o.FS.SyncDir(folder); err != nil {
			return err
		}
	}
	if err == nil && covered > checkpoint {
		err = fmt.Errorf("its checkpoint %d is above that of the index, %d", covered, checkpoint)
	}
	isNew := err != nil
	if isNew {
		f, covered = newExistenceFilter(o.ExistenceFilterMax), 0
	}
	for _, t := range tables {
		if t.maxPos < covered {
			continue
		}
		if err := t.eachHash(context.Background(), f.add); err != nil {
			return err
		}
	}
	e.filter.Store(f)
	e.isDue = isNew
	if !isNew || errors.Is(err, fs.ErrNotExist) && len(tables) == 0 {
		return nil
	}
	o.Logger.Warn("stream-existence filter was rebuilt", logkey.Reason, err)
	f.dirty.Store(true)
	return e.save(o, 0, checkpoint)
}

// save writes the file after so many bytes of tables were, with the checkpoint of the index.
// Index.commitMu must be held.
func (e *existence) save(o *Options, written, checkpoint int64) error {
	f := e.filter.Load()
	if f == nil {
		return nil
	}
	e.unsaved += written
	size := f.bytes()
	if size > existenceSmall && e.unsaved < size && !e.isDue {
		return nil
	}
	e.unsaved, e.isDue = 0, false
	e.saves.Add(1)
	return f.save(o.FS, filepath.Join(o.Dir, existenceFolder), checkpoint)
}
