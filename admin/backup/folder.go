package backup

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
)

// Folder keeps backups in a folder: `<id>/` holds exactly the files of a database, with
// `manifest.json` next to them. Files that have not changed are hard links to those of an earlier
// backup, where the file system has links. A backup is made under the name `.<id>.partial`.
type Folder struct {
	fsys vfs.FS
	dir  string
}

// NewFolder returns the target in a folder, which is made if it is not there. A file system of nil
// is the real one.
func NewFolder(fsys vfs.FS, dir string) *Folder {
	return &Folder{fsys: cmp.Or(fsys, vfs.OS), dir: dir}
}

const (
	partialPrefix = "."
	partialSuffix = ".partial"
	copyBuffer    = 1 << 20
	// bytes: a node on the same disk waits for all that was not synced when it syncs
	syncEvery = 8 << 20
)

func (t *Folder) path(id, name string) string {
	return filepath.Join(t.dir, id, filepath.FromSlash(name))
}

// List returns the listed backups, the oldest first.
func (t *Folder) List(ctx context.Context) ([]Manifest, error) {
	names, err := t.fsys.List(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	ids := slices.DeleteFunc(names, func(name string) bool { return !ValidID(name) })
	return ReadManifests(ctx, ids, func(id string) ([]byte, error) {
		text, err := vfs.ReadFile(t.fsys, t.path(id, manifestFile))
		if err != nil {
			err = fmt.Errorf("list backups: %w", err)
		}
		return text, err
	})
}

// Open reads a file of a listed backup.
func (t *Folder) Open(_ context.Context, m *Manifest, f *File) (io.ReadCloser, error) {
	return openFile(t.fsys, t.path(m.ID, f.Name))
}

// Begin begins a backup.
func (t *Folder) Begin(_ context.Context, id string) (Writing, error) {
	w := &folderWriting{t: t, id: id, partial: partialPrefix + id + partialSuffix, dirs: map[string]bool{}}
	if err := vfs.MkdirAllSync(t.fsys, t.dir); err != nil {
		return nil, fmt.Errorf("begin a backup: %w", err)
	}
	if err := t.fsys.MkdirAll(filepath.Join(t.dir, w.partial)); err != nil {
		return nil, fmt.Errorf("begin a backup: %w", err)
	}
	w.dirs["."] = true
	return w, nil
}

// Remove removes backups and leftovers. A listed one loses its manifest first.
func (t *Folder) Remove(ctx context.Context, remove, keep []Manifest, leftoversBefore time.Time, dryRun bool) (freed int64, err error) {
	freed = unneeded(remove, keep)
	names, err := t.fsys.List(t.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("remove backups: %w", err)
	}
	listed := map[string]bool{}
	for _, m := range slices.Concat(keep, remove) {
		listed[m.ID] = true
	}
	if dryRun {
		return freed, nil
	}
	for i := range remove {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		id := remove[i].ID
		if err := t.fsys.Remove(t.path(id, manifestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("remove backup %s: %w", id, err)
		}
		// With its manifest a backup counts as whole: that must be gone before the rest.
		if err := t.fsys.SyncDir(filepath.Join(t.dir, id)); err != nil {
			return 0, fmt.Errorf("remove backup %s: %w", id, err)
		}
		if err := t.fsys.RemoveAll(filepath.Join(t.dir, id)); err != nil {
			return 0, fmt.Errorf("remove backup %s: %w", id, err)
		}
	}
	for _, name := range names {
		id := strings.TrimSuffix(strings.TrimPrefix(name, partialPrefix), partialSuffix)
		at, ok := Begun(id)
		if !ok || listed[id] || !at.Before(leftoversBefore) {
			continue
		}
		// That it has no manifest may be in memory alone.
		if err := t.fsys.SyncDir(filepath.Join(t.dir, name)); err != nil {
			return 0, fmt.Errorf("remove what is left of backup %s: %w", id, err)
		}
		if err := t.fsys.RemoveAll(filepath.Join(t.dir, name)); err != nil {
			return 0, fmt.Errorf("remove what is left of backup %s: %w", id, err)
		}
	}
	if len(names) == 0 {
		return freed, nil
	}
	return freed, t.fsys.SyncDir(t.dir)
}

// unneeded are the bytes of files that none of the kept backups has.
func unneeded(remove, keep []Manifest) (bytes int64) {
	needed := map[same]bool{}
	for i := range keep {
		for j := range keep[i].Files {
			needed[keep[i].Files[j].same()] = true
		}
	}
	for i := range remove {
		for j := range remove[i].Files {
			f := &remove[i].Files[j]
			if !needed[f.same()] {
				needed[f.same()] = true // Counted once.
				bytes += f.Size
			}
		}
	}
	return bytes
}

// folderWriting is a backup that is being made in a folder.
type folderWriting struct {
	t       *Folder
	id      string
	partial string

	mu   sync.Mutex
	dirs map[string]bool // made, relative to partial
}

func (w *folderWriting) path(name string) string { return w.t.path(w.partial, name) }

// folderOf makes the folder of a file.
func (w *folderWriting) folderOf(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	dir := path.Dir(name)
	if w.dirs[dir] {
		return nil
	}
	if err := w.t.fsys.MkdirAll(w.path(dir)); err != nil {
		return err
	}
	for ; !w.dirs[dir]; dir = path.Dir(dir) {
		w.dirs[dir] = true
	}
	return nil
}

func (w *folderWriting) Reuse(ctx context.Context, from *Manifest, f *File) (bool, error) {
	if err := w.folderOf(f.Name); err != nil {
		return false, err
	}
	old := w.t.path(from.ID, f.Name)
	info, err := w.t.fsys.Stat(old)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() != f.Size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if vfs.Link(w.t.fsys, old, w.path(f.Name)) == nil {
		return true, nil
	}
	r, err := openFile(w.t.fsys, old)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // That backup has been removed meanwhile.
	}
	if err != nil {
		return false, err
	}
	err = w.Put(ctx, f, newChecked(r, f))
	if err = errors.Join(err, r.Close()); err == nil {
		return true, nil
	}
	var damaged *Damaged
	if errors.As(err, &damaged) {
		return false, nil // The copy there is not what it was: take it from the source.
	}
	return false, err
}

func (w *folderWriting) Put(ctx context.Context, f *File, r io.Reader) error {
	if err := w.folderOf(f.Name); err != nil {
		return err
	}
	return writeFile(ctx, w.t.fsys, w.path(f.Name), r)
}

// writeFile makes a durable file of what r has, on its way to disk bit by bit.
func writeFile(ctx context.Context, fsys vfs.FS, name string, r io.Reader) (err error) {
	file, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriterSize(&syncing{ctx: ctx, file: file}, copyBuffer)
	if _, err := out.ReadFrom(r); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return file.Sync()
}

// syncing writes a file from its start, and syncs it now and then.
type syncing struct {
	ctx        context.Context
	file       vfs.File
	at, synced int64
}

func (w *syncing) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.file.WriteAt(b, w.at)
	if w.at += int64(n); err == nil && w.at-w.synced >= syncEvery {
		w.synced = w.at
		err = w.file.Sync()
	}
	return n, err
}

func (w *folderWriting) Open(_ context.Context, f *File) (io.ReadCloser, error) {
	return openFile(w.t.fsys, w.path(f.Name))
}

func (w *folderWriting) Finish(ctx context.Context, m *Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(ctx, w.t.fsys, w.path(manifestFile), strings.NewReader(string(text)+"\n")); err != nil {
		return err
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(w.dirs))) {
		if err := w.t.fsys.SyncDir(w.path(dir)); err != nil {
			return fmt.Errorf("finish a backup: %w", err)
		}
	}
	// The name lists it. It gets it when all of it is durable.
	if err := w.t.fsys.Rename(filepath.Join(w.t.dir, w.partial), filepath.Join(w.t.dir, w.id)); err != nil {
		return fmt.Errorf("finish a backup: %w", err)
	}
	return w.t.fsys.SyncDir(w.t.dir)
}

func (w *folderWriting) Abort(context.Context) error {
	// Also if the file was renamed but the rename is not durable: then no one has learned of it.
	if err := w.t.fsys.Remove(w.t.path(w.id, manifestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(w.t.fsys.RemoveAll(filepath.Join(w.t.dir, w.id)), w.t.fsys.RemoveAll(filepath.Join(w.t.dir, w.partial)))
}

// openFile opens a file as a stream.
func openFile(fsys vfs.FS, name string) (io.ReadCloser, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := file.Size()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(file, 0, size), file}, nil
}
