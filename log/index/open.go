package index

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// Open opens the index in a folder, or makes an empty one. When the set of
// tables is not whole, or is of another log, everything is removed and the index is empty: its
// Checkpoint of 0 tells the caller to add everything again.
func Open(opt Options) (*Index, error) {
	opt.EnsureDefaults()
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	x := newIndex(opt)
	if err := vfs.MkdirAllSync(opt.FS, filepath.Join(opt.Dir, existenceFolder)); err != nil {
		return nil, fmt.Errorf("make index folder: %w", err)
	}
	o := x.opening()
	m, tables, err := o.openSet()
	if err == nil {
		if err = x.existence.open(&x.opt, m.checkpoint, tables); err != nil {
			releaseAll(tables) // A table that it read may be damaged.
		}
	}
	if err != nil {
		if !isDamage(err) {
			return nil, fmt.Errorf("open index: %w", err)
		}
		// A folder without any of our files is simply new.
		if left, lerr := leftovers(opt.FS, opt.Dir); lerr != nil || len(left) > 0 {
			opt.Logger.Warn("index cannot be used and will be built again from the log", logkey.Reason, err)
		}
		if err := removeSet(opt.FS, opt.Dir); err != nil {
			return nil, fmt.Errorf("remove damaged index: %w", err)
		}
		m, tables = &indexMap{}, nil
		if err := x.existence.open(&x.opt, m.checkpoint, tables); err != nil {
			return nil, fmt.Errorf("open index: %w", err)
		}
	}
	x.checkpoint.Store(m.checkpoint)
	x.reached, x.reachedChain, x.chain = m.checkpoint, m.chain, m.chain
	x.current.Store(newState([]*memTable{newMemTable()}, tables))
	releaseAll(tables) // The state has its own references.
	if err := o.removeLeftovers(tables); err != nil {
		return nil, errors.Join(fmt.Errorf("open index: %w", err), x.Close())
	}
	x.mergeTurn <- struct{}{}
	x.scavengeTurn <- struct{}{}
	x.mergeWork <- struct{}{} // An earlier run may have left a full level.
	x.watch(opt.Name, opt.Stats)
	x.wg.Add(3)
	go x.flusher()
	go x.merger()
	go expireChecks(x)
	return x, nil
}

func newIndex(opt Options) *Index {
	x := &Index{
		opt:       opt,
		reading:   reading{metrics: newMetrics(opt.Stats, opt.Name), existence: existence{isDue: true}},
		mergeTurn: make(chan struct{}, 1), scavengeTurn: make(chan struct{}, 1),
		mergeWork: make(chan struct{}, 1), damage: damage{fsys: opt.FS, logger: opt.Logger, told: opt.OnDamage},
	}
	x.lifecycle.begin(opt.OnFatal)
	return x
}

// isDamage reports whether an error says that files are missing or not what was
// written, rather than that they could not be read.
func isDamage(err error) bool {
	return event.IsCorruption(err) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, errOtherLog)
}

var errOtherLog = errors.New("it is not of this log")

// opening is an index that is being opened.
type opening struct {
	*Options
	readOnly bool
	adopt    func(*table)
}

func (x *Index) opening() *opening { return &opening{&x.opt, x.readOnly, x.adopt} }

// belongs returns an error unless what a map names is the index of the log that this one is opened
// for. Where both end says nothing about that.
func (o *opening) belongs(m *indexMap) error {
	switch {
	case o.Belongs == nil:
		return nil
	case m.cluster != o.Cluster:
		return fmt.Errorf("%w but of one of cluster %s", errOtherLog, m.cluster)
	}
	ok, err := o.Belongs(m.checkpoint, m.chain)
	if err != nil {
		return fmt.Errorf("compare with the log at %d: %w", m.checkpoint, err)
	}
	if !ok {
		return fmt.Errorf("%w, of which no frame ends at its checkpoint %d with its chain", errOtherLog, m.checkpoint)
	}
	return nil
}

// openSet opens what indexmap names. On an error nothing stays open.
func (o *opening) openSet() (*indexMap, []*table, error) {
	m, err := readMap(o.FS, o.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := o.belongs(m); err != nil {
		return nil, nil, err
	}
	var tables []*table
	for _, line := range m.tables { // All of them: an inspection names all that is wrong.
		t, openErr := o.openListed(line)
		if openErr == nil {
			tables = append(tables, t)
			if !o.readOnly && t.packed != o.Packed {
				openErr = corrupt(t.path, 0, "packed is %t, where the index has %t", t.packed, o.Packed)
			}
			if t.maxPos >= m.checkpoint {
				openErr = corrupt(t.path, -1, "holds position %d, which is not below the checkpoint %d", t.maxPos, m.checkpoint)
			}
		}
		err = errors.Join(err, openErr)
	}
	if err != nil {
		releaseAll(tables)
		return nil, nil, err
	}
	return m, tables, nil
}

func releaseAll(tables []*table) {
	for _, t := range tables {
		t.release()
	}
}

func (o *opening) openListed(line mapLine) (*table, error) {
	t, err := openTable(o.FS, o.Dir, line.file, line.level)
	if err != nil {
		return nil, err
	}
	o.adopt(t)
	if err := o.openFilter(t); err != nil {
		t.release()
		return nil, err
	}
	return t, nil
}

func (o *opening) openFilter(t *table) error {
	switch {
	case o.NoBloom:
		return nil
	case o.readOnly:
		b, err := openBloom(t.fsys, t.path+bloomSuffix, t.sum, true)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Written without filters.
		}
		t.filter = b
		return err
	}
	reason, err := t.attachFilter()
	if reason != nil && !errors.Is(reason, fs.ErrNotExist) {
		o.Logger.Warn("bloom filter of an index table was rebuilt", logkey.File, t.file, logkey.Reason, reason)
	}
	return err
}

// leftovers lists the files of ours that are not among those to keep.
func leftovers(fsys vfs.FS, dir string, keep ...string) ([]string, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool { return !isOurs(name) || slices.Contains(keep, name) }), nil
}

// removeLeftovers removes what crashes left behind.
func (o *opening) removeLeftovers(tables []*table) error {
	keep := []string{mapName}
	for _, t := range tables {
		keep = append(keep, t.file, t.file+bloomSuffix)
	}
	names, err := leftovers(o.FS, o.Dir, keep...)
	if err != nil {
		return err
	}
	for _, name := range names {
		o.Logger.Debug("removing file that the index does not name", logkey.File, name)
		if err := o.FS.Remove(filepath.Join(o.Dir, name)); err != nil {
			return err
		}
	}
	folder := filepath.Join(o.Dir, existenceFolder)
	for _, name := range []string{existenceName, existenceChk} {
		if err := vfs.RemoveIfThere(o.FS, filepath.Join(folder, name)+tempSuffix); err != nil {
			return err
		}
	}
	return nil
}

// Void makes the next Open of a folder find an empty index. The folder must not be open.
func Void(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(filepath.Join(dir, existenceFolder)); errors.Is(err, fs.ErrNotExist) {
		return vfs.RemoveIfThere(fsys, filepath.Join(dir, mapName))
	}
	return removeSet(fsys, dir)
}

// removeSet removes indexmap, durably, and then makes the existence filter void.
// Tables are left to those who have them open, or to removeLeftovers.
func removeSet(fsys vfs.FS, dir string) error {
	if err := vfs.RemoveIfThere(fsys, filepath.Join(dir, mapName)); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	folder := filepath.Join(dir, existenceFolder)
	// The checkpoint goes first: without it the filter counts for nothing.
	for _, name := range []string{existenceChk, existenceName} {
		if err := vfs.RemoveIfThere(fsys, filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	return fsys.SyncDir(folder)
}
