package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/ncruces/go-sqlite3"
	sqlitevfs "github.com/ncruces/go-sqlite3/vfs"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// Names in the folder.
const (
	fileName   = "scavenging.db"
	tempSuffix = ".tmp" // of what is removed by the next Open
)

// sideFiles are the files that SQLite keeps next to the database while it is open.
var sideFiles = []string{fileName + "-wal", fileName + "-journal"}

// Bounds of the options: SQLite addresses at most 4 GiB of memory.
const (
	defaultPageSize = 16 << 10
	defaultCache    = 64 << 20
	minCache        = 64 << 10
	maxCache        = 2 << 30

	// besidesCache is what SQLite may use beyond its cache: statements, and the
	// index of the write-ahead log, which is 1/2048 of it with pages of 16 KiB.
	besidesCache = 256 << 20
)

// Options say where the state lies and how it is stored.
type Options struct {
	FS  vfs.FS // nil: of the operating system
	Dir string // <index>/scavenging
	// of a new file, a power of two from 512 to 65536; 0: 16 KiB. A file keeps the one it was made
	// with
	PageSize   int
	CacheBytes int64 // 0: 64 MiB; at least 64 KiB and at most 2 GiB are used
	Logger     hclog.Logger
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	o.FS = cmp.Or(o.FS, vfs.OS)
	o.PageSize = cmp.Or(o.PageSize, defaultPageSize)
	o.CacheBytes = cmp.Or(o.CacheBytes, defaultCache)
	o.CacheBytes = min(max(o.CacheBytes, minCache), maxCache)
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
}

// DB is an open state. It is for one goroutine at a time: there is one connection.
// Within Update only the Tx may be used.
type DB struct {
	o       Options
	bridge  *bridge
	conn    *sqlite3.Conn
	st      statements
	block   block  // of the open transaction
	encoded []byte // scratch
	damaged error  // the file is damaged: Close removes it
	closed  bool

	hash func([]byte) uint64 // of names; tests let it collide
}

// Open opens the state in a folder, which it makes if need be. A file that is not such a state, is
// damaged, or was written by a newer version, is removed with a warning, and a new one begins: that
// only costs the work of a run. Errors of the file system are returned, as then the file may be
// good.
func Open(ctx context.Context, o Options) (*DB, error) {
	o.EnsureDefaults()
	if err := prepare(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("prepare the folder of the scavenge state: %w", err)
	}
	d, err := open(ctx, o)
	if why := (*unusableError)(nil); errors.As(err, &why) {
		o.Logger.Warn("the scavenge state cannot be used, beginning a new one; the next scavenge reads the log from its start",
			logkey.File, filepath.Join(o.Dir, fileName), logkey.Reason, why.reason)
		if err := discard(o.FS, o.Dir); err != nil {
			return nil, fmt.Errorf("remove the unusable scavenge state: %w", err)
		}
		d, err = open(ctx, o)
	}
	if err != nil {
		return nil, fmt.Errorf("open the scavenge state: %w", err)
	}
	return d, nil
}

// unusableError says that a file cannot be used, and a new one has to begin.
type unusableError struct{ reason string }

func (e *unusableError) Error() string { return e.reason }

// prepare makes the folder and removes what a crash left in it.
func prepare(fsys vfs.FS, dir string) error {
	if err := vfs.MkdirAllSync(fsys, dir); err != nil {
		return err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// discard removes the file, and makes that durable before it removes the side files: alone these
// mean nothing, but the file without them may be any old state.
func discard(fsys vfs.FS, dir string) error {
	for _, name := range append([]string{fileName}, sideFiles...) {
		err := fsys.Remove(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = fsys.SyncDir(dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove forgets the state in a folder, which must not be open, and the folder.
func Remove(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := discard(fsys, dir)
	if err == nil {
		err = fsys.RemoveAll(dir)
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return fmt.Errorf("remove the scavenge state: %w", err)
	}
	return nil
}

func open(ctx context.Context, o Options) (_ *DB, err error) {
	d := &DB{o: o, bridge: newBridge(o.FS, o.Dir), hash: hashName}
	defer vfs.Undo(&err, d.shut)
	sqlitevfs.Register(d.bridge.name, d.bridge)
	ctx = sqlite3.WithMaxMemory(ctx, o.CacheBytes+besidesCache)
	d.conn, err = sqlite3.OpenContext(ctx, "file:"+fileName+"?vfs="+d.bridge.name)
	if err != nil {
		d.conn = nil
		return nil, d.openError(ctx, err)
	}
	d.conn.SetInterrupt(ctx)
	if err := d.configure(); err != nil {
		return nil, d.openError(ctx, err)
	}
	if err := d.st.prepare(d.conn); err != nil {
		return nil, d.openError(ctx, err)
	}
	return d, nil
}

// openError judges an error met while opening: after damage a new file begins.
func (d *DB) openError(ctx context.Context, err error) error {
	err = d.explain(ctx, err)
	if event.IsCorruption(err) {
		d.damaged = nil // Open removes the file, not shut.
		return &unusableError{reason: err.Error()}
	}
	return err
}

// explain makes the best of an error of SQLite: damage becomes a
// event.Corruption, an interruption the error of the context, and errors of the
// file system are themselves again.
func (d *DB) explain(ctx context.Context, err error) error {
	cause := d.bridge.cause()
	switch {
	case err == nil:
		return nil
	case event.IsCorruption(err):
		d.damaged = err
		return err
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB), errors.Is(err, sqlite3.IOERR_DATA):
		d.damaged = &event.Corruption{File: filepath.Join(d.o.Dir, fileName), Offset: -1, Detail: err.Error()}
		return d.damaged
	case errors.Is(err, sqlite3.INTERRUPT) && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sqlite3.INTERRUPT):
		return err
	case cause != nil && !errors.Is(err, cause):
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}

// use lets ctx interrupt what is done from here on, if the state can be used.
func (d *DB) use(ctx context.Context) error {
	if err := cmp.Or(ctx.Err(), d.usable()); err != nil {
		return err
	}
	d.conn.SetInterrupt(ctx)
	d.bridge.cause()
	return nil
}

func (d *DB) usable() error {
	switch {
	case d.closed:
		return event.ErrClosed
	case d.damaged != nil:
		return d.damaged
	case d.bridge.broken != nil:
		return fmt.Errorf("the scavenge state has to be opened again: %w", d.bridge.broken)
	}
	return nil
}

// Close closes the state. A damaged file is removed. Decisions stay usable.
func (d *DB) Close() error {
	if d.closed {
		return nil
	}
	if err := d.shut(); err != nil {
		return fmt.Errorf("close the scavenge state: %w", err)
	}
	return nil
}

func (d *DB) shut() error {
	d.closed = true
	defer sqlitevfs.Unregister(d.bridge.name)
	if d.conn == nil {
		return nil
	}
	var errs []error
	d.conn.SetInterrupt(context.Background())
	d.bridge.cause()
	if d.damaged == nil && d.bridge.broken == nil && d.st.ready {
		// SQLite does this on closing too, but does not report how it went.
		errs = append(errs, d.explain(context.Background(), d.conn.Exec(`PRAGMA wal_checkpoint(TRUNCATE)`)))
	}
	d.st.close()
	errs = append(errs, d.conn.Close())
	if cause := d.bridge.cause(); cause != nil && errors.Join(errs...) == nil {
		errs = append(errs, cause)
	}
	if d.damaged != nil {
		d.o.Logger.Warn("the scavenge state is damaged and is removed; the next scavenge reads the log from its start",
			logkey.File, filepath.Join(d.o.Dir, fileName), logkey.Reason, d.damaged)
		return discard(d.o.FS, d.o.Dir)
	}
	return errors.Join(errs...)
}
