package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/index"
)

// RepairOptions say how the log of a node that is not running is repaired. Dir and Source are
// needed.
type RepairOptions struct {
	FS       vfs.FS // default: the real file system
	Dir      string
	IndexDir string                                // default: Dir/index
	Redacted func(from, to int64) []Redaction      // as in Options
	Source   func() (RepairSource, error)          // asked when something is damaged
	Pace     func(done, total int64, doing string) // told how far it is; may be nil
}

// RepairSource is a node that has the log whole.
type RepairSource interface {
	Cluster() string
	// Chunks names its chunk files, complete or not.
	Chunks() []PinnedFile
	// Fetch writes a file.
	Fetch(ctx context.Context, name string, into io.WriterAt) error
}

// Repaired is a chunk file that was replaced, or could not be.
type Repaired struct {
	File  string `json:"file"` // as it was; empty: it was missing
	First int    `json:"firstChunk"`
	Last  int    `json:"lastChunk"`
	Why   string `json:"reason"`
	New   string `json:"newFile"` // empty: it was not repaired
	Error string `json:"error,omitempty"`
}

// Repair looks for complete chunk files that are damaged or missing in a folder, and replaces them
// with those of another node. No process may have the folder open. It leaves the active chunk
// alone: its frames come from the leader. Where records may have come back, the next start rebuilds
// the index. A crash leaves each file as it was or repaired.
func Repair(ctx context.Context, o RepairOptions) (list []Repaired, err error) {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.IndexDir == "" {
		o.IndexDir = filepath.Join(o.Dir, "index")
	}
	if o.Pace == nil {
		o.Pace = func(int64, int64, string) {}
	}
	r := repair{ctx: ctx, o: o}
	lock, err := o.FS.Lock(filepath.Join(o.Dir, datadir.LockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("a node has %s open: %w", o.Dir, err)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if _, err := datadir.ReadInfo(o.FS, o.Dir); err != nil {
		return nil, err
	}
	if err := r.find(); err != nil || len(r.wrong) == 0 {
		return nil, err
	}
	source, err := o.Source()
	if err != nil {
		return nil, err
	}
	if r.cluster.IsZero() {
		if r.cluster, err = event.ParseID(source.Cluster()); err != nil {
			return nil, fmt.Errorf("cluster of the other node: %w", err)
		}
	} else if source.Cluster() != r.cluster.String() {
		return nil, fmt.Errorf("the other node belongs to cluster %s, this folder to %s", source.Cluster(), r.cluster)
	}
	for i := range r.wrong {
		one := &r.wrong[i]
		if err := r.replace(one, source); err != nil {
			one.Error = err.Error()
		}
		list = append(list, one.Repaired)
		if ctx.Err() != nil {
			return list, ctx.Err()
		}
	}
	return list, nil
}

// repair is one walk over the chunk files.
type repair struct {
	ctx     context.Context // of this one call
	o       RepairOptions
	cluster event.ID // zero: no file tells
	wrong   []wrongFile
}

type wrongFile struct {
	Repaired
	footer  *chunkfile.Footer // nil: unknown
	version int               // of the file, -1: there is none
	before  uint64            // Raft index of the last frame before it
	behind  uint64            // of the first frame after it, 0: unknown
}

// find looks at all files.
func (r *repair) find() error {
	names, err := r.o.FS.List(r.o.Dir)
	if err != nil {
		return err
	}
	files, _ := chunkfile.Newest(names)
	var total, done int64
	for _, f := range files {
		info, err := r.o.FS.Stat(filepath.Join(r.o.Dir, f.Name))
		if err != nil {
			return err
		}
		total += info.Size()
	}
	next, reached := 0, uint64(0)
	for i, file := range files {
		n := file.Number
		if n < next {
			continue // A merged file took its place.
		}
		if n > next {
			r.add(wrongFile{Repaired: Repaired{First: next, Last: n - 1, Why: "it is missing"}, version: -1, before: reached})
		}
		following := -1
		if i+1 < len(files) {
			following = files[i+1].Number
		}
		before := r.wrong
		f, last, err := r.look(file.Name, following, reached, func(bytes int64) error {
			done += bytes
			r.o.Pace(done, total, "reading")
			return r.ctx.Err()
		})
		if err != nil {
			return err
		}
		next = last + 1
		if f != nil {
			for i := range before {
				if w := &r.wrong[i]; w.behind == 0 {
					w.behind = f.FirstIndex
				}
			}
			reached = f.LastIndex
		}
	}
	return nil
}

func (r *repair) add(w wrongFile) { r.wrong = append(r.wrong, w) }

// look examines one file. following is the number of the next one, negative after the last.
func (r *repair) look(name string, following int, before uint64, pause func(int64) error) (f *chunkfile.Footer, last int, err error) {
	number, version, _ := chunkfile.ParseFileName(name)
	c, err := chunkfile.OpenNamed(r.o.FS, r.o.Dir, name)
	if err != nil {
		if !event.IsCorruption(err) {
			return nil, 0, err
		}
		last = number
		if version > 0 && following >= 0 {
			last = following - 1 // It may have been merged.
		}
		if following < 0 {
			// Only the node that has the next chunk could say how far the file went.
			return nil, last, fmt.Errorf("%w: the last file cannot be repaired alone: remove the data folder, and the node fetches everything again", err)
		}
		r.add(wrongFile{Repaired: Repaired{File: name, First: number, Last: last, Why: err.Error()}, version: version, before: before})
		return nil, last, nil
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if r.cluster.IsZero() {
		r.cluster = c.Header.Cluster
	}
	last = c.Header.Last
	if !c.Complete {
		if following < 0 {
			return nil, last, nil // The active one.
		}
		r.add(wrongFile{Repaired: Repaired{File: name, First: number, Last: last, Why: "the footer is damaged or missing"}, version: version, before: before})
		return nil, last, nil
	}
	err = c.Verify(pause)
	if err == nil || !event.IsCorruption(err) {
		return &c.Footer, last, err
	}
	r.add(wrongFile{Repaired: Repaired{File: name, First: number, Last: last, Why: c.Locate(err).Error()}, footer: &c.Footer, version: version, before: before})
	return &c.Footer, last, nil
}

// replace fetches what covers a range and puts it in place.
func (r *repair) replace(w *wrongFile, source RepairSource) (err error) {
	names := covers(source.Chunks(), w.First, w.Last)
	if len(names) == 0 {
		return errors.New("the other node does not have these chunks complete")
	}
	h := healing{tr: r.log().Transfer}
	defer func() { err = errors.Join(err, h.close()) }()
	for i, name := range names {
		r.o.Pace(int64(i), int64(len(names)), "fetching "+name)
		path := filepath.Join(r.o.Dir, uuid.NewString()+vfs.TempSuffix)
		h.temps = append(h.temps, path)
		if err := r.fetch(path, name, source); err != nil {
			return err
		}
	}
	if err := h.make(w.First, w.Last); err != nil {
		return err
	}
	f := &h.made.Footer
	switch old := w.footer; {
	case old != nil && !sameFrames(old, old, f):
		return &event.OtherHistory{Position: old.End}
	case f.FirstIndex <= w.before || w.behind > 0 && f.LastIndex >= w.behind:
		return &event.OtherHistory{Position: f.End}
	}
	if w.footer == nil || w.version > 0 {
		// Before the file has its name: the next start does not look below where the index ends.
		if err := index.Void(r.o.FS, r.o.IndexDir); err != nil {
			return err
		}
	}
	to := chunkfile.FileName(w.First, w.version+1)
	if w.version < 0 {
		to = chunkfile.FileName(w.First, 1)
	}
	if err := r.o.FS.Rename(h.made.Name, filepath.Join(r.o.Dir, to)); err != nil {
		return err
	}
	if err := r.o.FS.SyncDir(r.o.Dir); err != nil {
		return err
	}
	w.New = to
	if w.File != "" {
		return r.o.FS.Remove(filepath.Join(r.o.Dir, w.File))
	}
	return nil
}

func (r *repair) fetch(path, name string, source RepairSource) (err error) {
	file, err := r.o.FS.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := source.Fetch(r.ctx, name, file); err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	return nil
}

// log is a log of which nothing is open, for what works on files alone.
func (r *repair) log() *Log {
	o := Options{Dir: r.o.Dir, IndexDir: r.o.IndexDir, FS: r.o.FS, Redacted: r.o.Redacted, Logger: hclog.NewNullLogger()}
	o.EnsureDefaults()
	l := newLog(r.ctx, o)
	l.cluster = r.cluster
	l.pub.Store(&published{set: newChunkSet(nil, func(error) {})})
	return l
}

// covers returns the names of complete files that cover a range of chunks.
func covers(files []PinnedFile, first, last int) (names []string) {
	type part struct {
		number int
		name   string
		whole  bool
	}
	var parts []part
	for _, f := range files {
		if n, _, ok := chunkfile.ParseFileName(strings.TrimPrefix(f.Name, "/")); ok {
			parts = append(parts, part{n, f.Name, f.Complete})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.number, b.number) })
	for i, p := range parts {
		if p.number > last || i+1 < len(parts) && parts[i+1].number <= first {
			continue
		}
		if !p.whole {
			return nil
		}
		names = append(names, p.name)
	}
	return names
}
