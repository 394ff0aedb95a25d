package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	eventlog "github.com/annalsdb/annals/log"
)

// Target is where backups are kept.
type Target interface {
	// List returns the listed backups, the oldest first. With an error that is Damaged it returns
	// those whose manifests are whole.
	List(ctx context.Context) ([]Manifest, error)
	// Begin begins a backup. Nothing of it is listed before Finish.
	Begin(ctx context.Context, id string) (Writing, error)
	// Open reads a file of a listed backup.
	Open(ctx context.Context, m *Manifest, f *File) (io.ReadCloser, error)
	// Remove removes listed backups, but no file that one of keep needs, and leftovers of backups
	// that were begun before a time and never listed. It returns the bytes that no backup needs any
	// more. A dry run only computes them.
	Remove(ctx context.Context, remove, keep []Manifest, leftoversBefore time.Time, dryRun bool) (freed int64, err error)
}

// Writing is a backup that is being made.
type Writing interface {
	// Reuse uses a file of an earlier backup, if it is still there.
	Reuse(ctx context.Context, from *Manifest, f *File) (bool, error)
	// Put copies a file from r, which fails when the bytes are not those of f. It is durable by
	// Finish. Several files are put at once.
	Put(ctx context.Context, f *File, r io.Reader) error
	// Open reads back a file that Put has written.
	Open(ctx context.Context, f *File) (io.ReadCloser, error)
	// Finish makes everything durable and lists the backup.
	Finish(ctx context.Context, m *Manifest) error
	// Abort removes the written files. The backup was not listed and never will be.
	Abort(ctx context.Context) error
}

const (
	manifestFile   = "manifest.json"
	manifestFormat = 1
	idLayout       = "20060102T150405.000Z"
)

// ErrNoBackup says that there is no such backup.
var ErrNoBackup = errors.New("there is no such backup")

// ValidID reports whether a text has the form of an id.
func ValidID(id string) bool {
	_, ok := Begun(id)
	return ok
}

// Begun is when the backup with an id was begun; false when it has not the form of one.
func Begun(id string) (time.Time, bool) {
	at, rest, found := strings.Cut(id, "-")
	t, err := time.Parse(idLayout, at)
	return t, err == nil && found && len(rest) == 8 && strings.Trim(rest, "0123456789abcdef") == ""
}

// checkName refuses names that do not stay in a folder: manifests come from where others may write.
func checkName(name string) error {
	if name == "" || path.Clean("/" + name)[1:] != name || strings.Contains(name, `\`) || name == manifestFile {
		return fmt.Errorf("%q is not the name of a file of a backup", name)
	}
	return nil
}

// Check refuses a manifest that this program cannot use.
func (m *Manifest) Check() error {
	switch {
	case m.Format > manifestFormat:
		return fmt.Errorf("backup %s has the newer format %d, the newest known here is %d", m.ID, m.Format, manifestFormat)
	case m.Format != manifestFormat || !ValidID(m.ID):
		return fmt.Errorf("the manifest of backup %q is not one", m.ID)
	}
	for i := range m.Files {
		if err := checkName(m.Files[i].Name); err != nil {
			return fmt.Errorf("backup %s: %w", m.ID, err)
		}
		if m.Files[i].Size < 0 {
			return fmt.Errorf("backup %s: %s has %d bytes", m.ID, m.Files[i].Name, m.Files[i].Size)
		}
	}
	return nil
}

// ReadManifests reads the manifests of the backups with some ids. With an error that is Damaged it
// returns those that are whole. A backup whose read fails with fs.ErrNotExist is not listed, or
// being removed.
func ReadManifests(ctx context.Context, ids []string, read func(id string) ([]byte, error)) (all []Manifest, damaged error) {
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		text, err := read(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m, err := parseManifest(id, text)
		if err != nil {
			damaged = errors.Join(damaged, err)
			continue
		}
		all = append(all, m)
	}
	return all, damaged
}

// parseManifest understands the manifest of the backup with an id. It fails with Damaged.
func parseManifest(id string, text []byte) (m Manifest, err error) {
	if err := json.Unmarshal(text, &m); err != nil {
		return m, &Damaged{fmt.Errorf("manifest of backup %s: %w", id, err)}
	}
	if err := m.Check(); err != nil {
		return m, &Damaged{err}
	}
	if m.ID != id {
		return m, &Damaged{fmt.Errorf("the manifest of backup %s is that of %s", id, m.ID)}
	}
	return m, nil
}

// Bytes are those of all files.
func (m *Manifest) Bytes() (sum int64) {
	for i := range m.Files {
		sum += m.Files[i].Size
	}
	return sum
}

// same finds files of an earlier backup by name and checksum.
type same struct {
	name, checksum string
	size           int64
}

func (f *File) same() same { return same{f.Name, f.Checksum, f.Size} }

// checked reads a file's bytes and fails, instead of with io.EOF, when they are not the file's.
type checked struct {
	r   io.Reader
	f   *File
	sum *eventlog.FileSum
}

func newChecked(r io.Reader, f *File) *checked { return &checked{r: r, f: f, sum: f.Sum()} }

func (c *checked) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	if n > 0 {
		if _, e := c.sum.Write(b[:n]); e != nil {
			return 0, &Damaged{e}
		}
	}
	if err == io.EOF {
		got, e := c.sum.Sum()
		if e == nil && got != c.f.Checksum {
			e = fmt.Errorf("%s has the checksum %s, and should have %s", c.f.Name, got, c.f.Checksum)
		}
		if e != nil {
			return n, &Damaged{e}
		}
	}
	return n, err
}

// Damaged says that bytes differ from those that were written.
type Damaged struct{ Err error }

func (e *Damaged) Error() string { return e.Err.Error() }
func (e *Damaged) Unwrap() error { return e.Err }

func isDamaged(err error) bool {
	_, ok := errors.AsType[*Damaged](err)
	return ok
}
