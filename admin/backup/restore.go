package backup

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
)

// RestoreOptions say what is restored, and where to. Dir is needed.
type RestoreOptions struct {
	// of the backup; default: the newest, or the oldest that reaches At or ToPosition
	ID         string
	At         time.Time // nothing written later is restored; zero: everything
	ToPosition *int64    // no frame that ends after it is restored; nil: everything

	FS       vfs.FS // of Dir, default the real one
	Dir      string // missing or empty
	IndexDir string // missing or empty, default Dir/index
	Progress func(Progress)
	Logger   hclog.Logger
}

// Restored is what a folder holds now.
type Restored struct {
	ID       string    `json:"id"`
	Dir      string    `json:"db"`
	Position int64     `json:"position"` // the end of the log
	Time     time.Time `json:"time"`     // of its newest record
	Files    int       `json:"files"`
	Bytes    int64     `json:"bytes"`
	LeftOut  int64     `json:"bytesLeftOut"` // of the log, after Position
	Seconds  float64   `json:"seconds"`
}

// Why nothing can be restored.
var (
	ErrNotEmpty = errors.New("the folder is not empty")
	ErrTooLate  = errors.New("no backup reaches that far")
	ErrVolume   = errors.New("the folder is where a volume is mounted, and a restored one takes its place: name a folder inside it")
)

// CutInside says that a restore cannot end where it was asked to: the file there was
// scavenged or redacted, and such a file cannot be continued in its middle.
type CutInside struct {
	File       string
	Start, End int64 // positions at which a restore can end instead
}

func (e *CutInside) Error() string {
	return fmt.Sprintf("the log cannot end inside %s, which was scavenged or redacted: it can end at position %d or at %d (--to-position), or take a backup from before the scavenge (--id)", e.File, e.Start, e.End)
}

const (
	restoringSuffix = ".restoring"
	indexFolder     = "index"
	truncateFile    = "truncate.chk"
)

// Restore makes a data folder of a backup. It is filled under another name next to its place, and
// gets its name when every checksum is right and everything is durable.
func Restore(ctx context.Context, target Target, o RestoreOptions) (r Restored, err error) {
	started := time.Now()
	o.FS = cmp.Or(o.FS, vfs.OS)
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	o.Dir = filepath.Clean(o.Dir)
	for _, dir := range []string{o.Dir, o.IndexDir} {
		if err := checkEmpty(o.FS, dir); err != nil {
			if _, e := o.FS.Stat(o.Dir + restoringSuffix); dir == o.IndexDir && e == nil && errors.Is(err, ErrNotEmpty) {
				err = fmt.Errorf("%w (a restore to %s was killed: if this is the index that it made, remove it)", err, o.Dir)
			}
			return r, err
		}
	}
	m, err := choose(ctx, target, &o)
	if err != nil {
		return r, err
	}
	p := places{dir: o.Dir + restoringSuffix}
	p.index = filepath.Join(p.dir, indexFolder)
	if o.IndexDir != "" {
		p.index = filepath.Clean(o.IndexDir) + restoringSuffix
	}
	// What is there is of a restore that was killed.
	if err := p.remove(o.FS); err != nil {
		return r, fmt.Errorf("restore: %w", err)
	}
	defer vfs.Undo(&err, func() error { return p.remove(o.FS) })
	if err := fill(ctx, target, &m, &o, &p); err != nil {
		return r, err
	}
	r = Restored{ID: m.ID, Dir: o.Dir, Position: m.Position, Time: m.Time, Files: len(m.Files), Bytes: m.Bytes()}
	if err := cut(ctx, &m, &o, &p, &r); err != nil {
		return r, err
	}
	if err := p.rename(&o); err != nil {
		return r, err
	}
	r.Seconds = time.Since(started).Seconds()
	return r, nil
}

// checkEmpty refuses a folder that has anything in it.
func checkEmpty(fsys vfs.FS, dir string) error {
	if dir == "" {
		return nil
	}
	names, err := fsys.List(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	case len(names) > 0:
		return fmt.Errorf("%w: %s", ErrNotEmpty, dir)
	}
	here, err := fsys.Stat(dir)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	above, err := fsys.Stat(filepath.Dir(dir))
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	a, ok := here.Sys().(*syscall.Stat_t)
	if b, also := above.Sys().(*syscall.Stat_t); ok && also && a.Dev != b.Dev {
		return fmt.Errorf("%w: %s", ErrVolume, dir)
	}
	return nil
}

// choose finds the backup.
func choose(ctx context.Context, target Target, o *RestoreOptions) (Manifest, error) {
	if o.ID != "" || o.At.IsZero() && o.ToPosition == nil {
		m, err := Find(ctx, target, o.ID)
		if err == nil && !reaches(&m, o) {
			err = fmt.Errorf("%w: %s ends at position %d, with what was written at %s", ErrTooLate, m.ID, m.Position, m.Time.Format(time.RFC3339Nano))
		}
		return m, err
	}
	all, err := target.List(ctx)
	if err != nil {
		return Manifest{}, err
	}
	for i := range all {
		if reaches(&all[i], o) {
			return all[i], nil
		}
	}
	if len(all) == 0 {
		return Manifest{}, fmt.Errorf("%w: none at all", ErrNoBackup)
	}
	m := &all[len(all)-1]
	return Manifest{}, fmt.Errorf("%w: the newest, %s, ends at position %d, with what was written at %s", ErrTooLate, m.ID, m.Position, m.Time.Format(time.RFC3339Nano))
}

// reaches reports whether a backup holds all that is asked for.
func reaches(m *Manifest, o *RestoreOptions) bool {
	return (o.At.IsZero() || !m.Time.Before(o.At)) && (o.ToPosition == nil || m.Position >= *o.ToPosition)
}

// places are the folders that are being filled.
type places struct{ dir, index string }

func (p *places) remove(fsys vfs.FS) error {
	return errors.Join(fsys.RemoveAll(p.dir), fsys.RemoveAll(p.index))
}

// rename gives the folders their names, the index first: without a log it is nothing.
func (p *places) rename(o *RestoreOptions) error {
	put := func(from, to string) error {
		if err := o.FS.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) { // It is empty.
			return err
		}
		if err := o.FS.Rename(from, to); err != nil {
			return err
		}
		return o.FS.SyncDir(filepath.Dir(to))
	}
	var err error
	if o.IndexDir != "" {
		err = put(p.index, filepath.Clean(o.IndexDir))
	}
	if err == nil {
		err = put(p.dir, o.Dir)
	}
	if err != nil {
		return fmt.Errorf("give the restored folder its name: %w", err)
	}
	return nil
}

// fill copies all files, durably.
func fill(ctx context.Context, target Target, m *Manifest, o *RestoreOptions, p *places) (err error) {
	done, total := int64(0), m.Bytes()
	dirs := map[string]bool{p.dir: true, p.index: true}
	for dir := range dirs {
		if err := vfs.MkdirAllSync(o.FS, dir); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	for i := range m.Files {
		f := &m.Files[i]
		name := filepath.Join(p.dir, filepath.FromSlash(f.Name))
		if inIndex, ok := strings.CutPrefix(f.Name, indexFolder+"/"); ok {
			name = filepath.Join(p.index, filepath.FromSlash(inIndex))
		}
		for dir := filepath.Dir(name); !dirs[dir]; dir = filepath.Dir(dir) {
			if err := o.FS.MkdirAll(dir); err != nil {
				return fmt.Errorf("restore: %w", err)
			}
			dirs[dir] = true
		}
		r, err := target.Open(ctx, m, f)
		if err == nil {
			err = writeFile(ctx, o.FS, name, newChecked(r, f))
			err = errors.Join(err, r.Close())
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", f.Name, err)
		}
		done += f.Size
		o.Progress(Progress{Phase: PhaseCopy, Done: done, Total: total})
	}
	for dir := range dirs {
		if err := o.FS.SyncDir(dir); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	if o.IndexDir != "" { // Its parent has a new name in it.
		return o.FS.SyncDir(filepath.Dir(p.index))
	}
	return nil
}

// cut ends the log where it was asked to, in the way in which a start cuts it.
func cut(ctx context.Context, m *Manifest, o *RestoreOptions, p *places, r *Restored) error {
	if (o.ToPosition == nil || *o.ToPosition >= m.Position) && (o.At.IsZero() || !m.Time.After(o.At)) {
		return nil
	}
	cluster, err := event.ParseID(m.ClusterID)
	if err != nil {
		return fmt.Errorf("restore: cluster id of the manifest: %w", err)
	}
	options := eventlog.Options{
		Dir: p.dir, IndexDir: p.index, FS: o.FS, ClusterID: cluster, MaxTruncate: -1, SkipVerify: true, RecentIDs: 1, Logger: o.Logger,
	}
	l, err := eventlog.Open(options)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	at, err := cutAt(ctx, l, o)
	if err = errors.Join(err, l.Close()); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if at == math.MaxInt64 {
		return nil
	}
	mark := filepath.Join(p.dir, truncateFile)
	if err := vfs.WriteFileAtomic(o.FS, mark, binary.LittleEndian.AppendUint64(nil, uint64(at))); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if l, err = eventlog.Open(options); err != nil {
		return fmt.Errorf("cut the log at %d: %w", at, err)
	}
	tail := l.Tail()
	if err := l.Close(); err != nil {
		return fmt.Errorf("cut the log at %d: %w", at, err)
	}
	if tail.End > at {
		return fmt.Errorf("cut the log at %d: it ends at %d", at, tail.End)
	}
	r.LeftOut, r.Position = m.Position-tail.End, tail.End
	r.Time = time.Unix(0, tail.Time).UTC()
	return nil
}

var errFound = errors.New("found")

// cutAt finds where the log is to end, math.MaxInt64 if it may stay as it is.
func cutAt(ctx context.Context, l *eventlog.Log, o *RestoreOptions) (int64, error) {
	at := int64(math.MaxInt64)
	if o.ToPosition != nil {
		at = *o.ToPosition
	}
	chunks, err := l.Chunks.List()
	if err != nil {
		return 0, err
	}
	if !o.At.IsZero() {
		latest := o.At.UnixNano()
		// Time never falls in the log: the cut lies in the last chunk whose first event is not
		// later.
		first := int64(math.MaxInt64)
		for i := len(chunks) - 1; i >= 0; i-- {
			early := false
			err := l.Chunks.Scan(ctx, chunks[i].Start, chunks[i].End, func(s *eventlog.Stored) error {
				if s.Time > latest {
					first = s.Position
					return errFound
				}
				early = true
				return nil
			})
			if err != nil && !errors.Is(err, errFound) {
				return 0, err
			}
			if early {
				break
			}
		}
		at = min(at, first)
	}
	for _, c := range chunks {
		if c.Rewritten && at > c.Start && at < c.End {
			return 0, &CutInside{File: c.File, Start: c.Start, End: c.End}
		}
	}
	return at, nil
}
